"""The adapter: an `nn.Module` around a model, which adapts while it predicts and never modifies it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from fenchel.adapters import guards
from fenchel.adapters.compiled import uncompiled
from fenchel.adapters.core import Core, Settings
from fenchel.adapters.harm import Detector
from fenchel.adapters.health import Health, Mode
from fenchel.adapters.inputs import Inputs
from fenchel.adapters.seen import stream_statistics
from fenchel.adapters.session import Session
from fenchel.adapters.state import State, Tensors
from fenchel.adapters.step import Step
from fenchel.adapters.watch import Watch


class Adapter(nn.Module):
    """A model that adapts to each batch it predicts. Call it as you would call the model.

    The user's model, `adapter.model`, is never modified: what moves lives in `adapter.state`.
    `train()` and `eval()` change nothing; `freeze()`, `resume()` and `disable()` do. `session()` gives
    further streams on the same network, each with a state of its own.

    >>> import fenchel
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    >>> adapted = fenchel.adapt(network, trained_with="cross-entropy")
    >>> adapted(torch.randn(32, 4)).shape
    torch.Size([32, 3])
    >>> adapted.freeze()
    >>> saved = adapted.state_dict()
    >>> adapted.reset()
    >>> adapted.load_state_dict(saved)
    <All keys matched successfully>
    """

    model: nn.Module

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        super().__init__()
        guards.check_model(model)
        if isinstance(model, Adapter):
            raise TypeError("this model is adapted already; got an Adapter. Pass adapter.model.")
        self.model = model
        self.settings = settings
        self.unloaded = False
        self.core = Core.of(model, settings)
        self._sessions: WeakSet[Session] = WeakSet()
        on_batch = settings.on_batch
        self._detector = copy.deepcopy(on_batch) if isinstance(on_batch, Detector) else None
        self._own = self._added(Session(self, on_batch))

    # --- calling ---------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Adapt to the batch and predict it: the model's own signature and output."""
        return self._own(*args, **kwargs)

    def source_prediction(self, *args: Any, **kwargs: Any) -> Any:
        """What the source model returns, its own statistics included. Nothing is learnt or counted."""
        return self._own.source_prediction(*args, **kwargs)

    def unmoved_prediction(self, *args: Any, **kwargs: Any) -> Any:
        """What the source's parameters give under the statistics of the adapter: no update counts."""
        return self._own.unmoved_prediction(*args, **kwargs)

    def session(self) -> Session:
        """A stream of its own on this network, from the source on. It costs no copy of the weights.

        >>> import fenchel
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        >>> adapted = fenchel.adapt(network, trained_with="cross-entropy")
        >>> streets, fields = adapted.session(), adapted.session()
        >>> _ = streets(torch.randn(32, 4))
        >>> streets.health().updates, fields.health().updates
        (1, 0)
        """
        if self._detector is None:
            return self._added(Session(self, self.settings.on_batch))
        return self._added(Session(self, copy.deepcopy(self._detector)))  # as it was given

    def _added(self, session: Session) -> Session:
        self._sessions.add(session)
        return session

    # --- control ---------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """What the adapter remembers of its own stream. Tensors of a state are never changed in place."""
        return self._own.state

    @state.setter
    def state(self, state: State) -> None:
        self._own.state = state

    def reset(self) -> None:
        """Forget all adaptation: the next batch starts from the source model, bit for bit."""
        self.core = Core.of(self.model, self.settings)
        self._own.reset()

    def freeze(self) -> None:
        """Go on predicting with what was learnt so far, without learning more."""
        self._own.freeze()

    def disable(self) -> None:
        """Predict with the source model as it is, its own statistics included."""
        self._own.disable()

    def resume(self) -> None:
        """Adapt again, from where `freeze` or `disable` stopped."""
        self._own.resume()

    def unload(self) -> nn.Module:
        """End adaptation, of all sessions, and hand the untouched model back."""
        self.unloaded = True
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
        return self._own.health()

    @property
    def watch(self) -> Watch | None:
        """What watches its own stream; None with `protect=False`."""
        return self._own.watch

    @property
    def step(self) -> Step:
        """The pure function (state, inputs) -> (state, output) that every call goes through."""
        return self.core.step

    def in_preferred_memory(self, inputs: Inputs) -> Inputs:
        """The batch as `step` gets it: large batches of images in channels-last memory."""
        return self.core.in_preferred_memory(inputs)

    def adapted_model(self) -> nn.Module:
        """A separate copy of the model that predicts alone as the adapter does: use it without this library.

        It carries the adapted parameters and the statistics of the stream: those that the adapter mixes,
        or, where it uses each batch's own, those of all recent batches together.
        """
        twin = copy.deepcopy(uncompiled(self.model))
        state = self.state
        moved = {
            **stream_statistics(state.seen),
            **state.statistics,
            **self.settings.method.predictor(state),
        }
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
        """What moved, the method's memory, the optimiser and the counters; never the model's weights."""
        saved = {} if destination is None else destination
        saved.update({prefix + name: value for name, value in self._own.state_dict().items()})
        return saved

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Continue from a saved state, bit for bit. Checked whole before anything changes."""
        self._own.load_state_dict(state_dict)
        return torch.nn.modules.module._IncompatibleKeys([], [])

    def __deepcopy__(self, memo: dict[int, Any]) -> Adapter:
        with torch.inference_mode(False):
            state = self.state.map(torch.clone)
        model, own = copy.deepcopy(self.model, memo), self._own
        return _rebuilt(model, self.settings, state, own.mode, own.watched())

    def __reduce__(self) -> tuple[Any, ...]:
        own = self._own
        return _rebuilt, (self.model, self.settings, self.state, own.mode, own.watched())

    # --- nn.Module -------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Adapter:
        """Changes nothing: dropout stays off, and the model's own flags stay as they are."""
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Adapter:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.core = Core.of(self.model, self.settings)
        with torch.inference_mode(False):
            for session in self._sessions:
                session.move(fn)
        return self

    def extra_repr(self) -> str:
        """What adapts, shown by `print(adapter)`."""
        method, moving = self.settings.method, len(self.state.parameters)
        return f"method={method}, moving={moving} tensors, mode={self._own.mode}"


def _rebuilt(
    model: nn.Module, settings: Settings, state: State, mode: Mode, watched: Tensors | None = None
) -> Adapter:
    """An adapter that goes on where another one stood."""
    adapter = Adapter(model, settings)
    adapter._own.go_on(state, watched or {})
    if mode == "unloaded":
        adapter.unload()
    else:
        adapter._own.set_mode(mode)
    return adapter
