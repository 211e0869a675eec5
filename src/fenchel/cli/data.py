"""`fenchel data`: list, fetch, verify, make and show data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fenchel.cli import completion
from fenchel.cli.console import EXIT_FAILURES, err, out, print_json, print_table

if TYPE_CHECKING:
    from fenchel.data import Dataset, DatasetEntry

app = typer.Typer(
    help="Data sets: list, fetch, verify, make and show.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Root = Annotated[
    Path | None,
    typer.Option("--root", help="Folder of the data set; by default its place in the cache."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Corruptions = Annotated[
    list[str] | None,
    typer.Option(
        "--corruption",
        "-c",
        autocompletion=completion.corruptions,
        help="A corruption; repeat for several. Default: all.",
    ),
]
Severities = Annotated[
    list[int] | None,
    typer.Option("--severity", "-s", help="1 to 5; repeat for several.", min=1, max=5),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the noise.")]
Textures = Annotated[
    Path | None,
    typer.Option("--textures", help="Folder of the original frost textures."),
]


@app.command("list")
def list_(json: AsJson = False) -> None:
    """Every data set: what it is, where it comes from, and whether it is here.

    [bold]Example[/bold]

        fenchel data list
    """
    from fenchel.data import DATASETS, home
    from fenchel.data.home import dataset_folder

    if json:
        print_json([_facts(name, entry) for name, entry in sorted(DATASETS.items())])
        return
    shown = Table("name", "what", "from", "here", "get", box=None, header_style="bold")
    for name, entry in sorted(DATASETS.items()):
        here = Text("yes", "green") if entry.is_present(dataset_folder(name)) else Text("no")
        get = "fetch" if entry.recipe else entry.by_hand
        shown.add_row(name, entry.what, entry.source, here, Text(get))
    print_table(shown)
    note = "'fetch' stands for: fenchel data fetch NAME. The cache is"
    _say(Text(f"\n{note} {home()} (set FENCHEL_HOME to move it).", "dim"))


def _say(text: str | Text) -> None:
    """One line, never wrapped, and never taken for markup: paths may hold brackets."""
    out.print(text if isinstance(text, Text) else Text(text), soft_wrap=True)


def _facts(name: str, entry: DatasetEntry) -> dict[str, object]:
    from fenchel.data.home import dataset_folder

    return {
        "name": name,
        "what": entry.what,
        "splits": list(entry.splits),
        "options": dict(entry.options),
        "source": entry.source,
        "present": entry.is_present(dataset_folder(name)),
        "get": f"fenchel data fetch {name}" if entry.recipe else entry.by_hand,
        "folder": str(dataset_folder(name)),
    }


@app.command()
def fetch(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            autocompletion=completion.fetchable_datasets,
            help="See 'data list'.",
        ),
    ],
    root: Root = None,
    force: Annotated[bool, typer.Option("--force", help="Even if it is here already.")] = False,
    json: AsJson = False,
) -> None:
    """Download data sets, check their md5 sums, and unpack them into the cache.

    [bold]Example[/bold]

        fenchel data fetch cifar10 svhn
    """
    from fenchel.data import DATASETS
    from fenchel.data.fetching.fetch import fetch as fetch_one

    for name in names:
        DATASETS[name]  # an unknown name stops the call before anything is downloaded

    def say(text: str) -> None:
        err.print(Text(text), soft_wrap=True)

    folders = [fetch_one(name, root, force=force, say=say) for name in names]
    if json:
        found = zip(names, folders, strict=True)
        print_json([{"name": name, "folder": str(folder)} for name, folder in found])


@app.command()
def verify(
    path: Annotated[
        Path,
        typer.Argument(
            autocompletion=completion.dataset_names,
            help="A file, a folder, or the name of a data set.",
        ),
    ],
    checksums: Annotated[
        bool,
        typer.Option(help="Compare md5 sums; without, only check that the files can be read."),
    ] = True,
    json: AsJson = False,
) -> None:
    """Check files against their published md5 sums, or at least that their readers accept them.

    [bold]Examples[/bold]

        fenchel data verify cifar10

        fenchel data verify downloads/CIFAR-10-C --no-checksums
    """
    from fenchel.data import DATASETS
    from fenchel.data.fetching.verify import verify as findings_of
    from fenchel.data.home import dataset_folder

    if not path.exists() and str(path) in DATASETS:
        path = dataset_folder(str(path))
    colours = {"published": "green", "made here": "green", "readable": "yellow", "bad": "bold red"}
    findings = []
    for finding in findings_of(path, checksums=checksums):
        findings.append(finding)
        if not json and finding.status != "unknown":
            label = (f"{finding.status:>9} ", colours[finding.status])
            _say(Text.assemble(label, f"{finding.path} {finding.detail}"))
    if json:
        print_json(
            [{"path": str(f.path), "status": f.status, "detail": f.detail} for f in findings]
        )
    known = [finding for finding in findings if finding.status != "unknown"]
    if not known:
        raise ValueError(f"{path} holds no file of a kind that data sets consist of.")
    bad = sum(finding.status == "bad" for finding in known)
    if not json:
        _say(f"{len(known)} files checked, {bad} bad")
    if bad:
        raise typer.Exit(EXIT_FAILURES)


@app.command()
def make(
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.made_datasets, help="cifar10-c, cifar100-c or imagenet-c."
        ),
    ],
    severity: Severities = None,
    corruption: Corruptions = None,
    images: Annotated[
        int | None,
        typer.Option(
            "--images",
            "-n",
            min=1,
            help="Of imagenet-c: how many clean images, as many of each class as of any other.",
        ),
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where; by default the cache.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder of the clean data set.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-w", help="Processes; by default one per core.", min=1),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", help="Images at a time; no effect on the bytes.", min=1),
    ] = None,
    seed: Seed = 0,
    textures: Textures = None,
    json: AsJson = False,
) -> None:
    """Make a corrupted data set from the clean one, in the layout of the public download.

    [bold]Examples[/bold]

        fenchel data make cifar10-c

        fenchel data make cifar10-c --severity 5 --corruption fog --workers 2

        fenchel data make imagenet-c --severity 5 --images 1000
    """
    from fenchel.data.corruptions import SEVERITIES
    from fenchel.data.make import make as make_files

    folder = make_files(
        name,
        out=out_folder,
        root=root,
        corruptions=corruption,
        severities=severity or SEVERITIES,
        images=images,
        seed=seed,
        textures=textures,
        workers=workers,
        batch_size=batch_size,
        say=lambda text: err.print(Text(text), soft_wrap=True),
    )
    if json:
        files = sorted(map(str, [*folder.glob("*.npy"), *folder.glob("*/[1-5]")]))
        print_json({"name": name, "folder": str(folder), "files": files})
    else:
        _say(f"{name} is ready in {folder}")


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.datasets, help="A data set, or name:option=value,..."
        ),
    ],
    corruption: Corruptions = None,
    severity: Severities = None,
    out_file: Annotated[Path, typer.Option("--out", "-o", help="The picture to write.")] = Path(
        "grid.png"
    ),
    clean: Annotated[
        bool, typer.Option("--clean", help="The images as they are, one row per class.")
    ] = False,
    count: Annotated[int, typer.Option("--count", "-n", help="Images per row.", min=1, max=64)] = 6,
    split: Annotated[str | None, typer.Option("--split", help="test, train, ...")] = None,
    root: Root = None,
    seed: Seed = 0,
    textures: Textures = None,
    json: AsJson = False,
) -> None:
    """Draw a contact sheet: by default every corruption at severity 5 on the same images.

    [bold]Examples[/bold]

        fenchel data show cifar10 --corruption fog --out fog.png

        fenchel data show sklearn-digits --clean
    """
    from fenchel.data import DATASETS, corrupted, load, sheet
    from fenchel.names import parse_spec

    options = DATASETS[parse_spec(name)[0]].options
    dataset = None if "corruption" in options else load(name, split, root)
    noise: dict[str, Any] = {"seed": seed, "textures": textures}

    def shifted(corruption: str, severity: int) -> Dataset:
        if dataset is not None:
            return corrupted(dataset, corruption, severity, **noise)
        known = {option: value for option, value in noise.items() if option in options}
        return load(name, split, root, corruption=corruption, severity=severity, **known)

    if clean:
        if dataset is None:
            raise ValueError(f"{name} holds corrupted images alone. Leave --clean away.")
        rows, subtitle = sheet.class_rows(dataset, count=count), dataset.split
    else:
        corruptions, severities = corruption or [], severity or []
        rows = sheet.corruption_rows(
            shifted, dataset, corruptions=corruptions, severities=severities, count=count
        )
        subtitle = _subtitle(corruptions, severities)
    sheet.save(sheet.draw(rows, parse_spec(name)[0], subtitle), out_file)
    if json:
        print_json({"name": name, "shows": subtitle, "picture": str(out_file)})
    else:
        _say(f"drawn: {out_file}")


def _subtitle(corruptions: list[str], severities: list[int]) -> str:
    which = ", ".join(corruptions).replace("_", " ") or "every corruption"
    default = "1 to 5" if len(corruptions) == 1 else "5"
    return f"{which}, severity {', '.join(map(str, severities)) or default}"
