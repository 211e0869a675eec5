"""`fenchel adapt --report`: one stream as a self-contained page, from the verdict to single images."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from PIL import Image

from fenchel.files import write_atomically
from fenchel.report.html import drawn, render
from fenchel.report.layout import Layout, TableEntry
from fenchel.report.stream_figures import (
    ERROR,
    MOST_AREAS,
    SIGNALS,
    class_name,
    classes_figure,
    known_signals,
    most_predicted,
    signal_names,
    signals_figure,
)
from fenchel.report.stream_rows import (
    BROKEN,
    MENDED,
    STILL_WRONG,
    Row,
    StreamRows,
    outcome_of,
    read_rows,
)
from fenchel.report.stream_windows import Batch, Windows, happened, number_of, windows_of
from fenchel.report.style import palette

ImageOf = Callable[[str], Image.Image | None]
"""The image of a name, or None where it cannot be had."""

MOST_POINTS, MOST_HISTOGRAMS = 150, 40
"""Windows of a curve, and of the histogram of classes, which needs more images in each."""
MOST_PAIRS_SHOWN = 10
MOST_BATCHES_SHOWN = 50
THUMBNAIL = 160
SMALL_IMAGE = 64
"""Images up to this many pixels are embedded as they are, and enlarged without smoothing."""

OUTCOME_WORDS = {MENDED: "right now", BROKEN: "right before", STILL_WRONG: "still wrong"}

_SYMBOLS = {"healthy": "✓", "suspect": "!", "collapsed": "✕", "unknown": "?"}


def write_stream_page(
    path: str | Path,
    *,
    summary: Mapping[str, Any],
    rows: Iterable[Row],
    batches: Sequence[Batch],
    classes: Sequence[str] | None,
    image_of: ImageOf,
) -> Path:
    """Write the page of a stream to `path`, whole or not at all.

    Args:
        path: the HTML file.
        summary: of the whole run: `verdict`, `sentence`, `advice`, counts, errors in percent, `settings`.
        rows: one per image. They are read once, and few are kept, so they may come from a file of any size.
        batches: one per batch, as in the log.
        classes: the names of the classes, where they have some.
        image_of: gives the image of a row for a thumbnail; it is asked for a few dozen at most.
    """
    found = read_rows(rows)
    given = found.names | {k: str(name) for k, name in enumerate(classes or ()) if name}
    names = {k: _plain(name) for k, name in given.items()}
    method = str(summary.get("method") or "adapted").partition(":")[0]
    by_row = palette(["source", method])
    colors = {"source": by_row["source"], "adapted": by_row[method]}
    settings = {"method": summary.get("method"), **(summary.get("settings") or {})}
    notable, notable_count = batches_table(batches)
    verdict = verdict_on(summary, found)
    text = render(
        "stream.html",
        summary=summary,
        verdict=verdict,
        symbol=_SYMBOLS[verdict],
        tiles=tiles(summary, found),
        figures=_figures(batches, names, colors),
        colors=colors,
        found=found,
        samples=[_sample(row, names, image_of) for row in found.changed.rows()],
        pairs=pairs_table(found, names),
        bad=bad_table(found),
        notable=notable,
        notable_count=notable_count,
        settings={name: _setting(value) for name, value in settings.items() if value is not None},
    )
    write_atomically(path, text.encode("utf-8", "replace"))  # names of files may be no Unicode
    return Path(path)


def verdict_on(summary: Mapping[str, Any], found: StreamRows) -> str:
    """The verdict of the summary; unknown where no sign of harm means nothing, for want of a comparison."""
    verdict = str(summary.get("verdict"))
    judged = found.compared or summary.get("error_percent") is not None
    return verdict if verdict in _SYMBOLS and (judged or verdict != "healthy") else "unknown"


def tiles(summary: Mapping[str, Any], found: StreamRows) -> list[tuple[str, str, str]]:
    """The numbers at the top: each with what it is and a remark."""
    made = []
    before, now = (number_of(summary, f"{name}error_percent") for name in ("source_", ""))
    if now == now:
        remark = "" if before != before else f"the source: {before:.1f} %"
        made.append((f"{now:.1f} %", "error", remark))
    changed = number_of(summary, "changed_percent")
    if changed == changed and found.compared:
        made.append((f"{changed:.1f} %", "changed their class", f"of {found.compared:,} compared"))
    batches = _counted(summary, "batches")
    made.append(
        (f"{_counted(summary, 'images'):,}", "images", f"in {_some(batches, 'batch', 'batches')}")
    )
    skipped, resets = _counted(summary, "skipped_updates"), _counted(summary, "resets")
    remark = f"{skipped:,} skipped, {_some(resets, 'reset')}"
    made.append((f"{_counted(summary, 'updates'):,}", "updates", remark))
    lost, unreadable = _counted(summary, "left_out"), _counted(summary, "unreadable")
    if lost or unreadable:
        remark = f"{unreadable:,} of them unreadable" if unreadable else ""
        made.append((f"{lost + unreadable:,}", "left out", remark))
    return made


def _counted(summary: Mapping[str, Any], name: str) -> int:
    return int(number_of(summary, name, 0.0))


def _some(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def _figures(
    batches: Sequence[Batch], names: Mapping[int, str], colors: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The figures that the batches allow, with a title and what to see in them."""
    made: list[dict[str, Any]] = []
    fine = windows_of(batches, MOST_POINTS, means=signal_names())
    coarse = windows_of(batches, MOST_HISTOGRAMS, counts=True)

    def add(title: str, draw: Callable[[bool], Any], *captions: str) -> None:
        svg = drawn(draw, title, f"f{len(made)}-")
        made.append({"title": title, "svg": svg, "caption": " ".join(filter(None, captions))})

    together, asked = _together(fine, len(batches)), _asked(batches)
    if known_signals(fine, [ERROR]):
        add(
            "Error over the stream",
            lambda narrow: signals_figure(fine, [ERROR], colors, narrow=narrow),
            "The share of wrong predictions in each batch, from the labels that the images came with.",
            together,
        )
    if coarse.counts is not None:
        add(
            "What is predicted",
            lambda narrow: classes_figure(coarse, names, narrow=narrow),
            "A class that takes over from the others is the first sign of a collapse.",
            asked,
            _left_out_classes(coarse),
            _together(coarse, len(batches)),
        )
    if known_signals(fine, SIGNALS):
        add(
            "How sure, and how far from the source",
            lambda narrow: signals_figure(fine, SIGNALS, colors, narrow=narrow),
            "Classes in use: about how many classes the predictions of a batch are spread over.",
            asked,
            together,
        )
    return made


def _asked(batches: Sequence[Batch]) -> str:
    """A remark on how often the source predicted too, where it was not at every batch."""
    count = sum(bool(batch.get("source_class_counts")) for batch in batches)
    if not count:
        return "The source was not asked."
    return (
        ""
        if count == len(batches)
        else f"The source was asked at {_some(count, 'batch', 'batches')}."
    )


def _together(windows: Windows, batches: int) -> str:
    shown = len(windows.first)
    return f"{batches:,} batches in {shown} windows." if shown < batches else ""


def _left_out_classes(windows: Windows) -> str:
    shown = most_predicted(windows)
    if windows.counts is None or windows.classes <= MOST_AREAS:
        return ""
    share = 100 * windows.counts[:, shown].sum() / max(windows.counts.sum(), 1)
    return (
        f"The {len(shown)} most frequent of {windows.classes:,} classes; {share:.0f} % of the adapted "
        "predictions are among them."
    )


def _sample(row: Row, names: Mapping[int, str], image_of: ImageOf) -> dict[str, Any]:
    """An image that changed its class, as the page shows it."""
    label = row.get("label")
    return {
        "image": str(row.get("image", "")),
        "batch": row.get("batch"),
        "thumbnail": thumbnail(str(row.get("image", "")), image_of),
        "before": class_name(row["source_prediction"], names),
        "before_confidence": number_of(row, "source_confidence"),
        "now": class_name(row["prediction"], names),
        "now_confidence": number_of(row, "confidence"),
        "label": None if label is None else row.get("label_name") or class_name(label, names),
        "outcome": OUTCOME_WORDS[outcome_of(row)] if label is not None else "",
    }


def thumbnail(name: str, image_of: ImageOf) -> dict[str, Any] | None:
    """A small copy of an image as a data address, and whether its pixels are to be seen as such.

    None where there is no image, or it cannot be read any more.
    """
    try:
        image = image_of(name)
        picture = None if image is None else image.convert("RGB")
    except OSError:
        return None
    if picture is None:
        return None
    small = max(picture.size) <= SMALL_IMAGE
    if not small:
        picture.thumbnail((THUMBNAIL, THUMBNAIL))
    buffer = io.BytesIO()
    kind = "png" if small else "jpeg"
    picture.save(buffer, format=kind, **({} if small else {"quality": 82}))
    code = base64.b64encode(buffer.getvalue()).decode()
    return {"address": Markup(f"data:image/{kind};base64,{code}"), "pixelated": small}


def pairs_table(found: StreamRows, names: Mapping[int, str]) -> Layout:
    """The most frequent changes of class."""
    rows = [
        (
            TableEntry(class_name(before, names)),
            TableEntry(class_name(now, names)),
            TableEntry(f"{count:,}", value=count),
            TableEntry(f"{100 * count / found.changed.seen:.1f} %", value=count),
        )
        for (before, now), count in found.pairs.most_common(MOST_PAIRS_SHOWN)
    ]
    return Layout("", ("the source said", "adapted says", "images", "share"), tuple(rows), 2)


def bad_table(found: StreamRows) -> Layout:
    """The images that took no part, with the reason."""
    rows = []
    for row in found.bad:
        reason = f"{row['event'].replace('-', ' ')}: {_entry(row, 'reason')}".rstrip(": ")
        rows.append(tuple(map(TableEntry, (_entry(row, "image"), _entry(row, "batch"), reason))))
    return Layout("", ("image", "batch", "why"), tuple(rows), names=3)


def batches_table(batches: Sequence[Batch]) -> tuple[Layout, int]:
    """Batches where something happened or that are not healthy, the first of them, and how many there are."""
    rows: list[tuple[TableEntry, ...]] = []
    count = 0
    for batch in batches:
        verdict, events = str(batch.get("verdict") or "healthy"), happened(batch)
        if verdict == "healthy" and not events:
            continue
        count += 1
        if len(rows) < MOST_BATCHES_SHOWN:
            told = "; ".join(filter(None, (*events, _entry(batch, "reason"))))
            rows.append(tuple(map(TableEntry, (_entry(batch, "batch"), verdict, told))))
    return Layout("", ("batch", "verdict", "what happened"), tuple(rows), names=3), count


def _entry(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return "" if value is None else str(value)


def _setting(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(name: str) -> str:
    """A name on one line, that any font and any file can hold."""
    return " ".join(name.encode("utf-8", "replace").decode().split())
