"""What the site adds to docs/: generated pages, and links that leave docs/ led to where they are shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOT_SEARCHED = ("results.md", "changelog.md")
"""Long pages of numbers and of history: every page would load their words for its search."""
sys.path[:0] = [str(ROOT / "website"), str(ROOT / "src")]

from generated_pages import LINKED_FROM, generated  # noqa: E402
from site_links import led_inside  # noqa: E402


def on_config(config: Any) -> Any:
    """Write the generated pages of a folder in the place of `folder/*` in the navigation."""
    config.nav = expanded(config.nav, [uri for uri in generated() if uri.endswith(".md")])
    return config


def expanded(entry: Any, pages: list[str]) -> Any:
    """A part of the navigation with every `folder/*` written out, the page that introduces it first."""
    if isinstance(entry, list):
        return [expanded(each, pages) for each in entry]
    if isinstance(entry, dict):
        return {title: expanded(each, pages) for title, each in entry.items()}
    if isinstance(entry, str) and entry.endswith("/*"):
        inside = [uri for uri in pages if uri.startswith(entry[:-1])]
        return sorted(inside, key=lambda uri: (not uri.endswith("/index.md"), uri))
    return entry


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made of the repository's other files."""
    from mkdocs.structure.files import File

    for uri, content in generated().items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to where their targets are on the site, and leave some pages out of the search."""
    uri = page.file.src_uri
    if uri in NOT_SEARCHED:
        page.meta["search"] = {"exclude": True}
    return led_inside(markdown, origin=LINKED_FROM.get(uri, f"docs/{uri}"), uri=uri)
