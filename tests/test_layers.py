"""Imports point one way: parsed from the source, an upward edge or a cycle fails."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fenchel

SOURCE = Path(fenchel.__file__).parent

# From the bottom up; a layer may import those below it. Layers on one line know nothing of each other.
LAYERS = (
    ("_version", "cluster", "facts", "files", "performance", "plugins", "progress", "wnids"),
    ("names",),
    ("options", "own_code", "fetching"),
    ("losses", "data", "models"),
    ("objectives",),
    ("adapters",),
    ("methods",),
    ("api", "streams"),
    ("calibration",),
    ("predict",),
    ("train",),
    ("bench",),
    ("report",),
    ("paper", "serve"),
    ("demo",),
    ("cli",),
    ("__main__",),
)
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
# What adapts sees tensors alone: no data set, no network of ours.
WITHOUT_DATA_AND_MODELS = ("objectives", "adapters", "methods")
# The package itself gathers the public names of these.
PUBLIC = (
    "_version",
    "plugins",
    "names",
    "losses",
    "objectives",
    "adapters",
    "api",
    "streams",
    "calibration",
)


def modules(root: Path) -> dict[str, Path]:
    """Every module below `root`, by its dotted name within the package; the package itself is ''."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> list[tuple[str, int]]:
    """The modules of the package that a file imports anywhere in it, with the line."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    targets = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                inside = ["fenchel", *package.split(".")] if package else ["fenchel"]
                inside = inside[: len(inside) - node.level + 1]
                base = ".".join([*inside, base] if base else inside)
            dotted = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in dotted:
            if target == "fenchel" or target.startswith("fenchel."):
                targets.append(
                    (_module(target.removeprefix("fenchel").lstrip("."), known), node.lineno)
                )
    return targets


def _module(target: str, known: dict[str, Path]) -> str:
    """`data.base.Dataset` names something within the module `data.base`."""
    while target and target not in known:
        target = target.rpartition(".")[0]
    return target


def allowed(importer: str, imported: str) -> bool:
    """Whether a top-level part of the package may import another."""
    if importer == "":
        return imported in PUBLIC
    if imported == "":
        return importer in ("demo", "cli", "__main__")
    if importer in WITHOUT_DATA_AND_MODELS and imported in ("data", "models"):
        return False
    return importer == imported or HEIGHT[importer] > HEIGHT[imported]


def upward_edges(root: Path) -> list[str]:
    """Every import that points up or sideways, and every part that has no place yet."""
    known = modules(root)
    faults = []
    for name, path in known.items():
        importer = name.partition(".")[0]
        if importer and importer not in HEIGHT:
            faults.append(f"{path}: give {importer!r} a place in LAYERS")
            continue
        for target, line in imports(name, path, known):
            imported = target.partition(".")[0]
            if imported in ("", *HEIGHT) and not allowed(importer, imported):
                faults.append(
                    f"{path}:{line}: {importer or 'fenchel'} imports {imported or 'fenchel'}"
                )
    return faults


def cycle(root: Path) -> list[str]:
    """Modules that import one another in a ring, as a path that ends where it starts; [] if none."""
    known = modules(root)
    edges = {
        name: {target for target, _ in imports(name, path, known)} for name, path in known.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name in done:
            return []
        for target in sorted(edges[name] - {name}):
            if ring := visit(target, [*trail, name]):
                return ring
        done.add(name)
        return []

    return next((ring for name in sorted(edges) if (ring := visit(name, []))), [])


def test_no_import_points_up():
    assert upward_edges(SOURCE) == []


def test_no_imports_form_a_ring():
    assert cycle(SOURCE) == []


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("losses/base.py", "from fenchel.objectives import Entropy"),
        ("losses/base.py", "import fenchel.data.base"),
        ("data/base.py", "from fenchel import models"),
        ("models/base.py", "def load():\n    from fenchel.losses.base import parse"),
        ("adapters/step.py", "from ..api import adapt"),
        ("adapters/step.py", "from fenchel.models import load"),
        ("adapters/__init__.py", "from .. import train"),
        ("train/run.py", "from fenchel.bench import plan"),
        ("report/page.py", "from typing import Any\n\nfrom fenchel.cli import main"),
        ("api.py", "import fenchel"),
        ("progress.py", "from fenchel.names import unknown"),
        ("__init__.py", "from fenchel.cli import main"),
        ("brand_new.py", "import torch"),
    ],
)
def test_the_checker_catches_a_planted_upward_edge(tmp_path, file, text):
    packages = ("losses", "objectives", "adapters", "data", "models", "train", "bench", "report")
    innocent = {f"{name}/__init__.py": "" for name in (*packages, "cli")}
    innocent |= {"__init__.py": "", "names.py": "", "progress.py": "", "api.py": ""}
    innocent |= {"losses/base.py": "", "data/base.py": ""}
    root = plant(tmp_path, innocent)
    assert upward_edges(root) == []
    plant(root, {file: text})
    (fault,) = upward_edges(root)
    assert Path(file).name in fault


def test_the_checker_lets_imports_point_down(tmp_path):
    files = {
        "__init__.py": "from fenchel.api import adapt",
        "names.py": "import torch",
        "losses/__init__.py": "from .base import Loss",
        "losses/base.py": "from fenchel.names import unknown",
        "models/__init__.py": "from ..names import unknown",
        "api.py": "from fenchel import losses, models",
        "cli/__init__.py": "import fenchel",
    }
    root = plant(tmp_path, files)
    assert upward_edges(root) == []
    assert cycle(root) == []


@pytest.mark.parametrize(
    "files",
    [
        {"data/a.py": "from fenchel.data import b", "data/b.py": "from fenchel.data.a import x"},
        {
            "data/a.py": "from .b import x",
            "data/b.py": "from . import c",
            "data/c.py": "from .a import x",
        },
        {"data/__init__.py": "from fenchel.data.a import x", "data/a.py": "import fenchel.data"},
    ],
    ids=["pair", "ring", "package"],
)
def test_the_checker_catches_a_planted_ring(tmp_path, files):
    root = plant(tmp_path, {"__init__.py": "", "data/__init__.py": ""} | files)
    ring = cycle(root)
    assert len(ring) >= 3
    assert ring[0] == ring[-1]
