"""The adapter: an `nn.Module` around a model, which adapts while it predicts and never modifies it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from fenchel.adapters import guards
from fenchel.adapters.compiled import runner, uncompiled
from fenchel.adapters.normalization import (
    Statistics,
    batch_norm_layers,
    check_statistics,
    mix_in_statistics,
    recorded_statistics,
    skeleton,
    use_batch_statistics,
)
from fenchel.adapters.optimizers import Optimizer
from fenchel.adapters.parameters import Selection, moving_names
from fenchel.adapters.reuse import Reuse
from fenchel.adapters.state import State, fresh_counts
from fenchel.adapters.step import Inputs, Network, Step
from fenchel.adapters.winograd import use_winograd
from fenchel.objectives import Objective

CHANNELS_LAST_ELEMENTS = 2**18
"""From here on images are put into channels-last memory, unless the settings say otherwise."""

Mode = Literal["adapting", "frozen", "disabled", "unloaded"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an adapter adapts: all of its constructor's arguments but the model."""

    objective: Objective | None
    optimizer: Optimizer
    statistics: Statistics = "batch"
    parameters: Selection = "normalization"
    steps: int = 1
    predict: Literal["after", "before"] = "after"
    episodic: bool = False
    update_every: int = 1
    logits: Callable[[Any], Tensor] = guards.pick_logits
    channels_last: bool | None = None
    winograd: bool = True
    compile: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_statistics(self.statistics)
        for name in ("steps", "update_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}.")
        if self.predict not in ("after", "before"):
            raise ValueError(f"predict must be 'after' or 'before'; got {self.predict!r}.")


@dataclass(frozen=True)
class Health:
    """What an adapter has been through so far."""

    batches: int
    samples: int
    updates: int
    skipped_non_finite: int
    """Updates left out because an input, the loss or a gradient was not finite."""
    skipped_none_kept: int
    """Updates left out because the objective kept no sample (no confident pseudo-label)."""
    resets: int
    mode: Mode

    @property
    def skips(self) -> int:
        """All updates that were left out."""
        return self.skipped_non_finite + self.skipped_none_kept


class Adapter(nn.Module):
    """A model that adapts to each batch it predicts. Call it as you would call the model.

    The user's model, `adapter.model`, is never modified: what moves lives in `adapter.state`.
    `train()` and `eval()` change nothing; `freeze()`, `resume()` and `disable()` do.
    """

    model: nn.Module

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        super().__init__()
        guards.check_model(model)
        if isinstance(model, Adapter):
            raise TypeError("this model is adapted already; got an Adapter. Pass adapter.model.")
        self.model = model
        self.settings = settings
        self._mode: Mode = "adapting"
        self._warned_small_batch = False
        self._names = (
            []
            if settings.objective is None
            else moving_names(uncompiled(model), settings.parameters)
        )
        self._build()
        self.state = self._initial_state()

    # --- calling ---------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Adapt to the batch and predict it: the model's own signature and output."""
        if "torch._dynamo" not in sys.modules:  # a second's import that few programs need
            return self._adapt_and_predict(args, kwargs)
        # Whoever compiles the adapter gets the step as it is; the network inside may be compiled.
        outside = torch.compiler.disable(self._adapt_and_predict)  # type: ignore[no-untyped-call]
        return outside(args, kwargs)

    def _adapt_and_predict(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._mode == "unloaded":
            raise RuntimeError("this adapter was unloaded. Call fenchel.adapt again for a new one.")
        with torch.inference_mode(False), torch.no_grad(), guards.no_autocast_cache():
            inputs = Inputs(*pytree.tree_map_only(Tensor, _ordinary, (args, kwargs)))
            size = inputs.samples().shape[0]
            if self._mode == "disabled" or size == 0:
                return self._source({}, inputs)
            inputs = self.in_preferred_memory(inputs)
            if self._batch_norms and self.settings.statistics == "batch":
                self._warn_once(size)
            try:
                return self._run(inputs, size)
            except ValueError as error:
                if "more than 1 value per channel" in str(error):
                    raise guards.explain_single_value(error, size) from error
                raise

    def _run(self, inputs: Inputs, size: int) -> Any:
        if self._mode == "frozen":
            return self._step.predict_only(self.state, inputs)
        state = self._fresh(self.state) if self.settings.episodic else self.state
        due = state.step % self.settings.update_every == 0
        state, output = self._step(state, inputs, update=due)
        # The only assignment, and the last: an exception anywhere above leaves all as it was.
        self.state = replace(state, batches=state.batches + 1, samples=state.samples + size)
        return output

    def _warn_once(self, size: int) -> None:
        if size < guards.SMALL_BATCH and not self._warned_small_batch:
            self._warned_small_batch = True
            guards.warn_small_batch(size)

    # --- control ---------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget all adaptation: the next batch meets the source model, bit for bit."""
        self._build()
        self.state = self._fresh(self.state)

    def freeze(self) -> None:
        """Go on predicting with what was learnt so far, without learning more."""
        self._set_mode("frozen")

    def disable(self) -> None:
        """Predict with the source model as it is, its own statistics included."""
        self._set_mode("disabled")

    def resume(self) -> None:
        """Adapt again, from where `freeze` or `disable` stopped."""
        self._set_mode("adapting")

    def unload(self) -> nn.Module:
        """End adaptation and hand the untouched model back."""
        self._mode = "unloaded"
        return self.model

    def __enter__(self) -> Adapter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.unload()

    def health(self) -> Health:
        """What happened so far. Reads the counters from the device, so call it now and then."""
        counts = {name: int(value) for name, value in self.state.counts.items()}
        return Health(
            batches=self.state.batches,
            samples=self.state.samples,
            updates=counts["updates"],
            skipped_non_finite=counts["non_finite"],
            skipped_none_kept=counts["none_kept"],
            resets=self.state.resets,
            mode=self._mode,
        )

    @property
    def step(self) -> Step:
        """The pure function (state, inputs) -> (state, output) that every call goes through."""
        return self._step

    def in_preferred_memory(self, inputs: Inputs) -> Inputs:
        """The batch as `step` gets it: large batches of images in channels-last memory."""
        prefers = self._prefers_channels_last(inputs.samples())
        return inputs.in_channels_last() if prefers else inputs

    def adapted_model(self) -> nn.Module:
        """A separate copy of the model that carries the adapted parameters and mixed statistics.

        With `statistics="batch"` the copy still holds the source's running statistics.
        """
        twin = copy.deepcopy(uncompiled(self.model))
        moved = {**self.state.parameters, **self.state.statistics}
        twin.load_state_dict(moved, strict=False)
        return twin

    # --- saving ----------------------------------------------------------------------------------

    def state_dict(  # type: ignore[override]
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """What moved, the optimiser and the counters; never the model's own weights."""
        saved = {} if destination is None else destination
        saved.update({prefix + name: value for name, value in self.state.flattened().items()})
        return saved

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Continue from a saved state, bit for bit. Checked whole before anything changes."""
        with torch.inference_mode(False):
            self.state = self.state.filled(state_dict)
        return torch.nn.modules.module._IncompatibleKeys([], [])

    def __deepcopy__(self, memo: dict[int, Any]) -> Adapter:
        twin = Adapter(copy.deepcopy(self.model, memo), self.settings)
        with torch.inference_mode(False):
            twin.state = self.state.map(torch.clone)
        twin._mode = self._mode
        twin._warned_small_batch = self._warned_small_batch
        return twin

    # --- nn.Module -------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Adapter:
        """Changes nothing: dropout stays off, and the model's own flags stay as they are."""
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Adapter:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._build()
        with torch.inference_mode(False):
            self.state = self.state.map(fn)
        return self

    def extra_repr(self) -> str:
        """What adapts, shown by `print(adapter)`."""
        return f"objective={self.settings.objective}, moving={len(self._names)} tensors, mode={self._mode}"

    # --- inside ----------------------------------------------------------------------------------

    @torch.inference_mode(False)
    def _build(self) -> None:
        """Skeletons and tensors for running the model, read afresh from the user's model."""
        plain = uncompiled(self.model)
        self._batch_norms = batch_norm_layers(plain)
        run = runner(self.model, compiled=self.settings.compile)
        fixed = {name: _ordinary(value) for name, value in plain.named_parameters()}
        buffers = {name: value.detach().clone() for name, value in plain.named_buffers()}
        fixed |= {name: buffers.pop(name) for name in recorded_statistics(plain) if name in buffers}
        self._source = network = Network(skeleton(plain), fixed, buffers, run)
        self._mixed_names: list[str] = []
        mixing = None
        statistics = self.settings.statistics
        if statistics == "batch":
            network = replace(network, module=use_batch_statistics(skeleton(plain)))
        elif statistics != "source":
            twin, self._mixed_names = mix_in_statistics(skeleton(plain), statistics)
            # Never compiled: the compiler takes modules that differ in their hooks for the same.
            mixing = replace(network, module=twin, run=functional_call)
        if run is functional_call and self._names:
            # On a skeleton of its own: the source's passes must not meet what an update kept.
            twin = network.module if statistics == "batch" else skeleton(plain)
            if self.settings.winograd:
                use_winograd(twin)
            network = replace(network, module=twin, reuse=Reuse(twin, self._names))
        self._step = Step(
            network=network,
            mixing=mixing if self._mixed_names else None,
            objective=self.settings.objective,
            optimizer=self.settings.optimizer,
            steps=self.settings.steps,
            predict=self.settings.predict,
            logits=self.settings.logits,
            seed=self.settings.seed,
        )

    @torch.inference_mode(False)
    def _initial_state(self) -> State:
        fixed = self._step.network.fixed
        parameters = {name: fixed[name].clone() for name in self._names}
        device = next(iter(fixed.values())).device if fixed else torch.device("cpu")
        return State(
            parameters=parameters,
            statistics={name: fixed[name].clone() for name in self._mixed_names},
            moments=self.settings.optimizer.start(parameters) if parameters else {},
            counts=fresh_counts(device),
        )

    def _fresh(self, state: State) -> State:
        """The initial state, with the history of counts carried on."""
        return replace(
            self._initial_state(),
            counts=state.counts,
            batches=state.batches,
            samples=state.samples,
            resets=state.resets + 1,
        )

    def _prefers_channels_last(self, samples: Tensor) -> bool:
        """Asked for, or a batch of images so large that the faster convolutions pay."""
        if samples.ndim != 4 or not samples.is_floating_point():
            return False
        if self.settings.channels_last is not None:
            return self.settings.channels_last
        return samples.device.type in ("cpu", "cuda") and samples.numel() >= CHANNELS_LAST_ELEMENTS

    def _set_mode(self, mode: Mode) -> None:
        if self._mode == "unloaded":
            raise RuntimeError("this adapter was unloaded. Call fenchel.adapt again for a new one.")
        self._mode = mode


def _ordinary(tensor: Tensor) -> Tensor:
    """Tensors made in inference mode cannot take part in a backward pass; their copies can."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()
