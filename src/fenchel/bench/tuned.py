"""Chosen hyper-parameters in a file: written by `fenchel tune`, read by `fenchel bench`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fenchel.files import write_atomically
from fenchel.methods import moves_parameters
from fenchel.names import parse_spec, unknown

FORMAT = "fenchel-tuned-1"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The best settings of one method for one kind of source model."""

    architecture: str
    loss: str
    method: str
    settings: Mapping[str, Any]
    validation_error: float
    trials: int


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """All choices of one tuning, and the protocol by which they were made."""

    choices: tuple[Choice, ...]
    protocol: Mapping[str, Any]

    @property
    def selection(self) -> str:
        """How the hyper-parameters were chosen, in one line for tables and records."""
        shifts = ", ".join(self.protocol.get("corruptions", ()))
        return f"tuned on {shifts}" if shifts else "tuned"

    def settings_for(self, architecture: str, loss: str, method: str) -> dict[str, Any]:
        """The settings chosen for a method; methods without any (source, bn) need no choice."""
        for choice in self.choices:
            if (choice.architecture, choice.loss, choice.method) == (architecture, loss, method):
                return dict(choice.settings)
        if not moves_parameters(parse_spec(method)[0]):
            return {}
        known = sorted({f"{c.method} ({c.architecture}, {c.loss})" for c in self.choices})
        raise unknown("tuned method", f"{method} ({architecture}, {loss})", known)

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        values = {"format": FORMAT, **dataclasses.asdict(self)}
        write_atomically(path, (json.dumps(values, indent=2) + "\n").encode())


def read_tuned(path: str | Path) -> Tuned:
    """The choices in a file that `fenchel tune` wrote."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        if values.get("format") != FORMAT:
            raise KeyError("format")
        choices = tuple(Choice(**choice) for choice in values["choices"])
        return Tuned(choices=choices, protocol=values["protocol"])
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no file of tuned settings {str(path)!r}. Write it with 'fenchel tune'."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"tuned settings are a JSON file of format {FORMAT!r}; {str(path)!r} is not one "
            f"({type(error).__name__}: {error}). Write it again with 'fenchel tune'."
        ) from error
