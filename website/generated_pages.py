"""Pages of the site that are no files of docs/: made of other files of the repository, or of the program."""

from __future__ import annotations

import ast
from pathlib import Path

import command_reference
import notebook_pages

ROOT = Path(__file__).parents[1]

ORIGINS = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "zoo/index.md": "zoo/README.md",
    **{f"zoo/{card.stem}.md": f"zoo/{card.name}" for card in ROOT.glob("zoo/[!R]*.md")},
}
"""Pages that are shown as they stand, and the file each of them is."""

LINKED_FROM = {
    **ORIGINS,
    **{
        f"notebooks/{path.stem}.md": f"notebooks/{path.name}"
        for path in ROOT.glob("notebooks/*.ipynb")
    },
}
"""The files of the repository from which the links of generated pages start."""


def generated() -> dict[str, str | bytes]:
    """Every generated page by its address in docs/, and the pictures on them."""
    pages: dict[str, str | bytes] = {
        uri: (ROOT / path).read_text(encoding="utf-8") for uri, path in ORIGINS.items()
    }
    pages["reference/command-line.md"] = command_reference.page()
    for path in sorted(ROOT.glob("examples/*.py")):
        pages[f"examples/{path.stem}.md"] = _example(path)
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        pages |= notebook_pages.page(path)
    return pages


def _example(path: Path) -> str:
    """A script, below what it says about itself."""
    source = path.read_text(encoding="utf-8")
    about = ast.get_docstring(ast.parse(source)) or ""
    first = about.splitlines()[0]
    return (
        f"# {path.stem.replace('_', ' ').capitalize()}\n\n{first}\n\n"
        f"The file is `examples/{path.name}`; run it as it is.\n\n```python\n{source}```\n"
    )
