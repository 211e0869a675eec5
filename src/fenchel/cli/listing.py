"""`fenchel list`: everything that has a name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
from rich.table import Table

from fenchel.cli.completion import completer
from fenchel.cli.console import print_json, print_table
from fenchel.names import unknown

Row = tuple[str, str]


def _losses() -> Iterable[Row]:
    from fenchel.losses import LOSSES

    return ((_signature(name, cls), _first_line(cls)) for name, cls in LOSSES.items())


def _objectives() -> Iterable[Row]:
    from fenchel.objectives import OBJECTIVES

    return ((_signature(name, cls), _first_line(cls)) for name, cls in OBJECTIVES.items())


def _methods() -> Iterable[Row]:
    from fenchel.adapters import METHODS
    from fenchel.methods import STANDARD_METHODS

    names = dict.fromkeys(
        (*STANDARD_METHODS, *METHODS.everything())
    )  # each once, the paper's first
    return ((name, _with_options(METHODS[name])) for name in names)


def _models() -> Iterable[Row]:
    from fenchel.models import MODELS

    return ((name, _first_line(factory)) for name, factory in MODELS.items())


def _zoo() -> Iterable[Row]:
    from fenchel.models import read_metadata, zoo

    for name in zoo.names():
        metadata = read_metadata(zoo.path_of(name))
        accuracy = 100 * metadata.metrics.get("test_accuracy", float("nan"))
        about = f"{metadata.architecture} trained on {metadata.data} with {metadata.loss}"
        yield (f"zoo:{name}", f"{about}, {accuracy:.1f} % on its test images")


def _datasets() -> Iterable[Row]:
    from fenchel.data import DATASETS

    return ((name, entry.what) for name, entry in DATASETS.items())


def _corruptions() -> Iterable[Row]:
    from fenchel.data.corruptions import CORRUPTIONS, VALIDATION_CORRUPTIONS

    kinds = dict.fromkeys(VALIDATION_CORRUPTIONS, "validation")
    return ((name, kinds.get(name, "test")) for name in CORRUPTIONS)


def _executors() -> Iterable[Row]:
    from fenchel.bench.executors import EXECUTORS

    return ((name, _first_line(cls)) for name, cls in EXECUTORS.items())


KINDS: dict[str, Callable[[], Iterable[Row]]] = {
    "losses": _losses,
    "methods": _methods,
    "objectives": _objectives,
    "models": _models,
    "zoo": _zoo,
    "datasets": _datasets,
    "corruptions": _corruptions,
    "executors": _executors,
}

complete_kind = completer(lambda: KINDS)


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(autocompletion=complete_kind, help=f"One of: {', '.join(KINDS)}."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List losses, methods, objectives, models, trained networks, data sets, corruptions, executors.

    [bold]Examples[/bold]

        fenchel list

        fenchel list losses
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind of thing to list", kind, KINDS)
    found = {name: list(rows()) for name, rows in KINDS.items() if kind in (None, name)}
    if json:
        print_json(
            {
                name: [{"name": row[0], "about": row[1]} for row in rows]
                for name, rows in found.items()
            }
        )
        return
    for name, rows in found.items():
        table = Table(
            title=name, title_justify="left", title_style="bold", box=None, pad_edge=False
        )
        table.add_column("name", style="cyan", no_wrap=True)
        table.add_column("about")
        for row in rows:
            table.add_row(*row)
        print_table(table)
        print()


def _with_options(kind: Any) -> str:
    from fenchel.options import REQUIRED

    options = [
        f"{name}=" if default is REQUIRED else f"{name}={default}"
        for name, default in kind.options().items()
    ]
    summary: str = kind.summary()
    return summary + (f" Options: {', '.join(options)}." if options else "")


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
