"""One adaptation step beside the bare network, and beside the step as research code writes it.

    python benchmarks/step.py [--network wide|thin|imagenet] [--rounds 5] [--retain] [--json FILE]

Every way of doing it runs once a round, and ratios are taken within rounds (CPU time). The naive step solves
for the label with dense C x C matrices inside autograd (PolyLoss; for the 1,000 classes of ImageNet it
takes the softmax entropy, which is cheaper), moves the normalisation layers with torch.optim, and
predicts with a second forward whose graph is kept. `--retain` lets the process keep freed memory.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fenchel
from common.measuring import Timing, in_fresh_process, interleaved, machine, peak_growth
from fenchel.models import build
from fenchel.performance import retain_freed_memory

EPSILON = 6.0
NETWORKS: dict[str, tuple[str, int, int, int]] = {
    # name of the model, classes, batch, side of the images
    "wide": ("resnet26_wide", 10, 200, 32),
    "thin": ("resnet26", 10, 200, 32),
    "imagenet": ("resnet50", 1000, 16, 224),
}


class NaiveStep:
    """The step as released research code takes it."""

    def __init__(self, model: nn.Module, objective: Callable[[Tensor], Tensor]) -> None:
        self.model = copy.deepcopy(model).train().requires_grad_(False)
        moving = []
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.requires_grad_(True)
                module.track_running_stats = False
                module.running_mean = module.running_var = None
                moving += [module.weight, module.bias]
        self.optimizer = torch.optim.SGD(moving, lr=1e-3, momentum=0.9, nesterov=True)
        self.objective = objective

    def __call__(self, x: Tensor) -> Tensor:
        loss = self.objective(self.model(x)).mean()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        # Its caller's variable keeps the last output, and the graph behind it, until the next is there.
        output: Tensor = self.model(x)
        self.output = output
        return output


def dense_conjugate(h: Tensor) -> Tensor:
    """PolyLoss at the label solved from the C x C system of every sample."""
    z = h.softmax(-1)
    spread = torch.diag_embed(z) - z[:, :, None] * z[:, None, :]
    matrix = torch.eye(h.shape[-1]) + EPSILON * spread
    label: Tensor = torch.linalg.solve(matrix, z)
    return h.logsumexp(-1) - (label * (h - EPSILON * (1 - z))).sum(-1)


def entropy(h: Tensor) -> Tensor:
    return -(h.softmax(-1) * h.log_softmax(-1)).sum(-1)


def bare_pass(model: nn.Module) -> Callable[[Tensor], object]:
    """Forward and backward to the normalisation layers, and nothing else."""
    naive = NaiveStep(model, entropy)
    moving = [value for group in naive.optimizer.param_groups for value in group["params"]]

    def run(x: Tensor) -> object:
        x = x.contiguous(memory_format=torch.channels_last)
        return torch.autograd.grad(naive.model(x).logsumexp(-1).mean(), moving)

    return run


def ways_of(network: str) -> dict[str, Callable[[], object]]:
    name, classes, batch, side = NETWORKS[network]
    torch.manual_seed(0)
    model = build(name, classes=classes).eval()
    x = torch.rand(batch, 3, side, side)
    loss = fenchel.PolyLoss(epsilon=EPSILON)

    def adapter(**options: Any) -> fenchel.Adapter:
        return fenchel.adapt(model, trained_with=loss, **options)

    inference = copy.deepcopy(model)

    def infer() -> Tensor:
        with torch.inference_mode():
            output: Tensor = inference(x)
            return output

    naive = NaiveStep(model, entropy if classes > 100 else dense_conjugate)
    steps: dict[str, Callable[[Tensor], object]] = {
        "naive step": naive,
        "full step": adapter(),
        "step, predict before": adapter(predict="before"),
        "step, last:1": adapter(parameters="last:1"),
        "bare forward + backward": bare_pass(model),
    }
    ways: dict[str, Callable[[], object]] = {name: partial(step, x) for name, step in steps.items()}
    return ways | {"inference": infer}


def peak_of(network: str, way: str) -> int:
    """The growth of the peak memory over two steps; the first output is alive during the second."""
    run = ways_of(network)[way]
    return peak_growth(lambda: (run(), run()))


def report(network: str, timings: dict[str, Timing], peaks: dict[str, int]) -> list[dict[str, Any]]:
    name, classes, batch, side = NETWORKS[network]
    print(f"\n{name}, {classes} classes, batch {batch}, {side} px\n")
    print("| way | CPU s | of the naive step | of bare forward + backward | peak MiB | of naive |")
    print("|---|---|---|---|---|---|")
    rows = []
    naive, bare = timings["naive step"], timings["bare forward + backward"]
    for way, timing in timings.items():
        to_naive, to_bare = timing.over(naive), timing.over(bare)
        share = peaks[way] / peaks["naive step"]
        print(
            f"| {way} | {timing.median:.3f} | {to_naive[0]:.2f} ({to_naive[1]:.2f}-{to_naive[2]:.2f}) "
            f"| {to_bare[0]:.2f} ({to_bare[1]:.2f}-{to_bare[2]:.2f}) "
            f"| {peaks[way] / 2**20:.0f} | {share:.2f} |"
        )
        rows.append(
            {
                "network": name,
                "way": way,
                "cpu_seconds": timing.median,
                "of_naive": to_naive,
                "of_bare": to_bare,
                "peak_bytes": peaks[way],
                "peak_of_naive": share,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, action="append", help="default: all three")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--retain", action="store_true", help="keep freed memory in the process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    arguments = parser.parse_args()
    retained = arguments.retain and retain_freed_memory()
    print(f"{machine()}, freed memory {'retained' if retained else 'returned'}")
    results = []
    for network in arguments.network or NETWORKS:
        ways = ways_of(network)
        timings = interleaved(ways, arguments.rounds)
        peaks = {name: in_fresh_process(peak_of, network, name) for name in ways}
        results += report(network, timings, peaks)
    if arguments.json is not None:
        content = {"machine": machine(), "retained": bool(retained), "results": results}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
