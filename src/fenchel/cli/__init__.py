"""The command line: `fenchel VERB`, one file per verb."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from fenchel._version import __version__
from fenchel.cli import (
    adapt,
    bench,
    calibrate,
    data,
    demo,
    derive,
    doctor,
    listing,
    meta,
    models,
    report,
    reproduce,
    serve,
    train,
    tune,
)
from fenchel.cli.adapt_ranks import ended_at_once
from fenchel.cli.completion import whole_words
from fenchel.cli.console import EXIT_INTERRUPTED, EXIT_USER_MISTAKE, report_mistake
from fenchel.cli.verbs import make_all_verbs
from fenchel.performance import retain_freed_memory

app = typer.Typer(
    name="fenchel",
    help="Test-time adaptation derived from the training loss.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 some work failed, 2 a mistake in the call, "
    "4 done, but adaptation looks harmful, 130 interrupted.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(
            f"fenchel {__version__} (Python {platform.python_version()}, torch {_version_of('torch')})"
        )
        raise typer.Exit()


def _version_of(package: str) -> str:
    """What is installed, read from its metadata: nothing is imported."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


@app.callback()
def _options_of_the_program(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_show_version,
            help="Print the versions of fenchel, Python and torch, and leave.",
        ),
    ] = False,
) -> None:
    """Test-time adaptation derived from the training loss."""


app.command("demo")(demo.demo)
app.command("adapt")(adapt.adapt_images)
app.command("calibrate")(calibrate.calibrate)
app.command("serve")(serve.serve)
app.command("derive")(derive.derive_loss)
app.command("train")(train.train)
app.add_typer(meta.app, name="meta")
app.add_typer(bench.app, name="bench")
app.command("tune")(tune.tune)
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.command("list")(listing.list_names)
app.command("doctor")(doctor.doctor)
make_all_verbs(app)


def main() -> None:
    """Entry point: a user's mistake becomes one clear line; FENCHEL_DEBUG=1 shows the traceback."""
    retain_freed_memory()
    with ended_at_once():
        _run()


def _run() -> None:
    try:
        with whole_words():
            app(prog_name="fenchel")
    except KeyboardInterrupt:
        report_mistake("interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except (ValueError, TypeError, OSError, ImportError) as error:
        if os.environ.get("FENCHEL_DEBUG"):
            raise
        report_mistake(str(error))
        sys.exit(EXIT_USER_MISTAKE)
