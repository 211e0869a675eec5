"""Weights of any origin: read without running code, loaded with a clear error if they do not fit."""

from __future__ import annotations

import difflib
import pickle
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from fenchel.models.preprocessing import Preprocessed

WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights")
"""The keys under which training scripts put the weights, in the order they are tried."""

PREFIXES = ("module.", "_orig_mod.")
"""Prefixes that DataParallel and torch.compile put in front of every name."""

# Names that may be absent from a file: statistics that old files lack, and the preprocessing,
# which public weights never carry because their scripts normalise in the data loader.
OPTIONAL_SUFFIXES = ("num_batches_tracked", "preprocessing.mean", "preprocessing.std")

RECORDED_SUFFIXES = ("running_mean", "running_var", "num_batches_tracked")
"""Buffers in which normalisation layers record."""

SHOWN = 5


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors`, `.pt` or `.pth` file, on the CPU, by their plain names.

    Pickled files are read with `weights_only=True`: a file that holds anything but tensors and
    plain containers is refused before any of its code runs. Wrappers such as `{"net": ...}` or
    `{"state_dict": ...}` and prefixes such as `module.` are taken off.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, would run code, or holds no weights.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"weights are read from a file; {str(file)!r} is none. Check it.")
    if file.suffix == ".safetensors":
        return strip_prefixes(_read_safetensors(file))
    return strip_prefixes(_unwrap(_read_pickle(file), str(file)))


def is_safetensors_of(file: Path, form: str) -> bool:
    """Whether a file is a safetensors file whose metadata name this format."""
    if file.suffix != ".safetensors" or not file.is_file():
        return False
    try:
        with safe_open(file, framework="pt") as opened:
            return (opened.metadata() or {}).get("format") == form
    except SafetensorError:
        return False  # whoever reads the tensors will tell


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        return dict(safetensors.torch.load_file(file))
    except SafetensorError as error:
        raise ValueError(
            f"a .safetensors file must be complete and well formed; {str(file)!r} is not "
            f"({error}). Fetch or save it again."
        ) from error


def _read_pickle(file: Path) -> Any:
    try:
        with warnings.catch_warnings():
            # Newer pickle protocols work; what this reader does not know, it refuses.
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"weights are read without running code; {str(file)!r} holds more than tensors and "
            f"plain containers, or is no PyTorch file ({reason}). Save "
            "`model.state_dict()` alone, with torch.save or safetensors, where you trust the file."
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(
            f"a weights file must be complete and well formed; {str(file)!r} cannot be read "
            f"({type(error).__name__}: {error}). Fetch or save it again."
        ) from error


def _unwrap(content: Any, origin: str) -> dict[str, Tensor]:
    """Follow the wrapper keys down to the dictionary that holds nothing but tensors."""
    if isinstance(content, Mapping):
        if content and all(isinstance(value, Tensor) for value in content.values()):
            return {str(name): value for name, value in content.items()}
        for wrapper in WRAPPERS:
            if isinstance(content.get(wrapper), Mapping):
                return _unwrap(content[wrapper], origin)
    found = f"the keys {_some(map(str, content))}" if isinstance(content, Mapping) else None
    raise ValueError(
        "a weights file holds a dictionary of tensors, bare or under one of "
        f"{', '.join(WRAPPERS)}; {origin!r} holds {found or type(content).__name__}. "
        "Save `model.state_dict()`."
    )


def strip_prefixes(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Take `module.` and `_orig_mod.` off, as often as every name carries them.

    >>> list(strip_prefixes({"module.fc.bias": torch.zeros(1)}))
    ['fc.bias']
    """
    plain = dict(state)
    while plain:
        shared = [p for p in PREFIXES if all(name.startswith(p) for name in plain)]
        if not shared:
            break
        plain = {name[len(shared[0]) :]: tensor for name, tensor in plain.items()}
    return plain


def load_weights(
    model: nn.Module,
    weights: str | Path | Mapping[str, Tensor],
    *,
    origin: str = "the given weights",
) -> None:
    """Put weights (a file, or a dictionary, which errors call `origin`) into `model`, where they must fit.

    Raises:
        ValueError: names are missing, unexpected or of another shape; the message lists them with
            the nearest name on the other side. The model is left as it was.
    """
    state = weights if isinstance(weights, Mapping) else read_state_dict(weights)
    origin = origin if isinstance(weights, Mapping) else f"{str(weights)!r}"
    if isinstance(model, Preprocessed) and not any(name.startswith("network.") for name in state):
        model = model.network
    check_fit(model, state, origin)
    # Strict loading would count the optional names as missing; everything else was just checked.
    model.load_state_dict(dict(state), strict=False)


def load_parameters(model: nn.Module, path: str | Path) -> None:
    """Put the parameters of a file into `model`, to train on from them.

    Every parameter must be there. Running statistics may be absent, or unknown to the model: so a network
    may begin with the weights of one that is normalised otherwise.

    Raises:
        ValueError: parameters are missing, unexpected or of another shape. The model is left as it was.
    """
    own, state = model.state_dict(), read_state_dict(path)
    known = {
        name: value
        for name, value in state.items()
        if name in own or not name.endswith(RECORDED_SUFFIXES)
    }
    recorded = {name: value for name, value in own.items() if name.endswith(RECORDED_SUFFIXES)}
    load_weights(model, {**recorded, **known}, origin=f"{str(path)!r}")


def check_fit(model: nn.Module, state: Mapping[str, Tensor], origin: str) -> None:
    """Raise ValueError unless `state` has exactly the names and shapes that `model` needs."""
    own = model.state_dict()
    missing = [n for n in own if n not in state and not n.endswith(OPTIONAL_SUFFIXES)]
    unexpected = [name for name in state if name not in own]
    reshaped = [
        f"{name} is {tuple(state[name].shape)}, the model has {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    problems = []
    if missing:
        problems.append(f"{len(missing)} missing: {_some(missing, unexpected)}")
    if unexpected:
        problems.append(f"{len(unexpected)} unexpected: {_some(unexpected, missing)}")
    if reshaped:
        problems.append(f"{len(reshaped)} of another shape: {_some(reshaped)}")
    if problems:
        raise ValueError(
            f"weights must have the model's names and shapes; {origin} does not fit "
            f"{type(model).__name__}: {'; '.join(problems)}. Build the model with the arguments it "
            "was trained with, or rename the entries."
        )


def _some(names: Iterable[str], others: Iterable[str] = ()) -> str:
    """The first few names, each with the nearest one among `others`."""
    every, candidates = list(names), list(others)
    shown = []
    for name in every[:SHOWN]:
        nearest = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
        shown.append(f"{name} (nearest: {nearest[0]})" if nearest else name)
    rest = [f"and {len(every) - SHOWN} more"] if len(every) > SHOWN else []
    return ", ".join(shown + rest) or "(none)"
