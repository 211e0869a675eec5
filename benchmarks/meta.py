"""One meta step (an adaptation step and the gradient through it) beside a plain adaptation step.

    python benchmarks/meta.py [--network thin|wide] [--batch-size 200] [--rounds 5]
                              [--quick] [--json FILE]

Every variant runs once per round, and ratios are taken within rounds (CPU time). The plain step is the
deployed one: update on the entropy, then prediction. Double backward is the usual way to the same
gradient: one graph from the loss network through the update to the task loss. Peak memory is that of
one step, each in a process of its own. Fails if a meta step costs more than 3 plain ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from common.measuring import in_fresh_process, interleaved, memory_growth
from common.reporting import parser_of, publish
from fenchel.adapters import SGD, Adapter, Settings
from fenchel.methods import as_method
from fenchel.models import build
from fenchel.objectives import Entropy, LearnedObjective, LossNetwork, Objective
from fenchel.train.meta import meta_gradient
from fenchel.train.meta.learn import inputs_of

PROTOCOL = (
    "CPU seconds of one step, one thread (medians); ratios within interleaved rounds, with their range; peak "
    "growth of the resident set in a fresh process."
)
MOST = 3.0
CLASSES = 10
NETWORKS = {"thin": "resnet26", "wide": "resnet26_wide"}


def adapter_with(model: nn.Module, objective: Objective) -> Adapter:
    return Adapter(model, Settings(method=as_method(objective), optimizer=SGD(learning_rate=1e-3)))


def ways(network: str, batch: int) -> dict[str, Callable[[], object]]:
    """The steps to compare, on the same images."""
    torch.manual_seed(0)
    model = build(NETWORKS[network], classes=CLASSES).eval()
    images, others = torch.rand(2, batch, 3, 32, 32)
    labels = torch.randint(0, CLASSES, (batch,))
    task = partial(task_loss, labels)
    learned = adapter_with(model, LearnedObjective(LossNetwork(classes=CLASSES)))

    def meta() -> object:
        inputs, judge = inputs_of(learned, images), inputs_of(learned, others)
        return meta_gradient(learned.step, learned.state, [inputs], judge, task)

    return {
        "plain": partial(adapter_with(model, Entropy()), images),
        "meta": meta,
        "double backward": partial(double_backward, learned, images, others, task),
    }


def task_loss(labels: Tensor, logits: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits, labels)


def double_backward(
    adapter: Adapter, images: Tensor, others: Tensor, task: Callable[[Tensor], Tensor]
) -> tuple[Tensor, ...]:
    """The same gradient through one graph."""
    step, objective = adapter.step, adapter.settings.objective
    assert isinstance(objective, LearnedObjective)
    blueprint = step.workshop.blueprint
    fixed, module = blueprint.fixed, blueprint.networks().moving.module
    images, others = (x.contiguous(memory_format=torch.channels_last) for x in (images, others))
    moving = {n: v.detach().requires_grad_() for n, v in adapter.state.parameters.items()}
    value = objective(functional_call(module, {**fixed, **moving}, (images,))).mean()
    found = torch.autograd.grad(value, list(moving.values()), create_graph=True)
    gradients = dict(zip(moving, found, strict=True))
    moved, _ = step.optimizer.update(moving, gradients, adapter.state.moments)
    loss = task(functional_call(module, {**fixed, **moved}, (others,)))
    weights = list(objective.network.parameters())
    return torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)


def peak_of(name: str, network: str, batch: int) -> int:
    """Bytes that one step takes on top of what the process holds, after one on a small batch."""
    torch.set_num_threads(1)
    ways(network, min(batch, 20))[name]()
    return memory_growth(ways(network, batch)[name]).peak


def main() -> int:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--network", choices=list(NETWORKS), default="thin")
    parser.add_argument("--batch-size", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    case = (options.network, 16 if options.quick else options.batch_size)
    timings = interleaved(ways(*case), options.rounds)
    results = [
        {
            "network": NETWORKS[options.network],
            "batch": case[1],
            "way": name,
            "cpu_seconds": timing.median,
            "of_plain_step": timing.over(timings["plain"]),
            "peak_bytes": in_fresh_process(peak_of, name, *case),
        }
        for name, timing in timings.items()
    ]
    publish("meta", PROTOCOL, results, options)
    ratio = timings["meta"].over(timings["plain"])[0]
    print(f"\na meta step costs {ratio:.2f} plain ones; at most {MOST:g} are wanted")
    return 0 if ratio <= MOST or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
