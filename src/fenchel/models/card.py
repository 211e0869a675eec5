"""The card of a checkpoint: a page that says how it was trained, on what, and how well it does."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from fenchel.files import write_atomically
from fenchel.models.checkpoint import FILE_NAME, load_checkpoint, read_metadata
from fenchel.models.zoo import SUFFIX

_HEADINGS = {"test_accuracy": "test accuracy", "test_loss": "test loss"}


def card(path: str | Path) -> str:
    """The card as Markdown, made from the checkpoint's metadata alone."""
    checkpoint = load_checkpoint(path)
    metadata, name = checkpoint.metadata, Path(path).stem
    recipe = dict(metadata.recipe)
    facts = {
        "architecture": f"`{metadata.architecture}`, {_parameters(checkpoint.model):,} parameters",
        "training loss": f"`{metadata.loss}`",
        "training data": f"`{metadata.data}`, digest `{metadata.data_digest}`",
        "classes": ", ".join(metadata.classes),
        "seed": recipe.pop("seed", None),
        "epochs": metadata.epoch,
        **{
            heading: f"{metadata.metrics[key]:.4f}"
            for key, heading in _HEADINGS.items()
            if key in metadata.metrics
        },
        "SHA-256 of the weights": f"`{checkpoint.digest}`",
    }
    rows = "".join(f"| {key} | {value} |\n" for key, value in facts.items() if value is not None)
    settings = "".join(f"| {key} | {value} |\n" for key, value in recipe.items())
    return (
        f"# {name}\n\n"
        "Takes images in [0, 1]; the test images decided nothing about it.\n\n"
        f"| | |\n|---|---|\n{rows}\n"
        f"## Recipe\n\n| | |\n|---|---|\n{settings}\n"
        "## Use\n\n"
        f'```python\nimport fenchel\n\nadapted = fenchel.adapt("zoo:{name}")\n```\n'
    )


def publish(run: str | Path, name: str, folder: Path) -> Path:
    """Put the checkpoint of a training run into `folder` as `name`, with its card beside it."""
    read_metadata(run)  # nothing but a checkpoint is published
    source = Path(run)
    file = folder / f"{name}{SUFFIX}"
    content = (source / FILE_NAME if source.is_dir() else source).read_bytes()
    write_atomically(file, content)
    write_atomically(file.with_suffix(".md"), card(file).encode())
    return file


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
