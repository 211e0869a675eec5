"""Run the notebooks and keep what they print and draw: `python website/run_notebooks.py [NAME ...]`.

A cell tagged `parameters` holds the sizes of an experiment. The notebook's metadata say which values make it
small (`fenchel.small`); the tests run it with those.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
DOTS_PER_INCH = 110


def read(path: Path) -> dict[str, Any]:
    """A notebook as JSON has it."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def run(notebook: dict[str, Any], *, small: bool = False) -> dict[str, Any]:
    """Run the cells in their order and keep the outputs of each; the names that they leave behind."""
    module = ModuleType("notebook")
    with mock.patch.object(plt, "show"):
        count = 0
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                continue
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = _outputs_of("".join(cell["source"]), count, module.__dict__)
            if small and "parameters" in cell["metadata"].get("tags", ()):
                module.__dict__.update(notebook["metadata"]["fenchel"]["small"])
    return module.__dict__


def _outputs_of(source: str, count: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    plt.close("all")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, f"cell {count}", "exec"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    outputs += [_picture(plt.figure(number)) for number in plt.get_fignums()]
    plt.close("all")
    return outputs


def _picture(figure: Any) -> dict[str, Any]:
    """A figure as Jupyter keeps it; its title stands for it where it cannot be seen."""
    title = figure.get_suptitle() or figure.axes[0].get_title()
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    png = base64.b64encode(content.getvalue()).decode()
    data = {"image/png": png, "text/plain": [title]}
    return {"data": data, "metadata": {}, "output_type": "display_data"}


def main() -> None:
    """Run those that are named, or all, at full size, and write them back."""
    for name in sys.argv[1:] or sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")):
        path = NOTEBOOKS / f"{name}.ipynb"
        notebook = read(path)
        print(f"==> {path.name}", flush=True)
        run(notebook)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
