"""The exact gradient of a task loss with respect to the objective that adapted the model.

An adaptation step is theta', mu' = U(theta, g, mu) with g = grad_theta m_phi(h(theta)), U the
optimiser and mu its moments. The learned objective m_phi sees logits alone, so its parameters enter
through grad_h m_phi only, and with the adjoint v_g = (dU/dg)^T grad L_task(theta')

    grad_phi L_task = grad_phi < grad_h m_phi(h), J_theta h . v_g >

where J_theta h . v_g is one forward-mode product: no double backward through the network. Over
several steps the adjoint of theta also passes through the Hessian of m_phi(h(theta)); `order="second"`
adds that exactly, `order="first"` leaves it out. Over one step the two are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fenchel.adapters import SGD, Adam, Gradient, Inputs, Optimizer, State
from fenchel.adapters.state import Tensors
from fenchel.adapters.step import Step, Trace
from fenchel.methods import Descent
from fenchel.names import unknown
from fenchel.objectives.learned import LearnedObjective
from fenchel.train.meta.tangent import FixedConvolutions, duals

Order = Literal["first", "second"]


@dataclass(frozen=True)
class MetaGradient:
    """What one meta step yields.

    Attributes:
        gradients: those of the task loss, one for each parameter of the loss network, in their order.
        state: the state of the adapter after the inner steps.
        task_loss: the task loss of the adapted model, a scalar.
        task_logits: the logits of the adapted model on the task's batch.
    """

    gradients: list[Tensor]
    state: State
    task_loss: Tensor
    task_logits: Tensor


@dataclass(frozen=True)
class _Taken:
    """A step that the optimiser took: its batch, the state before it, and its gradient."""

    inputs: Inputs
    before: State
    gradient: Gradient

    @property
    def logits(self) -> Tensor:
        """The logits that the objective was computed on."""
        assert self.gradient.logits is not None
        return self.gradient.logits


def meta_gradient(
    step: Step,
    state: State,
    batches: Sequence[Inputs],
    task_inputs: Inputs,
    task_loss: Callable[[Tensor], Tensor],
    *,
    order: Order = "first",
) -> MetaGradient:
    """Adapt on every batch of `batches` in turn, then differentiate the task loss.

    Args:
        step: the step of an adapter with a `LearnedObjective` and the optimiser SGD or Adam.
        state: the state of the adapter.
        batches: unlabelled batches; one update per batch.
        task_inputs: a further batch, on which the adapted model is scored.
        task_loss: a function from the logits of that batch to a scalar; it holds the labels.
        order: see this module. It matters for several batches only.
    """
    if order not in get_args(Order):
        raise unknown("order of the meta-gradient", order, get_args(Order))
    objective = learned_objective(step)
    if not batches:
        raise ValueError("a meta step adapts on at least one batch; got none. Pass batches.")
    taken: list[_Taken] = []
    for inputs in batches:
        trace: Trace = []
        state = step.adapt(state, inputs, trace=trace)
        taken += [_Taken(inputs, before, gradient) for before, gradient in trace]
    loss, logits, towards = _task_gradient(step, state, task_inputs, task_loss)
    moments = {name: torch.zeros_like(value) for name, value in state.moments.items()}
    totals = [torch.zeros_like(parameter) for parameter in objective.network.parameters()]
    while taken:
        past = taken.pop()
        towards, sensitivity, moments = _through_update(step.optimizer, past, towards, moments)
        if taken and order == "second":
            shares, curvature = _by_double_backward(step, past, sensitivity)
            towards = {name: towards[name] + curvature[name] for name in towards}
        else:
            shares = _by_tangent(step, past, sensitivity)
        totals = [total + share for total, share in zip(totals, shares, strict=True)]
    return MetaGradient(totals, state, loss, logits)


def learned_objective(step: Step) -> LearnedObjective:
    """The objective of the step, if it can be learned through its optimiser."""
    objective = step.method.objective if isinstance(step.method, Descent) else None
    if not isinstance(objective, LearnedObjective):
        raise TypeError(
            f"a meta step needs a LearnedObjective; the adapter has {step.method!r}. "
            "Build it with fenchel.adapt(model, objective=LearnedObjective(LossNetwork(...)))."
        )
    if not isinstance(step.optimizer, (SGD, Adam)):
        raise TypeError(
            "a meta step differentiates through the optimiser, which must be 'sgd' or 'adam'; got "
            f"{type(step.optimizer).__name__}. Choose one of the two."
        )
    return objective


def _task_gradient(
    step: Step, state: State, inputs: Inputs, task_loss: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensors]:
    """The task loss of the adapted model, its logits, and its gradient in the moving parameters."""
    with step.passes(state, inputs) as passes:
        found = passes.gradient(
            lambda theta: task_loss(passes.logits(theta, inputs)), state.parameters
        )
    assert found.logits is not None
    return found.value, found.logits, found.tensors


def _through_update(
    optimizer: Optimizer, past: _Taken, towards: Tensors, moments: Tensors
) -> tuple[Tensors, Tensors, Tensors]:
    """Adjoints of (theta', mu') to those of (theta, g, mu), by autograd through the update."""
    with torch.enable_grad():
        places = [
            _leaves(past.before.parameters),
            _leaves(past.gradient.tensors),
            _leaves(past.before.moments),
        ]
        parameters, new_moments = optimizer.update(*places)
    outputs = [*parameters.values(), *new_moments.values()]
    adjoints = [*(towards[name] for name in parameters), *(moments[name] for name in new_moments)]
    found = iter(
        torch.autograd.grad(
            outputs,
            [leaf for place in places for leaf in place.values()],
            adjoints,
            allow_unused=True,
            materialize_grads=True,
        )
    )
    towards, sensitivity, moments = ({name: next(found) for name in place} for place in places)
    return towards, _without_roots_of_zero(sensitivity, past.gradient.tensors), moments


def _without_roots_of_zero(sensitivity: Tensors, gradients: Tensors) -> Tensors:
    """Adam's root has no slope at zero: parameters that no sample reaches have a NaN here.

    Their column of the Jacobian is zero as well, so that zero is what they contribute.
    """
    return {
        name: torch.where(value.isnan() & (gradients[name] == 0), torch.zeros_like(value), value)
        for name, value in sensitivity.items()
    }


def _by_tangent(step: Step, past: _Taken, sensitivity: Tensors) -> list[Tensor]:
    """grad_phi < grad_h m_phi(h), J_theta h . v_g >, J_theta h . v_g in forward mode."""
    with (
        torch.no_grad(),
        forward_ad.dual_level(),
        FixedConvolutions(),
        step.passes(past.before, past.inputs) as passes,
    ):
        logits = passes.logits(duals(past.before.parameters, sensitivity), past.inputs)
        tangent = forward_ad.unpack_dual(logits).tangent  # type: ignore[no-untyped-call]
    if tangent is None:  # no moving parameter reaches the logits
        tangent = torch.zeros_like(past.logits)
    objective = learned_objective(step)
    with torch.enable_grad():
        logits = past.logits.requires_grad_()
        (slope,) = torch.autograd.grad(objective(logits).mean(), logits, create_graph=True)
        return list(
            torch.autograd.grad(
                (slope * tangent).sum(),
                list(objective.network.parameters()),
                allow_unused=True,
                materialize_grads=True,
            )
        )


def _by_double_backward(
    step: Step, past: _Taken, sensitivity: Tensors
) -> tuple[list[Tensor], Tensors]:
    """The same, and the Hessian of m_phi(h(theta)) times v_g beside it."""
    objective = learned_objective(step)
    parameters = list(objective.network.parameters())
    with torch.enable_grad(), step.passes(past.before, past.inputs) as passes:
        moving = _leaves(past.before.parameters)
        value = objective(passes.logits(moving, past.inputs)).mean()
        gradients = _gradients(value, moving, create_graph=True)
        product = torch.stack([(gradients[n] * sensitivity[n]).sum() for n in moving]).sum()
        found = torch.autograd.grad(
            product, [*parameters, *moving.values()], allow_unused=True, materialize_grads=True
        )
    curvature = dict(zip(moving, found[len(parameters) :], strict=True))
    return list(found[: len(parameters)]), curvature


def _leaves(tensors: Tensors) -> Tensors:
    return {name: value.detach().requires_grad_() for name, value in tensors.items()}


def _gradients(value: Tensor, moving: Tensors, *, create_graph: bool = False) -> Tensors:
    found = torch.autograd.grad(
        value,
        list(moving.values()),
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(moving, found, strict=True))
