"""One opener for every network that a command, a sweep or a program may name.

| written | what it is |
|---|---|
| `FILE.py:NAME`, `MODULE:NAME` | code of one's own: a function, a class, or the network itself |
| `timm:NAME`, `torchvision:NAME` | theirs, where the package is installed; `timm/NAME` means the same |
| `resnet26` | a network of this library |
| a path, `zoo:NAME` | a checkpoint of this library: a file, or the folder of a training run |
| `pretrained:NAME` | a network of ImageNet that `fenchel models fetch` brought |

All but checkpoints take arguments behind a colon: `network.py:build:width=8`, `timm:resnet18:classes=10`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from fenchel.files import file_digest
from fenchel.models import catalogue, external, places, preprocessing
from fenchel.models.checkpoint import (
    FORMAT,
    Checkpoint,
    Metadata,
    checkpoint_file,
    load_checkpoint,
    read_metadata,
)
from fenchel.models.registry import MODELS, build, factory
from fenchel.models.weights import is_safetensors_of, load_weights, read_state_dict
from fenchel.names import parse_spec, unknown
from fenchel.own_code import Reference, read_reference

Kind = Literal["code", "named", "checkpoint"]
WEIGHTS_ONLY = (".pt", ".pth", ".bin", ".ckpt")
"""Endings of files that hold weights and say nothing of their network."""


@dataclass(frozen=True)
class ModelSpec:
    """What the text that names a network says, before anything is opened.

    Attributes:
        kind: `code` of one's own, a `named` network of this library or another one, or a `checkpoint`.
        name: the name in records: `network.py:build`, `timm/resnet18`, `resnet26`, or the path.
        arguments: those of the function that makes it.
        code: where the code of one's own is.
    """

    kind: Kind
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    code: Reference | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the code."""
        file = None if self.code is None else self.code.file
        return () if file is None else (file,)

    def digests(self) -> dict[str, str]:
        """The digests of these files, by their names."""
        return {file.name: file_digest(file) for file in self.files}

    def make(self, arguments: Mapping[str, Any]) -> nn.Module:
        """The network, with random weights if it draws them (from torch's global generator)."""
        if self.code is None:
            return build(self.name, **arguments)
        return _made(self.code, self.factory(), arguments)

    def factory(self) -> Callable[..., nn.Module]:
        """The function that makes the network, for `named` ones and `code`."""
        if self.code is None:
            return factory(self.name)
        with reproducible():
            found = self.code.load()
        if isinstance(found, nn.Module):
            return lambda: copy.deepcopy(found)
        if not callable(found):
            raise TypeError(
                f"{self.code} must be a function or class that makes a network, or a network; it is "
                f"{type(found).__name__}. Name another object of that file."
            )
        return found  # type: ignore[no-any-return]


def read_spec(text: str, folder: Path = Path()) -> ModelSpec:
    """What `text` names; files are looked for in `folder`, nothing is opened yet.

    >>> read_spec("timm:resnet18:classes=10")
    ModelSpec(kind='named', name='timm/resnet18', arguments={'classes': 10}, code=None)
    """
    named = external.with_slash(text)
    if external.is_external(named) or text.partition(":")[0] in MODELS:
        name, arguments = parse_spec(named)
        return ModelSpec("named", name, arguments)
    reference = read_reference(text)
    if reference is not None and reference.is_file:
        return _code(reference.within(folder))
    place = folder / Path(text).expanduser()
    if places.has_scheme(text) or (place.exists() and ":" not in text):
        return ModelSpec("checkpoint", str(_checked(places.resolve(text, folder))))
    if reference is not None:
        return _code(reference)
    if place.suffix or "/" in text:
        return ModelSpec("checkpoint", str(_checked(place)))
    raise unknown(
        "model",
        text,
        [
            *MODELS,
            *(
                "FILE.py:NAME",
                "MODULE:NAME",
                "timm:NAME",
                "torchvision:NAME",
                "zoo:NAME",
                "pretrained:NAME",
            ),
            "a path",
        ],
    )


def open_model(
    spec: str,
    *,
    weights: str | Path | None = None,
    trained_with: str | None = None,
    classes: Sequence[str] | None = None,
    folder: Path = Path(),
    device: str | torch.device = "cpu",
) -> Checkpoint:
    """The network that `spec` names, set to evaluate, with all that is known of it.

    Args:
        spec: see the table in this module's docstring; paths are relative to `folder`.
        weights: a `.safetensors`, `.pt` or `.pth` file, read without running code. A checkpoint of a
            network of one's own is given here, and tells its loss and classes.
        trained_with: the loss it was trained with; by default the one that the checkpoint tells. `auto`:
            that one, or the one that the catalogue of public checkpoints knows.
        classes: the names of the classes in the order of the logits; by default the checkpoint's.

    Returns:
        `model`, `loss_spec` (empty where not known), `classes` (likewise), `preprocessing`, a `digest` of all
        that decides the network, the digests of its `files`, and a `caution` for its user, or "".

    >>> open_model("linear:features=3,classes=2", trained_with="cross-entropy").loss_spec
    'cross-entropy'
    """
    found = read_spec(spec, folder)
    if found.kind == "checkpoint":
        opened = replace(load_checkpoint(found.name), spec=spec)
        if weights is not None:
            file = weights_file(weights, folder)
            load_weights(opened.model, file)
            opened = replace(opened, files={file.name: file_digest(file)})
    else:
        opened = _built(
            found, spec, None if weights is None else weights_file(weights, folder), classes
        )
    metadata, caution = opened.metadata, opened.caution
    if trained_with == catalogue.AUTO and not metadata.loss:
        known = catalogue.loss_behind(opened.model, found.name)
        metadata = replace(metadata, loss=known.loss)
        caution = "; ".join(filter(None, (known.notice, caution)))
    elif trained_with not in (None, catalogue.AUTO):
        metadata = replace(metadata, loss=trained_with)
    if classes is not None:
        metadata = replace(metadata, classes=_fitting(classes, metadata.classes, spec))
    model = opened.model.to(device).eval()
    return replace(opened, model=model, metadata=metadata, caution=caution)


def weights_file(path: str | Path, folder: Path = Path()) -> Path:
    """The file of weights that `path` names: itself, or the checkpoint in the folder of a training run."""
    given = places.resolve(path, folder)
    return checkpoint_file(given) if given.is_dir() else given


@contextmanager
def reproducible() -> Iterator[None]:
    """Within the block every process draws the same random weights; the caller's draws are not touched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _code(reference: Reference) -> ModelSpec:
    arguments = parse_spec(f":{reference.arguments}")[1]
    return ModelSpec("code", reference.label, arguments, reference)


def _checked(path: Path) -> Path:
    """The path of a checkpoint, unless its ending says that it holds something else."""
    if path.suffix == ".py":
        raise ValueError(
            f"a network of your own is written FILE.py:NAME; got {str(path)!r}. Add the name of the "
            "function, class or network in it."
        )
    if path.suffix in WEIGHTS_ONLY:
        raise ValueError(
            f"{str(path)!r} holds weights, and does not say of which network. Pass the file as weights=, and "
            "the network as model=: FILE.py:NAME, timm:NAME, or one of this library."
        )
    return path


def _built(
    found: ModelSpec, spec: str, file: Path | None, classes: Sequence[str] | None
) -> Checkpoint:
    """A network that a function makes, with the weights of a file."""
    known = _told_by(file)
    told: dict[str, Any] = {}
    if known is not None and known.architecture == found.name:
        told = {**known.arguments}
    elif classes is not None and "classes" in inspect.signature(found.factory()).parameters:
        told = {"classes": len(classes)}
    arguments = {**told, **found.arguments}
    state = None if file is None else read_state_dict(file)
    if state is not None and "pretrained" in arguments:
        arguments["pretrained"] = False  # the weights are at hand: nothing is downloaded
    with reproducible():
        model = found.make(arguments)
    if state is not None:
        load_weights(model, state, origin=str(file))
    code = found.digests()
    metadata = known or Metadata(architecture=found.name, loss="", classes=())
    return Checkpoint(
        model,
        replace(
            metadata,
            architecture=found.name,
            arguments=arguments,
            preprocessing=preprocessing.describe(model),
            code=code,
        ),
        spec=spec,
        files=code if file is None else {**code, file.name: file_digest(file)},
        caution=_caution(spec, arguments, file, known, code),
    )


def _told_by(file: Path | None) -> Metadata | None:
    """What a file of weights says of its network, if it is a checkpoint of this library."""
    if file is None or not is_safetensors_of(file, FORMAT):
        return None
    return read_metadata(file)


def _caution(
    spec: str,
    arguments: Mapping[str, Any],
    file: Path | None,
    known: Metadata | None,
    code: Mapping[str, str],
) -> str:
    if file is None:
        if arguments.get("pretrained"):
            return ""
        return f"no weights= for {spec}: the network is used as its factory returned it"
    if known is not None and known.code and known.code != code:
        return f"{', '.join(code)} has changed since {file} was trained with it"
    return ""


def _made(
    code: Reference, make: Callable[..., nn.Module], arguments: Mapping[str, Any]
) -> nn.Module:
    """What the user's function returns for `arguments`; it must be a network."""
    _check_arguments(code, make, arguments)
    with code.running():
        network = make(**arguments)
    if not isinstance(network, nn.Module):
        raise TypeError(
            f"{code} must return a network, an nn.Module; it returned {type(network).__name__}. Name the "
            "function that builds it."
        )
    return network


def _check_arguments(code: Reference, make: Callable[..., Any], given: Mapping[str, Any]) -> None:
    try:
        inspect.signature(make).bind(**given)
    except TypeError as error:
        raise ValueError(
            f"{code.label} must be callable with the arguments that are given: {error}. Give it defaults, or "
            f"write {code.label}:name=value."
        ) from error
    except ValueError:
        return  # a callable without a signature: calling it will tell


def _fitting(classes: Sequence[str], known: Sequence[str], spec: str) -> tuple[str, ...]:
    if known and len(known) != len(classes):
        raise ValueError(
            f"classes= must name every class of the model once; {spec} has {len(known)}, got "
            f"{len(classes)} names. Leave it out, or name all of them."
        )
    return tuple(str(name) for name in classes)
