"""`fenchel doctor`: what decides the speed here, and what to do about it."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from fenchel.cli.console import out, print_json


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine this machine: devices, threads, memory format, allocator, with advice.

    [bold]Example[/bold]

        fenchel doctor
    """
    from fenchel import __version__
    from fenchel.performance import examine

    found = examine()
    if json:
        print_json({"fenchel": __version__, "findings": [dataclasses.asdict(f) for f in found]})
        return
    out.print(f"fenchel {__version__}", highlight=False)
    for finding in found:
        out.print(f"[bold]{finding.topic}[/bold]: {finding.fact}", highlight=False)
        if finding.advice:
            out.print(f"  {finding.advice}", highlight=False)
