"""Every page of the site: no dead link, nothing from outside, light, readable on a phone and in the dark."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

CHECKS = (Path(__file__).parent / "page_checks.js").read_text(encoding="utf-8")
HEAVIEST = 1_000_000
"""Bytes that a page may ask for, without its pictures."""
LOOKED_AT = (
    "index.html",
    "guides/when-not-to-adapt.html",
    "explanation/conjugate.html",
    "explanation/comparison.html",
    "reference/losses.html",
    "notebooks/digits.html",
    "zoo/cifar10-resnet26-poly.html",
)
"""One page of every kind. `make pages` looks at all of them, which takes a minute or two."""
PATIENCE = 120_000
"""Milliseconds to wait for the browser on a machine that has other things to do."""
NO_LINKS = ("http", "https", "mailto", "data", "javascript")


class _Read(HTMLParser):
    """What a page refers to, the places in it that can be referred to, its headings and its pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.places: list[str] = []
        self.levels: list[int] = []
        self.without_words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.places += [value for name in ("id", "name") if (value := values.get(name))]
        for name in ("href", "src"):
            if target := values.get(name):
                self.links.append((tag, target))
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "img" and not (values.get("alt") or "").strip():
            self.without_words.append(str(values.get("src")))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Read]:
    found = {path: _Read(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found.pop(site / "404.html", None)  # its links are absolute: it is shown at any address
    return found


def test_the_site_has_every_part(pages: dict[Path, _Read], site: Path) -> None:
    names = {path.relative_to(site).as_posix() for path in pages}
    assert {
        "index.html",
        "start.html",
        "guides/when-not-to-adapt.html",
        "explanation/conjugate.html",
        "reference/command-line.html",
        "notebooks/hostile-stream.html",
        "zoo/cifar10-resnet26-poly.html",
        "changelog.html",
    } <= names


def test_no_link_within_the_site_is_dead(pages: dict[Path, _Read], site: Path) -> None:
    dead = []
    for path, page in pages.items():
        for _, target in page.links:
            parts = urlsplit(target)
            if parts.scheme in NO_LINKS or parts.netloc:
                continue
            wanted = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            wanted = wanted / "index.html" if wanted.is_dir() else wanted
            known = pages.get(wanted)
            anchor = unquote(parts.fragment)
            if not wanted.is_file() or (anchor and known and anchor not in known.places):
                dead.append(f"{path.relative_to(site)}: {target}")
    assert dead == []


def test_nothing_is_taken_from_outside(pages: dict[Path, _Read], site: Path) -> None:
    """Links may lead to other sites; what a page is made of may not."""
    for path, page in pages.items():
        for tag, target in page.links:
            if tag != "a":
                assert not urlsplit(target).netloc, f"{path.relative_to(site)}: {target}"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text(encoding="utf-8"))


def test_headings_are_in_order_and_pictures_have_words(
    pages: dict[Path, _Read], site: Path
) -> None:
    for path, page in pages.items():
        name, levels = path.relative_to(site).as_posix(), page.levels
        assert levels.count(1) == 1, f"{name} has {levels.count(1)} titles"
        assert all(low <= high + 1 for high, low in pairwise(levels)), f"{name}: {levels}"
        assert page.without_words == [], name


def test_every_page_is_light(pages: dict[Path, _Read], site: Path) -> None:
    """Itself, its styles and scripts, and what the search loads; pictures are not counted."""
    search = [site / "search" / "search_index.json", *site.glob("assets/javascripts/workers/*.js")]
    for path, page in pages.items():
        files = {
            (path.parent / target).resolve()
            for tag, target in page.links
            if tag in ("link", "script")
        }
        parts = [path, *search, *(file for file in files if file.suffix in (".css", ".js"))]
        weight = sum(file.stat().st_size for file in parts)
        assert weight < HEAVIEST, f"{path.relative_to(site)} weighs {weight:,} bytes"


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    opened.set_default_timeout(PATIENCE)
    yield opened
    opened.close()


def test_pages_are_sound_in_light_and_dark_and_on_a_phone(
    pages: dict[Path, _Read], site: Path, address: str, window: Any
) -> None:
    """One visit per page: its console, what it asks for, and how it looks in each of three ways."""
    faults: list[str] = []
    asked: list[str] = []
    window.on("console", lambda message: faults.append(f"{here}: console says {message.text}"))
    window.on("pageerror", lambda error: faults.append(f"{here}: {error}"))
    window.on("request", lambda request: asked.append(request.url))
    # Every page makes the index of its search anew, which takes longer than all the rest; its own test does.
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    little = {**index, "docs": index["docs"][:1]}
    window.route("**/search_index.json", lambda route: route.fulfill(json=little))
    names = [path.relative_to(site).as_posix() for path in pages]
    for here in names if os.environ.get("FENCHEL_EVERY_PAGE") else LOOKED_AT:
        window.goto(f"{address}/{here}")
        for width, scheme in ((1280, "light"), (1280, "dark"), (390, "dark")):
            window.set_viewport_size({"width": width, "height": 900})
            window.emulate_media(color_scheme=scheme)
            window.wait_for_function("document.getAnimations().length === 0")
            found = window.evaluate(CHECKS)
            faults += [f"{here} ({width}, {scheme}): {fault}" for fault in found]
    window.unroute("**/search_index.json")
    faults += [f"asks for {url}" for url in asked if not url.startswith((address, "data:"))]
    assert not faults, "\n".join(faults)


def test_search_finds_a_page(address: str, browser: Any) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    try:
        page.goto(f"{address}/index.html")
        page.focus(".md-search__input")
        ready = "!document.querySelector('.md-search-result__meta').textContent.includes('Initializing')"
        page.wait_for_function(ready)
        page.keyboard.type("label smoothing")
        page.wait_for_selector(".md-search-result__item a")
        results = page.eval_on_selector_all(
            ".md-search-result__item a", "all => all.map(a => a.href)"
        )
    finally:
        page.close()
    assert any("losses" in link or "conjugate" in link for link in results)


def test_the_index_of_the_search_has_every_guide(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    guides = {path.relative_to(site).as_posix() for path in (site / "guides").glob("*.html")}
    assert guides <= places
