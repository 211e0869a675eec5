"""Settings that were chosen for one model, in a small file that travels with it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from fenchel.adapters.monitor import THRESHOLDS, Thresholds
from fenchel.files import read_described, safetensors_bytes, write_atomically
from fenchel.methods.importance import Fisher

FORMAT = "fenchel-calibration-1"
ENDING = ".calibration.safetensors"
"""Of the file beside a checkpoint that is found by itself."""

Level = Literal["labels", "images"]
"""What it was chosen with: labelled images of the source, or images alone."""

_FEATURES, _FISHER = "features.", "fisher."


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """How a model is best adapted, as far as images of its source can tell; `fenchel.calibrate` makes it.

    Attributes:
        method: the method that the settings are for.
        settings: arguments of `fenchel.adapt` and options of the method: `temperature`, `learning_rate`,
            `optimizer`, or the longest step of `protected`.
        level: `labels` if images with labels chose them, `images` if the model's own predictions did.
        thresholds: those of the monitor.
        feature_mean, feature_variance: of what the last linear layer is given, on the source; None where
            there is no such layer.
        fisher: Fisher information, for methods that want it.
        protocol: how everything was chosen, every trial with its error among it.

    >>> import fenchel, torch
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 8), torch.nn.BatchNorm1d(8),
    ...                               torch.nn.Linear(8, 3)).eval()
    >>> images = torch.rand(64, 3, 8, 8)
    >>> found = fenchel.calibrate(network, "cross-entropy", images, batch_size=64, trials=1, length=64)
    >>> found.level, sorted(found.settings)
    ('images', ['longest', 'temperature'])
    """

    method: str
    settings: Mapping[str, Any]
    level: Level
    thresholds: Thresholds = THRESHOLDS
    feature_mean: Tensor | None = field(default=None, repr=False)
    feature_variance: Tensor | None = field(default=None, repr=False)
    fisher: Fisher | None = field(default=None, repr=False)
    protocol: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def settings_for(self, method: str) -> dict[str, Any]:
        """The settings, for the method that they were chosen for; any other is refused."""
        if method != self.method:
            raise ValueError(
                f"these settings were chosen for method {self.method!r}; got method {method!r}. Calibrate "
                f"again with method={method!r}, or leave settings= out."
            )
        return dict(self.settings)

    def described(self) -> dict[str, Any]:
        """Everything but the tensors, as plain values."""
        return {
            "format": FORMAT,
            "method": self.method,
            "settings": dict(self.settings),
            "level": self.level,
            "thresholds": dataclasses.asdict(self.thresholds),
            "fisher_images": None if self.fisher is None else self.fisher.images,
            "protocol": dict(self.protocol),
        }

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, whole or not at all; the same bytes for the same content."""
        tensors = (
            {} if self.fisher is None else {_FISHER + n: t for n, t in self.fisher.tensors.items()}
        )
        for name in ("mean", "variance"):
            if (found := getattr(self, f"feature_{name}")) is not None:
                tensors[_FEATURES + name] = found
        described = json.dumps(self.described(), sort_keys=True)
        write_atomically(path, safetensors_bytes(tensors, {"fenchel": described}))

    @staticmethod
    def load(path: str | Path) -> Calibration:
        """Read what `save` wrote. No code from the file runs."""
        remedy = "Make it with `fenchel calibrate`, or check the path."
        described, tensors = read_described(path, what="a calibration", form=FORMAT, remedy=remedy)
        fisher = {
            name.removeprefix(_FISHER): tensor
            for name, tensor in tensors.items()
            if name.startswith(_FISHER)
        }
        try:
            return Calibration(
                method=described["method"],
                settings=described["settings"],
                level=described["level"],
                thresholds=Thresholds(**described["thresholds"]),
                feature_mean=tensors.get(_FEATURES + "mean"),
                feature_variance=tensors.get(_FEATURES + "variance"),
                fisher=Fisher(fisher, int(described["fisher_images"])) if fisher else None,
                protocol=described["protocol"],
            )
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"a calibration has a method, settings and thresholds; {str(path)!r} has not ({error}). "
                f"{remedy}"
            ) from error

    @staticmethod
    def beside(checkpoint: str | Path) -> Path:
        """Where the calibration of a checkpoint is found by itself."""
        path = Path(checkpoint)
        return path.with_name(path.name.removesuffix(".safetensors") + ENDING)
