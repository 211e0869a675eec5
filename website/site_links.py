"""Links between files of the repository, as links between pages of the site."""

from __future__ import annotations

import posixpath
import re

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def page_of(path: str) -> str | None:
    """The page that shows a file of the repository, as its address in docs/; None if no page does."""
    special = {
        "CHANGELOG.md": "changelog.md",
        "CONTRIBUTING.md": "contributing.md",
        "README.md": "index.md",
        "SECURITY.md": "security.md",
        "docs": "index.md",
        "zoo": "zoo/index.md",
        "zoo/README.md": "zoo/index.md",
    }
    if path in special:
        return special[path]
    folder, _, name = path.partition("/")
    if folder == "docs":
        return name
    if folder == "zoo" and name.endswith(".md"):
        return path
    if folder == "examples" and name.endswith(".py"):
        return path.removesuffix(".py") + ".md"
    if folder == "notebooks" and name.endswith(".ipynb"):
        return path.removesuffix(".ipynb") + ".md"
    if folder == "notebooks" and name.endswith(".png"):
        return path  # the pictures of the notebooks' pages are made beside them
    return None


def led_inside(markdown: str, *, origin: str, uri: str) -> str:
    """The text of a file of the repository (`origin`) as a page of the site (`uri`).

    A link to a file that has a page leads there. What is in the repository alone keeps its text, without a
    link. Addresses on the web and within the page stay.
    """

    def led(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        path, mark, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return link[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
        page = page_of(wanted)
        if page is None:
            return text
        relative = posixpath.relpath(page, posixpath.dirname(uri) or ".")
        return f"{picture}[{text}]({relative}{mark}{anchor})"

    kept: list[str] = []

    def set_aside(code: re.Match[str]) -> str:
        kept.append(code[0])
        return f"\0{len(kept) - 1}\0"

    text = LINK.sub(led, CODE.sub(set_aside, markdown))  # what looks like a link in code is none
    return re.sub("\0(\\d+)\0", lambda place: kept[int(place[1])], text)
