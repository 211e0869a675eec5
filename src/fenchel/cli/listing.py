"""`fenchel list`: everything that has a name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer
from rich.table import Table

from fenchel.cli.completion import completer
from fenchel.cli.console import print_json, print_table
from fenchel.names import unknown

Row = dict[str, Any]
"""What is listed of a thing: `name` and `about`, and further columns between them."""


def _losses() -> Iterable[Row]:
    from fenchel.losses import LOSSES

    return (_row(_signature(name, cls), _first_line(cls)) for name, cls in LOSSES.items())


def _objectives() -> Iterable[Row]:
    from fenchel.objectives import OBJECTIVES

    return (_row(_signature(name, cls), _first_line(cls)) for name, cls in OBJECTIVES.items())


def _methods() -> Iterable[Row]:
    from fenchel.adapters import METHODS
    from fenchel.methods import FIELD_METHODS, STANDARD_METHODS

    # each once, the paper's first
    names = dict.fromkeys((*STANDARD_METHODS, *FIELD_METHODS, *METHODS.everything()))
    return (_method(name, METHODS[name]) for name in names)


def _models() -> Iterable[Row]:
    from fenchel.models import MODELS

    return (_row(name, _first_line(factory)) for name, factory in MODELS.items())


def _zoo() -> Iterable[Row]:
    from fenchel.models import read_metadata, zoo

    for name in zoo.names():
        metadata = read_metadata(zoo.path_of(name))
        accuracy = 100 * metadata.metrics.get("test_accuracy", float("nan"))
        about = f"{metadata.architecture} trained on {metadata.data} with {metadata.loss}"
        yield _row(f"zoo:{name}", f"{about}, {accuracy:.1f} % on its test images")


def _datasets() -> Iterable[Row]:
    from fenchel.data import DATASETS

    return (_row(name, entry.what) for name, entry in DATASETS.items())


def _corruptions() -> Iterable[Row]:
    from fenchel.data.corruptions import CORRUPTIONS, VALIDATION_CORRUPTIONS

    kinds = dict.fromkeys(VALIDATION_CORRUPTIONS, "validation")
    return (_row(name, kinds.get(name, "test")) for name in CORRUPTIONS)


def _executors() -> Iterable[Row]:
    from fenchel.bench.executors import EXECUTORS

    return (_row(name, _first_line(cls)) for name, cls in EXECUTORS.items())


def _checkpoints(pattern: str | None = None) -> Iterable[Row]:
    from fenchel.models.catalogue import matching, rules

    found = rules() if pattern is None else matching(pattern)
    return (
        {
            "name": known.name,
            "loss": known.loss,
            "confidence": known.confidence if known.is_loss else None,
            "evidence": known.evidence,
        }
        for known in found
    )


KINDS: dict[str, Callable[[], Iterable[Row]]] = {
    "losses": _losses,
    "methods": _methods,
    "objectives": _objectives,
    "models": _models,
    "zoo": _zoo,
    "datasets": _datasets,
    "corruptions": _corruptions,
    "executors": _executors,
    "checkpoints": _checkpoints,
}
ALONE = ("checkpoints",)
"""What is listed only where it is asked for: there is much of it."""

complete_kind = completer(lambda: KINDS)


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(autocompletion=complete_kind, help=f"One of: {', '.join(KINDS)}."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="[GLOB]", help="Only names that match, as in: checkpoints 'timm/resnet50.*'."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List losses, methods, objectives, models, trained networks, data sets, corruptions, executors.

    `checkpoints` lists which loss trained the public networks of timm, torchvision and transformers.

    [bold]Examples[/bold]

        fenchel list

        fenchel list losses

        fenchel list checkpoints 'timm/deit*'
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind of thing to list", kind, KINDS)
    wanted = [kind] if kind is not None else [name for name in KINDS if name not in ALONE]
    found = {name: list(_matching(name, pattern)) for name in wanted}
    if json:
        print_json(found)
        return
    for name, rows in found.items():
        table = Table(
            title=name, title_justify="left", title_style="bold", box=None, pad_edge=False
        )
        columns = [column for column in rows[0] if column not in _JSON_ALONE] if rows else []
        for column in columns:
            plain = column == "name"
            heading = column.replace("_", " ")
            table.add_column(heading, style="cyan" if plain else None, no_wrap=plain)
        for row in rows:
            table.add_row(*(_cell(row[column]) for column in columns))
        print_table(table)
        print()


def _matching(kind: str, pattern: str | None) -> Iterable[Row]:
    if kind == "checkpoints":
        return _checkpoints(pattern)
    rows = KINDS[kind]()
    return rows if pattern is None else (r for r in rows if fnmatchcase(r["name"], pattern))


def _row(name: str, about: str) -> Row:
    return {"name": name, "about": about}


_JSON_ALONE = ("paper", "published")
"""What is listed of methods in JSON only: on a terminal the paper ends the text."""


def _method(name: str, kind: Any) -> Row:
    """A method with what it costs and needs; a plugin's may not say so."""
    cost = kind.cost
    return {
        "name": name,
        "forward": cost and cost.forward,
        "backward": cost and cost.backward,
        "memory": cost and cost.memory,
        "needs_batch": cost and cost.needs_batch,
        "needs_source_data": cost and cost.needs_source_data,
        "about": _with_options(kind),
        "paper": kind.paper or None,
        "published": sorted(kind.published),
    }


def _cell(value: Any) -> str:
    if value is None:
        return "?"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _with_options(kind: Any) -> str:
    from fenchel.options import REQUIRED

    options = [
        f"{name}=" if default is REQUIRED else f"{name}={default}"
        for name, default in kind.options().items()
    ]
    summary: str = kind.summary()
    parts = [summary, f"Options: {', '.join(options)}." if options else "", kind.paper]
    return " ".join(filter(None, parts))


def _signature(name: str, cls: type) -> str:
    fields: tuple[Any, ...] = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    given = [
        f"{field.name}={field.default}"
        for field in fields
        if field.default is not dataclasses.MISSING and field.name != "temperature"
    ]
    return name + (":" + ",".join(given) if given else "")


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]
