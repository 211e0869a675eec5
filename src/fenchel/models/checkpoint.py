"""Checkpoints: safetensors files that record their architecture, loss and preprocessing.

The metadata are strings; all but the first three keys are JSON:

| key | content |
|---|---|
| `format`, `architecture`, `loss` | `fenchel-checkpoint-1`, a name for `build`, a loss spec |
| `arguments` | keyword arguments for `build` |
| `classes` | the names of the classes, in the order of the logits |
| `preprocessing` | mean, std and input range of the buffers inside the model |
| `data`, `data_digest` | name and SHA-256 of the training data |
| `recipe` | how it was trained |
| `epoch`, `metrics` | how far, and what was measured |
| `code` | digests of the files of a network of the user's own; absent for those that `build` knows |
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from fenchel.files import safetensors_bytes, write_atomically
from fenchel.models import places, preprocessing, weights
from fenchel.models.registry import build

FORMAT = "fenchel-checkpoint-1"
FILE_NAME = "checkpoint.safetensors"
"""The name of the kept checkpoint inside the folder of a training run."""

_PLAIN = ("architecture", "loss")
_NOT_ALWAYS = ("code",)  # absent where it is empty, so that equal checkpoints stay equal bytes


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """The metadata of a checkpoint; see the table in this module's docstring."""

    architecture: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    loss: str
    classes: tuple[str, ...]
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    data_digest: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    epoch: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)

    def to_strings(self) -> dict[str, str]:
        """The metadata as safetensors stores them."""
        values = dataclasses.asdict(self)
        strings = {key: values.pop(key) for key in _PLAIN}
        encoded = {
            key: json.dumps(value, sort_keys=True)
            for key, value in values.items()
            if value or key not in _NOT_ALWAYS
        }
        return {"format": FORMAT, **strings, **encoded}

    @staticmethod
    def from_strings(strings: Mapping[str, str], origin: str) -> Metadata:
        """The inverse of `to_strings`; `origin` names the file in errors."""
        if strings.get("format") != FORMAT:
            raise ValueError(
                f"a checkpoint of fenchel says format={FORMAT!r}; {origin!r} says "
                f"{strings.get('format')!r}. For bare weights, build the model yourself and call "
                "fenchel.models.load_weights(model, path)."
            )
        try:
            values: dict[str, Any] = {
                item.name: strings[item.name] if item.name in _PLAIN else json.loads(text)
                for item in dataclasses.fields(Metadata)
                if (text := strings.get(item.name)) is not None
            }
            names = values.pop("classes")
            found = Metadata(classes=tuple(str(name) for name in names), **values)
            found.check()
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(
                f"a checkpoint needs the metadata architecture, loss and classes; {origin!r} is "
                f"damaged ({type(error).__name__}: {error}). Train or fetch it again."
            ) from error
        return found

    def check(self) -> None:
        """Raise TypeError if a mapping is something else (as in a tampered file)."""
        for name in ("arguments", "preprocessing", "recipe", "metrics", "code"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(f"{name} is not a mapping")


@dataclass(frozen=True)
class Checkpoint:
    """A model and what is known of it: the metadata of its file, or what `open_model` was told.

    Attributes:
        spec: what `open_model` was asked for; empty for a checkpoint that was loaded by its path.
        files: digests of the files that it was made of beside a checkpoint, by their names.
        caution: what its user should know, in a sentence; empty if there is nothing.
        path: the file that it was loaded from; None for one that was made.
    """

    model: nn.Module
    metadata: Metadata
    spec: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    caution: str = ""
    path: Path | None = field(default=None, compare=False)

    @property
    def loss_spec(self) -> str:
        """The loss the model was trained with, such as `poly:epsilon=6`; empty where it is not known."""
        return self.metadata.loss

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits; empty where they are not known."""
        return self.metadata.classes

    @property
    def preprocessing(self) -> Mapping[str, Any]:
        """`mean`, `std` and `input_range`, already applied inside the model."""
        return self.metadata.preprocessing

    @property
    def digest(self) -> str:
        """SHA-256 of the weights, by name, shape and value: equal for equal models.

        What code of one's own computes is not in its weights: there its files and arguments count as well.
        """
        weights = hashlib.sha256(safetensors_bytes(self.model.state_dict(), {})).hexdigest()
        if not self.metadata.code:
            return weights
        made_of = [self.metadata.architecture, dict(self.metadata.arguments), dict(self.files)]
        return hashlib.sha256(json.dumps([weights, *made_of], sort_keys=True).encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all; equal checkpoints give equal bytes."""
        described = dataclasses.replace(
            self.metadata, preprocessing=preprocessing.describe(self.model)
        )
        content = safetensors_bytes(self.model.state_dict(), described.to_strings())
        write_atomically(path, content)


def read_metadata(path: str | Path) -> Metadata:
    """The metadata of the checkpoint at `path` (a file, the folder of a training run, `zoo:NAME`)."""
    file = checkpoint_file(path)
    try:
        with safe_open(file, framework="pt") as opened:
            strings = opened.metadata() or {}
    except SafetensorError as error:
        raise ValueError(
            f"a checkpoint is a safetensors file; {str(file)!r} is not ({error}). For .pt and "
            ".pth files, build the model yourself and call fenchel.models.load_weights."
        ) from error
    return Metadata.from_strings(strings, str(file))


def load_checkpoint(path: str | Path, *, device: str | torch.device = "cpu") -> Checkpoint:
    """The model saved at `path` (a file, the folder of a training run, `zoo:NAME`), set to evaluate.

    Only architectures known to `build` are made, nothing is downloaded, and no code from the file
    runs. Names and shapes are compared before any memory is taken for the model.
    """
    file = checkpoint_file(path)
    metadata = read_metadata(file)
    if metadata.code:
        raise ValueError(
            f"a checkpoint runs no code, and {str(file)!r} needs {metadata.architecture}, which is code of "
            f"your own ({_files(metadata.code)}). Open it with that file: model={metadata.architecture} "
            f"and weights={file}."
        )
    state = weights.read_state_dict(file)
    arguments = {**metadata.arguments}
    if "pretrained" in arguments:
        arguments["pretrained"] = False
    with torch.device("meta"):
        skeleton = build(metadata.architecture, **arguments)
    weights.check_fit(skeleton, state, str(file))
    with torch.random.fork_rng(devices=[]):
        model = build(metadata.architecture, **arguments)
    weights.load_weights(model, state)
    return Checkpoint(model.to(device).eval(), metadata, path=file)


def checkpoint_file(path: str | Path) -> Path:
    """The file of the checkpoint that `path` names: a file, the folder of a training run, `zoo:NAME`."""
    given = places.resolve(path)
    file = given / FILE_NAME if given.is_dir() else given
    if not file.is_file():
        raise FileNotFoundError(
            f"a checkpoint is a .safetensors file or the folder of a training run; {str(given)!r} "
            "holds none. Train one with `fenchel train`, or check the path."
        )
    return file


def _files(digests: Mapping[str, str]) -> str:
    return ", ".join(f"{name} of digest {digest}" for name, digest in digests.items())
