"""`fenchel derive`: the label and the test-time objective of one's own loss."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from fenchel.cli import completion
from fenchel.cli.console import err, out, print_json
from fenchel.own_code import load_object

if TYPE_CHECKING:
    from torch import Tensor

    from fenchel.losses import Loss


def derive_loss(
    loss: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            autocompletion=completion.losses,
            help="A function of (logits, soft targets), as MODULE:NAME or FILE.py:NAME; or the spec of a "
            "loss of this library, such as poly:epsilon=6.",
        ),
    ],
    classes: Annotated[
        int | None, typer.Option(help="For a function made for one number of classes.", min=1)
    ] = None,
    logits: Annotated[
        str, typer.Option(help="Logits to show the label at, separated by commas.")
    ] = "",
    plot: Annotated[
        Path | None,
        typer.Option(help="Where the plot goes (png, svg or pdf).", show_default="NAME.png"),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON; no plot unless --plot.")
    ] = False,
) -> None:
    """Derive the conjugate label and the test-time objective of a training loss.

    [bold]Examples[/bold]

        fenchel derive my_losses.py:focal_loss

        fenchel derive my_package.losses:weighted_loss --classes 7 --plot objective.svg

        fenchel derive poly:epsilon=6 --logits 3,1,0
    """
    derived, title, findings = _resolve(loss, classes)
    h = _logits(logits, classes or findings.get("classes", 4))
    facts = _at(derived, h)
    if not json:
        _print(title, findings, facts)
    if plot is None and not json:
        plot = Path(f"{title.replace(':', '-').replace('=', '-').replace(',', '-')}.png")
    if plot is not None:
        from fenchel.report.objective import objective_figure
        from fenchel.report.style import save

        save(objective_figure(derived, title, h.shape[-1]), plot)
        err.print(f"plot: {plot}", highlight=False)
    if json:
        drawn = None if plot is None else str(plot)
        print_json({"loss": title, "findings": findings, **facts, "plot": drawn})


def _resolve(reference: str, classes: int | None) -> tuple[Loss, str, dict[str, Any]]:
    """The loss, its title and what was found: derived from a function, or one of the library's."""
    from fenchel.losses import LOSSES, Loss, derive, parse

    if reference.partition(":")[0] in LOSSES:
        return parse(reference), reference, {"solver": "closed form"}
    function = load_object(reference)
    if isinstance(function, Loss):
        return function, repr(function), {"solver": "closed form"}
    if not callable(function):
        raise TypeError(f"{reference} must be a function of (logits, targets); it is {function!r}.")
    derived = derive(function, classes=classes)
    return derived, derived.title, dataclasses.asdict(derived.findings())


def _logits(text: str, classes: int) -> Tensor:
    import torch

    if not text:
        return torch.linspace(2, -1, classes, dtype=torch.float64)[None]
    try:
        return torch.tensor([[float(value) for value in text.split(",")]], dtype=torch.float64)
    except ValueError:
        raise ValueError(f"--logits takes numbers separated by commas; got {text!r}.") from None


def _at(loss: Loss, h: Tensor) -> dict[str, Any]:
    """Label, objective and its gradient at the logits `h`, (1, C)."""
    import torch

    h = h.requires_grad_()
    objective = loss.conjugate(h)
    (gradient,) = torch.autograd.grad(objective.sum(), h)
    with torch.no_grad():
        label, softmax = loss.label(h)[0], h.softmax(-1)[0]
    return {
        "logits": h[0].tolist(),
        "softmax": softmax.tolist(),
        "label": label.tolist(),
        "objective": objective.item(),
        "gradient": gradient[0].tolist(),
    }


def _print(title: str, findings: dict[str, Any], facts: dict[str, Any]) -> None:
    out.print(f"[bold]{title}[/bold]", highlight=False)
    for name, value in findings.items():
        shown = f"{value:.1g}" if isinstance(value, float) else str(value)
        out.print(f"  {name.replace('_', ' '):<13} {shown}", highlight=False, markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = ("logits", "softmax", "label", "gradient")
    for column in columns:
        table.add_column(column, justify="right")
    rows = list(zip(*(facts[column] for column in columns), strict=True))
    for row in rows[:12]:
        table.add_row(*(f"{value:.4f}" for value in row))
    out.print(table)
    if len(rows) > 12:
        out.print(f"... and {len(rows) - 12} more classes", highlight=False)
    out.print(f"objective at these logits: {facts['objective']:.6g}", highlight=False)
