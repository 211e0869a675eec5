"""From plain words to an adapter: what `fenchel adapt` and `fenchel serve` are told, in any process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fenchel.names import parse_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from fenchel.adapters import Adapter
    from fenchel.adapters.core import Protect
    from fenchel.adapters.group import Group
    from fenchel.losses import Loss
    from fenchel.models import Checkpoint
    from fenchel.predict.images import ImageFiles

MOST_SOURCE_IMAGES = 2000
"""As many as EATA's authors take."""


@dataclass(frozen=True)
class Opened:
    """An adapter, and what it was made of."""

    adapter: Adapter
    source: Checkpoint
    network: nn.Module
    is_wrapped: bool
    """Whether the adapted network is the source model behind a normalisation of its images."""


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """What is told of a model and of how it adapts. Plain values: other processes open the same.

    The fields are those of `fenchel.adapt`, and the options of the command line, in which `None` leaves a
    choice to the method. `protect` is `auto`, `watch` or `off`; by default `auto` for the method `protected`,
    and `watch` for others. `size` and `gray` say how images are read; `mean` and `std` are numbers
    separated by commas, for models that expect normalised images.
    """

    model: str
    weights: Path | None = None
    trained_with: str | None = None
    logits: str | int | None = None
    dim: int | None = None
    mean: str | None = None
    std: str | None = None
    method: str = "protected"
    protect: str | None = None
    settings: str | None = None
    optimizer: str | None = None
    learning_rate: float | Literal["auto"] | None = None
    temperature: float | None = None
    steps: int = 1
    statistics: str | float | None = None
    parameters: str | list[str] | None = None
    source_images: Path | None = None
    size: int | None = None
    gray: bool = False
    seed: int = 0
    device: str = "cpu"

    @property
    def image_mode(self) -> str:
        """How pictures are read: in the words of Pillow."""
        return "L" if self.gray else "RGB"

    def open(self, group: Group | None = None) -> Opened:
        """Read the model and wrap it; `group` are the processes that share its batches."""
        from fenchel.api import adapt
        from fenchel.losses.own import open_loss
        from fenchel.models import open_model

        source = open_model(self.model, weights=self.weights, trained_with=self.trained_with)
        loss = open_loss(source.loss_spec) if source.loss_spec else None
        network = _normalised(source.model, self.mean, self.std)
        adapter = adapt(
            network.to(self.device),
            trained_with=loss,
            **_method_arguments(self.method, loss),
            protect=protection(self.protect, self.method),
            settings=self._settings(source),
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            temperature=self.temperature,
            steps=self.steps,
            statistics=self.statistics,
            parameters=self.parameters,
            logits=self.logits,
            dim=self.dim,
            source_images=self._source_pixels(),
            seed=self.seed,
            group=group,
        )
        return Opened(adapter, source, network, is_wrapped=network is not source.model)

    def described(self, opened: Opened) -> dict[str, Any]:
        """What decides the predictions beside the images and how they are batched."""
        used, found = opened.adapter.settings, self._settings(opened.source)
        return {
            "model": self.model,
            "model_digest": opened.source.digest,
            "trained_with": opened.source.loss_spec or None,
            "method": self.method,
            "protect": used.protect,
            "settings": None if found is None else str(found),
            "optimizer": type(used.optimizer).__name__.lower(),
            "learning_rate": getattr(used.optimizer, "learning_rate", None),
            "statistics": used.statistics,
            "parameters": used.parameters,
            "temperature": self.temperature,
            "steps": self.steps,
            "size": self.size,
            "gray": self.gray,
            "mean": self.mean,
            "std": self.std,
        }

    def _settings(self, source: Checkpoint) -> str | Path | None:
        """What is told, else the calibration beside the checkpoint, if it is for this method."""
        from fenchel.methods.calibrated import Calibration

        if self.settings is not None or source.path is None:
            return self.settings
        beside = Calibration.beside(source.path)
        is_for_it = beside.is_file() and Calibration.load(beside).method == self.method
        return beside if is_for_it else None

    def _source_pixels(self) -> Tensor | None:
        """Images of the source, read as those that are predicted; of many a random part."""
        if self.source_images is None:
            return None
        from fenchel.predict.images import read_images

        images = read_images(self.source_images, size=self.size, mode=self.image_mode)
        some = images.order(shuffle=True)[:MOST_SOURCE_IMAGES]  # classes may be sorted
        return self.pixels(images, some)[0]

    def pixels(self, images: ImageFiles, chosen: Iterable[int]) -> tuple[Tensor, list[int]]:
        """Images as the model takes them, and which of those that were chosen can be used."""
        from fenchel.predict.reading import Batch, first_usable, of_shape, read_ahead

        wanted = [int(index) for index in chosen]
        like = first_usable(images, wanted).values
        assert like is not None
        batch = Batch(tuple(of_shape(like.shape, read_ahead(images, wanted))))
        return batch.inputs().to(self.device), [picture.index for picture in batch.usable]


def _method_arguments(method: str, loss: Loss | None) -> dict[str, Any]:
    """What `fenchel.adapt` takes for a method as it is written in one word."""
    from fenchel.adapters import METHODS

    name, options = parse_spec(method)
    if "input_range" in METHODS[name].options() and not options.keys() & {"input_range", "mean"}:
        options["input_range"] = (0.0, 1.0)  # as images are read
    if loss is None and METHODS[name].needs_loss():
        raise ValueError(
            f"method {name!r} is derived from the loss the model was trained with, which was not given. "
            "Add trained_with=, for example trained_with=cross-entropy."
        )
    return {"method": name, **options}


def protection(told: str | None, method: str) -> Protect:
    """What `fenchel.adapt` takes for the word that is told; methods that are named are watched at least."""
    if told is None:
        return "auto" if parse_spec(method)[0] == "protected" else "watch"
    if told not in ("auto", "watch", "off"):
        raise ValueError(f"protect= must be auto, watch or off; got {told!r}. Give one of them.")
    return False if told == "off" else told  # type: ignore[return-value]


def _normalised(network: nn.Module, mean: str | None, std: str | None) -> nn.Module:
    """The model with (x - mean) / std in front, for those that expect normalised images."""
    if mean is None and std is None:
        return network
    if mean is None or std is None:
        raise ValueError("mean= and std= go together; got only one of them. Give both, or none.")
    from fenchel.models import Preprocessed, Preprocessing

    numbers = [[float(value) for value in text.split(",")] for text in (mean, std)]
    return Preprocessed(network, Preprocessing(*numbers))
