"""The card of a checkpoint: a page that says how it was trained, on what, and how well it does."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from fenchel.files import write_atomically
from fenchel.models.checkpoint import FILE_NAME, load_checkpoint, read_metadata
from fenchel.models.zoo import SUFFIX

_FOR = """For experiments with test-time adaptation on two cores, and for examples and tests. It is a small
network that was trained for a short time: do not use it where a wrong class has consequences, and do not
take its error for that of its architecture. It knows its {classes} classes and nothing else: every image
gets one of them. Errors under shifts, with and without adaptation, are in
[the results](../docs/results.md)."""

_DATA = {
    "cifar10": """CIFAR-10 (Krizhevsky, 2009): 50,000 training and 10,000 test photographs of 32 x 32
pixels, in ten classes of equal size. They were collected from the web through search engines, as part of 80
Million Tiny Images, and labelled by paid students. That larger collection was withdrawn in 2020, because it
held offensive labels and images; the ten classes here are animals and vehicles. Photographers were not
asked, no licence is stated, and some test images are near copies of training images. `fenchel` does not
distribute the images.""",
    "svhn": """SVHN (Netzer et al., 2011): 73,257 training and 26,032 test digits of 32 x 32 pixels, cut out
of house numbers in Google Street View and labelled by workers of Amazon Mechanical Turk. Classes are not of
equal size: 1 is the commonest. Neighbouring digits are visible in most images. The authors allow
non-commercial use. `fenchel` does not distribute the images.""",
}
"""What is to be known of the training data of networks that are published."""

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
    parts = [
        f"# {name}",
        "Takes images in [0, 1]; the test images decided nothing about it.",
        f"| | |\n|---|---|\n{rows}",
        f"## What it is for, and what not\n\n{_FOR.format(classes=len(metadata.classes))}",
        *([f"## Data statement\n\n{_DATA[metadata.data]}"] if metadata.data in _DATA else []),
        f"## Recipe\n\n| | |\n|---|---|\n{settings}",
        f'## Use\n\n```python\nimport fenchel\n\nadapted = fenchel.adapt("zoo:{name}")\n```',
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


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
