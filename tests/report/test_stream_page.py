"""The page of a stream: whole, escaped, of a size that does not grow, and readable on a phone."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from fenchel.report.stream_figures import (
    ERROR,
    MOST_AREAS,
    MOST_ROWS,
    SIGNALS,
    classes_figure,
    signal_names,
    signals_figure,
)
from fenchel.report.stream_page import MOST_BATCHES_SHOWN, write_stream_page
from fenchel.report.stream_rows import MOST_BAD_IMAGES, MOST_SAMPLES, SpreadSample, read_rows
from fenchel.report.stream_windows import MOST_MARKS, windows_of

EVIL = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&"
NAMES = ("airplane", "bird", "cat")
COLORS = {"adapted": "#c0392b", "source": "#8a8f98"}
NO_IMAGE: Callable[[str], None] = lambda name: None  # noqa: E731


def row(place: int = 0, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "image": f"photos/{place}.png",
        "prediction": 1,
        "name": "bird",
        "confidence": 0.91,
        "source_prediction": 2,
        "source_name": "cat",
        "source_confidence": 0.62,
        "entropy": 0.3,
        "batch": place // 10,
        "event": "updated",
        "reason": "",
        "label": 1,
        "label_name": "bird",
    }
    return {**values, **changes}


def batch(number: int = 0, classes: int = 3, **changes: Any) -> dict[str, Any]:
    counts = np.random.default_rng(number).multinomial(10, np.full(classes, 1 / classes)).tolist()
    values: dict[str, Any] = {
        "batch": number,
        "images": 10,
        "left_out": 0,
        "unreadable": 0,
        "event": "updated",
        "entropy": 0.5,
        "effective_classes": 2.5,
        "confidence": 0.9,
        "source_confidence": 0.6,
        "source_entropy": 0.9,
        "source_effective_classes": 2.8,
        "agreement": 0.7,
        "class_counts": counts,
        "source_class_counts": counts[::-1],
        "error": 20.0,
        "source_error": 35.0,
        "verdict": "healthy",
        "reason": "",
    }
    return {**values, **changes}


def summary(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "images": 40,
        "method": "conjugate",
        "verdict": "healthy",
        "sentence": "Adaptation helped: the error fell from 35.0 % to 20.0 %.",
        "advice": "Use these predictions.",
        "changed_percent": 30.0,
        "source_error_percent": 35.0,
        "error_percent": 20.0,
        "batches": 4,
        "updates": 3,
        "skipped_updates": 1,
        "resets": 0,
        "left_out": 0,
        "unreadable": 0,
        "warnings": [],
        "settings": {"learning_rate": 0.001, "optimizer": "sgd"},
        "predictions": "predictions.csv",
    }
    return {**values, **changes}


def picture(name: str) -> Image.Image:
    return Image.new("RGB", (32, 32), (200, 60, 40))


def write(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    batches: Sequence[Mapping[str, Any]],
    classes: Sequence[str] | None = NAMES,
    image_of: Callable[[str], Image.Image | None] = picture,
    **changes: Any,
) -> Path:
    return write_stream_page(
        path,
        summary=summary(**changes),
        rows=iter(rows),
        batches=batches,
        classes=classes,
        image_of=image_of,
    )


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# --- what is on it -----------------------------------------------------------------------------


def test_the_verdict_comes_first_in_words_with_what_to_do(tmp_path: Path) -> None:
    for verdict, symbol in (("healthy", "✓"), ("suspect", "!"), ("collapsed", "✕")):
        text = text_of(write(tmp_path / "page.html", [row()], [], verdict=verdict))
        content = text[text.index("<main>") :]
        assert f"<h1>{verdict}</h1>" in content
        assert f">{symbol}</span>" in content
        for told in ("the error fell from 35.0 % to 20.0 %", "Use these predictions."):
            assert content.index(told) < content.index("<h2")


def test_a_changed_image_is_shown_with_both_classes_and_its_label(tmp_path: Path) -> None:
    rows = [row(0), row(1, source_prediction=1, source_name="bird")]
    text = text_of(write(tmp_path / "page.html", rows, []))
    (card,) = re.findall(r"<li>\s*<img.*?</li>", text, re.DOTALL)
    words = " ".join(re.sub("<[^>]*>", " ", card).split())
    assert words == (
        "source said cat 0.62 adapted says bird 0.91 right now label: bird photos/0.png batch 0"
    )
    assert 'src="data:image/png;base64,' in card
    assert "1 of 2 images" in text


def test_changes_are_counted_by_what_they_did(tmp_path: Path) -> None:
    rows = [row(0), row(1), row(2, label=2), row(3, label=0), row(4, label=None)]
    found = read_rows(rows)
    assert found.outcomes == {"mended": 2, "broken": 1, "wrong before and after": 1}
    assert found.pairs == {(2, 1): 5}
    text = text_of(write(tmp_path / "page.html", rows, []))
    assert "2 mended" in text
    assert "1 broken" in text


def test_bad_images_are_listed_with_their_reason(tmp_path: Path) -> None:
    gone = dict.fromkeys(("prediction", "name", "confidence", "source_prediction", "label"))
    rows = [row(0, event="unreadable", reason="the file is cut short", **gone)]
    rows += [row(k, event="left-out", reason="not finite") for k in range(1, 80)]
    text = text_of(write(tmp_path / "page.html", rows, []))
    assert "unreadable: the file is cut short" in text
    assert text.count("left out: not finite") == MOST_BAD_IMAGES - 1
    assert f"The first {MOST_BAD_IMAGES} of 80." in text


def test_settings_warnings_and_batches_to_look_at_are_told(tmp_path: Path) -> None:
    batches = [batch(0), batch(1, event="reset"), batch(2, verdict="suspect", reason="few classes")]
    text = text_of(write(tmp_path / "page.html", [row()], batches, warnings=["a warning"]))
    assert "<dt>learning rate</dt><dd>0.001</dd>" in text
    assert "<li>a warning</li>" in text
    table = text[text.index('id="batches"') : text.index('id="run"')]
    entries = re.findall(r"<td[^>]*>([^<]*)", table)
    assert entries == ["1", "healthy", "reset", "2", "suspect", "few classes"]


def test_without_the_source_and_labels_the_page_says_so(tmp_path: Path) -> None:
    unknown = dict.fromkeys(
        ("source_prediction", "source_name", "source_confidence", "label", "label_name")
    )
    silent = dict.fromkeys(
        ("agreement", "error", "source_error", "source_confidence", "source_class_counts")
    )
    changes = {"source_error_percent": None, "error_percent": None, "changed_percent": None}
    path = write(tmp_path / "page.html", [row(**unknown)], [batch(**silent)], None, **changes)
    text = text_of(path)
    assert "<h1>unknown</h1>" in text  # no sign of harm, since nobody looked
    assert "The source was not asked for its predictions" in text
    assert "Error over the stream" not in text
    assert "Agreement" not in text
    assert "Confidence" in text


def test_no_change_is_a_page_too(tmp_path: Path) -> None:
    path = write(tmp_path / "page.html", [row(source_prediction=1)], [])
    assert "None: the adapted model says of all 1 images" in text_of(path)


def test_a_page_of_nothing_is_a_page(tmp_path: Path) -> None:
    page = write_stream_page(
        tmp_path / "page.html", summary={}, rows=[], batches=[], classes=None, image_of=NO_IMAGE
    )
    assert "<h1>unknown</h1>" in text_of(page)


def test_an_image_that_is_gone_leaves_a_card_without_picture(tmp_path: Path) -> None:
    def gone(name: str) -> Image.Image:
        raise FileNotFoundError(name)

    for image_of in (NO_IMAGE, gone):
        text = text_of(write(tmp_path / "page.html", [row()], [], image_of=image_of))
        assert "no picture" in text
        assert "<img" not in text


def test_large_images_are_embedded_small(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (800, 1000, 3), dtype=np.uint8)
    path = write(tmp_path / "page.html", [row()], [], image_of=lambda name: Image.fromarray(noise))
    (address,) = re.findall(r'src="data:image/jpeg;base64,([^"]*)"', text_of(path))
    assert len(address) < 40_000


def test_text_from_data_is_escaped_and_asks_for_nothing(tmp_path: Path) -> None:
    rows = [row(image=EVIL, label_name=EVIL), row(1, image=EVIL, event="left-out", reason=EVIL)]
    batches = [batch(verdict="suspect", reason=EVIL)]
    path = write(
        tmp_path / "page.html",
        rows,
        batches,
        [EVIL] * 3,
        sentence=EVIL,
        advice=EVIL,
        method=EVIL,
        warnings=[EVIL],
        settings={EVIL: EVIL},
        predictions=EVIL,
    )
    text = text_of(path)
    assert "<script" not in text
    assert text.count("<img") == text.count('<img src="data:image/png') == 2
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", text)


def test_names_that_are_no_unicode_or_in_no_font_are_written(tmp_path: Path) -> None:
    names = ["猫", "two\nlines", "bad \udcff"]
    path = write(tmp_path / "page.html", [row(image="odd \udcff.png")], [batch()], names)
    assert "猫" in text_of(path)


def test_equal_streams_give_equal_pages(tmp_path: Path) -> None:
    one, other = (
        write(tmp_path / name, [row(k) for k in range(30)], [batch(k) for k in range(3)])
        for name in ("one.html", "other.html")
    )
    assert one.read_bytes() == other.read_bytes()


# --- sizes -------------------------------------------------------------------------------------


def test_samples_are_spread_over_the_whole_stream_in_order() -> None:
    for count in (0, 1, 5, 24, 25, 97, 1000, 12345):
        sample = SpreadSample(MOST_SAMPLES)
        for place in range(count):
            sample.add({"place": place})
        places = [found["place"] for found in sample.rows()]
        assert len(places) == min(count, MOST_SAMPLES)
        assert places == sorted(set(places))
        if count > MOST_SAMPLES:
            gaps = np.diff([0, *places, count])
            assert gaps.max() < 2.5 * count / MOST_SAMPLES


def test_rows_are_read_once_and_memory_stays_flat() -> None:
    def rows(count: int) -> Iterator[dict[str, Any]]:
        return (row(k, image="x" * 100 + str(k), event="left-out") for k in range(count))

    peaks = []
    for count in (2_000, 20_000):
        tracemalloc.start()
        found = read_rows(rows(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (found.compared, found.bad_count, found.changed.seen) == (count, count, count)
    assert peaks[1] < 1.5 * peaks[0]


def test_windows_are_means_over_images_and_skip_what_is_unknown() -> None:
    batches = [
        batch(0, images=10, error=10.0),
        batch(1, images=30, error=50.0, verdict="collapsed"),
        batch(2, error=None, event="skipped"),
        batch(3, error=float("nan"), left_out=1),
    ]
    windows = windows_of(batches, 2, means=["error", "agreement"], counts=True)
    assert windows.means["error"].tolist() == pytest.approx([40.0, np.nan], nan_ok=True)
    assert windows.middle.tolist() == [0.5, 2.5]
    assert windows.verdicts == ("collapsed", "healthy")
    assert windows.events == {"reset": (), "skipped": (2.0,), "left out": (3.0,)}
    assert windows.counts is not None
    expected = np.sum([b["class_counts"] for b in batches[:2]], axis=0)
    assert windows.counts[0].tolist() == expected.tolist()


def test_thousands_of_batches_and_classes_are_as_large_a_page_as_few(tmp_path: Path) -> None:
    same = batch(classes=1000, verdict="suspect")
    batches = [{**same, "batch": k, "event": "skipped" if k % 2 else "reset"} for k in range(5000)]
    path = write(tmp_path / "page.html", [row(k) for k in range(50)], batches, None)
    assert path.stat().st_size < 700_000
    text = text_of(path)
    assert f"The {MOST_ROWS} most frequent of 1,000 classes" in text
    assert "5,000 batches in 150 windows." in text
    assert f"The first {MOST_BATCHES_SHOWN} of 5,000." in text
    windows = windows_of(batches, 150, means=signal_names())
    assert len(windows.first) == 150
    assert all(len(where) <= MOST_MARKS for where in windows.events.values())


@pytest.mark.parametrize("narrow", [False, True])
def test_the_shares_of_the_classes_add_up_and_source_and_adapted_share_colours(
    narrow: bool,
) -> None:
    windows = windows_of([batch(k) for k in range(4)], 40, counts=True)
    adapted, source = classes_figure(windows, {0: "airplane"}, narrow=narrow).axes
    for axes in (adapted, source):
        top = max(area.get_paths()[0].vertices[:, 1].max() for area in axes.collections)
        assert top == pytest.approx(100)
    inks = [[to_hex(area.get_facecolor()[0]) for area in a.collections] for a in (adapted, source)]
    assert inks[0] == inks[1]
    assert len(set(inks[0])) == 3


def test_a_source_that_was_asked_now_and_then_is_drawn_all_the_same(tmp_path: Path) -> None:
    silent = dict.fromkeys(("agreement", "source_confidence", "source_class_counts"))
    batches = [batch(k, **({} if k % 4 == 0 else silent)) for k in range(9)]
    windows = windows_of(batches, 150, means=signal_names(), counts=True)
    agreement, confidence, *_ = signals_figure(windows, SIGNALS, COLORS).axes
    assert agreement.lines[0].get_xdata().tolist() == [0, 4, 8]
    assert confidence.lines[0].get_xdata().tolist() == [0, 4, 8]
    assert confidence.lines[1].get_xdata().tolist() == list(range(9))
    adapted, source = classes_figure(windows, {}).axes
    for axes in (adapted, source):  # without gaps
        tops = axes.collections[-1].get_paths()[0].vertices
        assert tops[tops[:, 1] > 99.9, 0].max() == 8.5
        assert sum(tops[:, 1] > 99.9) >= 11
    page = write(tmp_path / "page.html", [row()], batches)
    assert text_of(page).count("The source was asked at 3 batches.") == 2


def test_many_classes_are_a_heat_map() -> None:
    windows = windows_of([batch(k, MOST_AREAS + 1) for k in range(4)], 40, counts=True)
    adapted, source, _ = classes_figure(windows, {}).axes
    assert len(adapted.images) == len(source.images) == 1


def test_the_lowest_panel_of_every_column_has_numbers_below_it() -> None:
    windows = windows_of([batch(k, agreement=None) for k in range(4)], 150, means=signal_names())
    panels = signals_figure(windows, SIGNALS, COLORS).axes
    shown = [panel.get_visible() for panel in panels]
    numbered = [panel.xaxis.get_tick_params()["labelbottom"] for panel in panels]
    assert (shown, numbered[:3]) == ([True, True, True, False], [False, True, True])


def test_source_and_adapted_have_their_colours_in_every_panel() -> None:
    windows = windows_of([batch(k) for k in range(4)], 150, means=signal_names())
    figures = [signals_figure(windows, signals, COLORS) for signals in ([ERROR], SIGNALS)]
    for figure in figures:
        for axes in figure.axes:
            assert {line.get_color() for line in axes.lines} <= set(COLORS.values())
    assert len(figures[1].axes) == 4


# --- in a browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages that are as different as streams can be."""
    folder = tmp_path_factory.mktemp("pages")
    long = "a_class_with_a_name_that_does_not_end_" * 3
    kinds = [{"event": "reset"}, {"verdict": "collapsed", "reason": long}, {"left_out": 1}, {}]
    return {
        "usual": write(
            folder / "usual.html",
            [row(k, label=k % 3) for k in range(60)]
            + [row(61, event="left-out", reason="not finite", image="folder/" * 20)],
            [batch(k, **kinds[k % 4]) for k in range(40)],
            warnings=["something was skipped"],
        ),
        "one image": write(folder / "one.html", [row()], [batch(images=1)], None, NO_IMAGE),
        "many": write(
            folder / "many.html",
            [row(k, image=long + EVIL) for k in range(60)],
            [batch(k, classes=1000) for k in range(200)],
            [long + EVIL] * 1000,
            settings={long: long},
            sentence=long,
        ),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_is_cut_and_nothing_complains(
    open_page: Any, pages: dict[str, Path], width: int, scheme: str
) -> None:
    for name, path in pages.items():
        options = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
        opened = open_page(path, **options)
        assert (name, opened.faults()) == (name, [])
        assert [url for url in opened.requests if not url.startswith("data:")] == [path.as_uri()]
        assert opened.view.title() != "owned"


def test_a_phone_sees_the_narrow_figures_alone(open_page: Any, pages: dict[str, Path]) -> None:
    script = "[...document.querySelectorAll('svg')].filter(s => s.checkVisibility()).length"
    for width in (390, 1200):
        opened = open_page(pages["usual"], viewport={"width": width, "height": 800})
        assert opened.view.evaluate(script) == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_verdict_can_be_read_in_grey(
    open_page: Any, pages: dict[str, Path], scheme: str
) -> None:
    """Its word stands out from its ground by brightness alone, by the rule for large text and more."""
    opened = open_page(pages["usual"], color_scheme=scheme)
    script = """() => {
      const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
      const rgb = (color) => { paint.fillStyle = color; paint.fillRect(0, 0, 1, 1);
        return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3); };
      return ["healthy", "suspect", "collapsed", "unknown"].map((verdict) => {
        const card = document.querySelector(".verdict");
        card.className = "verdict " + verdict;
        const ink = getComputedStyle(card.querySelector("h1")).color;
        return [ink, getComputedStyle(card).backgroundColor].map(rgb);
      });
    }"""
    for ink, ground in opened.view.evaluate(script):
        light, dark = sorted((luminance(ink), luminance(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 4.5


def luminance(color: Sequence[int]) -> float:
    """Relative luminance of sRGB, as the guidelines for readable pages define it."""
    values = np.array(color) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
