"""What every stream on one model shares: the settings, and the step that they make of the model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fenchel.adapters.compiled import runner, uncompiled
from fenchel.adapters.group import Group
from fenchel.adapters.inputs import Inputs
from fenchel.adapters.likelihood import Probabilities
from fenchel.adapters.method import Method
from fenchel.adapters.monitor import THRESHOLDS, Thresholds
from fenchel.adapters.network import Blueprint, Workshop
from fenchel.adapters.normalization import (
    Statistics,
    batch_norm_layers,
    check_statistics,
    mixed_names,
    rule_of,
)
from fenchel.adapters.optimizers import Optimizer
from fenchel.adapters.outputs import Scores
from fenchel.adapters.parameters import Selection, moving_names
from fenchel.adapters.state import State, fresh_counts
from fenchel.adapters.step import Step
from fenchel.losses import Loss
from fenchel.names import unknown
from fenchel.objectives import Objective

CHANNELS_LAST_ELEMENTS = 2**18
"""Batches of images with at least this many elements are put into channels-last memory by default."""


Protect = Literal["auto", "watch", False]
"""What keeps adaptation from doing harm: everything, a monitor that only reports, or nothing."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an adapter adapts: all of its constructor's arguments but the model."""

    method: Method
    optimizer: Optimizer
    statistics: Statistics = "batch"
    parameters: Selection = "normalization"
    steps: int = 1
    predict: Literal["after", "before"] = "after"
    episodic: bool = False
    update_every: int = 1
    logits: Scores = field(default_factory=Scores)
    features: str | None = None
    channels_last: bool | None = None
    winograd: bool = True
    compile: bool = False
    seed: int = 0
    protect: Protect = False
    loss: Loss | None = None
    """The loss the model was trained with, if it is known: it tells what scores say of the classes."""
    thresholds: Thresholds = THRESHOLDS
    correct_output: bool = False
    on_batch: Any = None
    on_verdict: Any = None
    group: Group | None = None
    """The processes with which every batch is shared."""

    def __post_init__(self) -> None:
        check_statistics(self.statistics)
        for name in ("steps", "update_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}.")
        if self.predict not in ("after", "before"):
            raise ValueError(f"predict must be 'after' or 'before'; got {self.predict!r}.")
        if self.protect not in ("auto", "watch", False):
            raise ValueError(f"protect must be 'auto', 'watch' or False; got {self.protect!r}.")
        if self.compile and (rule_of(self.statistics) is not None or self.statistics == "auto"):
            raise ValueError(
                f"compile=True needs statistics 'batch', 'source' or a number; got {self.statistics!r}, "
                "which is computed by hooks that the compiler does not see. Leave one of them out."
            )
        if self.group is not None:
            self._check_shared()

    def _check_shared(self) -> None:
        if self.compile:
            raise ValueError(
                "group= shares batches by hooks that the compiler does not see; got compile=True as well. "
                "Leave one of them out."
            )
        if not self.method.shares_batches:
            raise ValueError(
                "processes share batches of a method that says it knows whole batches; "
                f"{type(self.method).__name__} does not. Set shares_batches = True if it sees a batch by "
                "what passes return alone, or use one process."
            )

    @property
    def objective(self) -> Objective | None:
        """The objective that the method follows, if it follows one."""
        return getattr(self.method, "objective", None)


@dataclass(frozen=True)
class Core:
    """A model under some settings, ready to run. It holds no state: sessions do."""

    settings: Settings
    step: Step
    has_batch_norm: bool

    @staticmethod
    @torch.inference_mode(False)
    def of(model: nn.Module, settings: Settings) -> Core:
        """The core of a model, from its tensors as they are now."""
        plain = uncompiled(model)
        if settings.features is not None:
            _require_layer(plain, settings.features)
        moving = moving_names(plain, settings.parameters) if settings.method.moves else []
        run = runner(model, compiled=settings.compile)
        blueprint = Blueprint.of(
            plain,
            run,
            settings.statistics,
            moving,
            settings.winograd,
            shares=settings.group is not None,
        )
        step = Step(
            workshop=Workshop(blueprint),
            method=settings.method,
            optimizer=settings.optimizer,
            scores=settings.logits,
            source={name: blueprint.fixed[name] for name in moving},
            steps=settings.steps,
            predict=settings.predict,
            head=settings.features,
            seed=settings.seed,
            probabilities=Probabilities(settings.loss) if settings.correct_output else None,
        )
        return Core(settings, step, bool(batch_norm_layers(plain)))

    @torch.inference_mode(False)
    def initial_state(self) -> State:
        """The state of a stream before its first batch."""
        blueprint = self.step.workshop.blueprint
        fixed = blueprint.fixed
        parameters = {name: value.clone() for name, value in self.step.source.items()}
        kept = blueprint.mixes or blueprint.suits
        mixed = mixed_names(blueprint.model) if kept else []
        device = next(iter(fixed.values())).device if fixed else torch.device("cpu")
        return State(
            parameters=parameters,
            statistics={name: fixed[name].clone() for name in mixed},
            moments=self.settings.optimizer.start(parameters) if parameters else {},
            counts=fresh_counts(device),
        )

    def fresh(self, state: State) -> State:
        """The initial state, but with the counts so far."""
        return replace(
            self.initial_state(),
            counts=state.counts,
            batches=state.batches,
            samples=state.samples,
            left_out=state.left_out,
            resets=state.resets + 1,
        )

    def in_preferred_memory(self, inputs: Inputs) -> Inputs:
        """The batch as `step` gets it: large batches of images in channels-last memory."""
        prefers = self._prefers_channels_last(inputs.samples())
        return inputs.in_channels_last() if prefers else inputs

    def _prefers_channels_last(self, samples: Tensor) -> bool:
        """Whether the settings request it or, by default, the batch is large enough to gain from it."""
        if samples.ndim != 4 or not samples.is_floating_point():
            return False
        if self.settings.channels_last is not None:
            return self.settings.channels_last
        return samples.device.type in ("cpu", "cuda") and samples.numel() >= CHANNELS_LAST_ELEMENTS


def _require_layer(model: nn.Module, name: str) -> None:
    layers = dict(model.named_modules())
    if name not in layers:
        raise unknown("layer of the model", name, [layer for layer in layers if layer])
