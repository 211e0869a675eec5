"""A notebook as a page: its text, its code, what the code printed and drew."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

PICTURE = "image/png"


def page(path: Path) -> dict[str, str | bytes]:
    """The page of a notebook and its pictures, by their addresses in docs/."""
    parts: list[str] = []
    pictures: dict[str, str | bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            else:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[f"notebooks/{name}"] = base64.b64decode(output["data"][PICTURE])
                parts.append(f"![{described(output)}]({name})")
    note = (
        f"This page is the notebook `notebooks/{path.name}`, run as it stands. Open it with Jupyter to "
        "change it and run it yourself."
    )
    title, _, rest = "\n\n".join(parts).partition("\n")
    return {f"notebooks/{path.stem}.md": f"{title}\n\n{note}\n{rest}\n", **pictures}


def described(output: dict[str, Any]) -> str:
    """What a picture shows, in words: the title of its figure."""
    return re.sub(r"[\[\]]", "", "".join(output["data"].get("text/plain", "a figure")))
