"""`fenchel models`: trained networks that others publish, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fenchel.cli import completion
from fenchel.cli.console import err, out, print_json, print_table

if TYPE_CHECKING:
    from fenchel.models.pretrained.registry import PretrainedEntry

app = typer.Typer(
    help="Trained networks that others publish: list, show and fetch.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
HEADINGS = ("name", "what", "trained with", "published error (%)", "here")


@app.command("list")
def list_(json: AsJson = False) -> None:
    """Every network: what it is, the loss behind it, and whether it is here.

    [bold]Example[/bold]

        fenchel models list
    """
    from fenchel.models import PRETRAINED

    if json:
        print_json([_facts(name, entry) for name, entry in sorted(PRETRAINED.items())])
        return
    shown = Table(*HEADINGS, box=None, header_style="bold")
    for name, entry in sorted(PRETRAINED.items()):
        here = Text("yes", "green") if _facts(name, entry)["present"] else Text("no")
        shown.add_row(name, entry.what, entry.loss, f"{entry.error:g}", here)
    print_table(shown)
    note = "Get one with 'fenchel models fetch NAME', then use it as pretrained:NAME."
    out.print(Text(f"\n{note}", "dim"), soft_wrap=True)


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(autocompletion=completion.pretrained, help="See 'models list'.")
    ],
    json: AsJson = False,
) -> None:
    """What is known of a network: architecture, loss with its evidence, preprocessing, source, terms.

    [bold]Example[/bold]

        fenchel models show resnet50
    """
    from fenchel.models import PRETRAINED

    facts = _facts(name, PRETRAINED[name]) | _details(PRETRAINED[name])
    if json:
        print_json(facts)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for fact, value in facts.items():
        told = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        table.add_row(fact.replace("_", " "), Text(told))
    print_table(table)


@app.command()
def fetch(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", autocompletion=completion.pretrained, help="See 'models list'."
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Even if it is here already.")] = False,
    json: AsJson = False,
) -> None:
    """Download networks, check their weights, and keep them in the cache as checkpoints.

    [bold]Example[/bold]

        fenchel models fetch mobilenet-v2 resnet50
    """
    from fenchel.models import PRETRAINED
    from fenchel.models.pretrained.fetch import fetch as fetch_one

    for name in names:
        PRETRAINED[name]  # an unknown name stops the call before anything is downloaded

    def say(text: str) -> None:
        err.print(Text(text), soft_wrap=True)

    files = [fetch_one(name, force=force, say=say) for name in names]
    if json:
        found = zip(names, files, strict=True)
        print_json([{"name": name, "file": str(file)} for name, file in found])


def _facts(name: str, entry: PretrainedEntry) -> dict[str, object]:
    from fenchel.models.pretrained.registry import SCHEME, file_of

    return {
        "name": f"{SCHEME}:{name}",
        "what": entry.what,
        "trained_with": entry.loss,
        "evidence": entry.evidence,
        "published_error": entry.error,
        "present": file_of(name).is_file(),
    }


def _details(entry: PretrainedEntry) -> dict[str, object]:
    """What takes building the network, without its weights."""
    import torch

    from fenchel.models import build
    from fenchel.models.preprocessing import describe

    with torch.random.fork_rng(devices=[]):
        network = build(entry.architecture, **entry.arguments)
    mirrors = ", ".join(map(str, entry.recipe.mirrors))
    return {
        "architecture": entry.architecture,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "preprocessing": dict(describe(network)),
        "source": entry.recipe.source,
        "mirrors": mirrors,
        "licence": entry.licence,
        "sha256_of_weights": entry.digest,
    }
