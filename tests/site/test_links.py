"""Links between files of the repository become links between pages, and code is left alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def led() -> Iterator[Callable[..., str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "website"))
        from site_links import led_inside  # type: ignore[import-not-found]

        yield led_inside
        sys.modules.pop("site_links")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](adapt-my-model.md#stop)", "[a](adapt-my-model.md#stop)"),
        ("[a](../methods.md)", "[a](../methods.md)"),
        ("[c](../../CONTRIBUTING.md)", "[c](../contributing.md)"),
        ("[z](../../zoo)", "[z](../zoo/index.md)"),
        ("[`x`](../../examples/mean_teacher.py)", "[`x`](../examples/mean_teacher.md)"),
        ("[n](../../notebooks/digits.ipynb)", "[n](../notebooks/digits.md)"),
        ("[results](../../results)", "results"),
        ("[web](https://a.org/b) [here](#top)", "[web](https://a.org/b) [here](#top)"),
        ("![p](../figures/a.svg)", "![p](../figures/a.svg)"),
        ("`m[0](../../LICENSE)`", "`m[0](../../LICENSE)`"),
        ("```python\nf[0](../../x)\n```", "```python\nf[0](../../x)\n```"),
        (r"\[95 %\] [r](../results.md)", r"\[95 %\] [r](../results.md)"),
    ],
)
def test_a_link_of_a_guide_leads_to_the_page_of_its_target(
    text: str, expected: str, led: Callable[..., str]
) -> None:
    assert led(text, origin="docs/guides/a.md", uri="guides/a.md") == expected


def test_a_file_that_is_shown_elsewhere_keeps_its_links(led: Callable[..., str]) -> None:
    text = "[docs/methods.md](docs/methods.md) [x](SECURITY.md)"
    shown = led(text, origin="CHANGELOG.md", uri="changelog.md")
    assert shown == "[docs/methods.md](methods.md) [x](security.md)"
