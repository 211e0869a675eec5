"""Learning an objective: the model adapts under it, and it follows the gradient of the task loss.

In every epoch the model starts from the source and adapts batch by batch under the objective as it
is. Every few batches the adaptation step is differentiated (`gradient`): the adapted model is scored
on a second, labelled batch, and the objective takes one step of Adam. Random draws come from
counters. So a run continues from the objective, its moments, the adapted parameters and the number of
the batch alone, and ends in the same bits as one that was never interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fenchel.adapters import Adapter, Inputs, Settings
from fenchel.data.batch import Batch
from fenchel.data.stream import Shift, Stream
from fenchel.methods import Descent
from fenchel.objectives import LearnedObjective, LossNetwork
from fenchel.train import state
from fenchel.train.meta.gradient import MetaGradient, meta_gradient
from fenchel.train.meta.run import TASK_LOSSES, MetaRun, require_same_protocol
from fenchel.train.reporting import Reporter, reporter
from fenchel.train.run import write_history
from fenchel.train.schedule import SCHEDULES, learning_rate
from fenchel.train.seeds import derive_seed

FILE_NAME = "learned.safetensors"
START_SCALE = 1e-2
"""The factor on the last layer's initial weights: the objective starts almost flat."""


def learn(run: MetaRun, report: Reporter | None = None) -> LearnedObjective:
    """Learn the objective of `run`, continue where it was left, or read it if it is finished.

    Raises:
        ValueError: the folder holds a run with other settings, another process is at work there,
            or the task loss became infinite.
    """
    finished = run.out / FILE_NAME
    with state.exclusive(run.out), torch.random.fork_rng(devices=[]):
        protocol = run.protocol()
        if (started := _started(run.out)) is not None:
            require_same_protocol(run.out, started, protocol)
        if not finished.is_file():
            learner = Learner(run, protocol)
            learner.continue_to_end(report)
            LearnedObjective(learner.network, protocol).save(finished)
        state.remove(run.out)
    return LearnedObjective.load(finished)


def _started(folder: Path) -> dict[str, Any] | None:
    """The protocol of the run in `folder`, finished or under way."""
    if (folder / FILE_NAME).is_file():
        return dict(LearnedObjective.load(folder / FILE_NAME).protocol)
    return state.read_identity(folder)


class Learner:
    """The loss network, its optimiser, the adapter that it drives, and how they move."""

    def __init__(self, run: MetaRun, protocol: dict[str, Any]) -> None:
        self.run, self.protocol, self.recipe = run, protocol, run.recipe
        self.device = torch.device(run.device)
        torch.manual_seed(derive_seed(self.recipe.seed, "loss network"))
        classes = len(run.source.classes)
        self.network = LossNetwork(classes=classes, **self.recipe.sizes).to(self.device)
        start_almost_flat(self.network)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(),
            lr=self.recipe.learning_rate,
            weight_decay=self.recipe.weight_decay,
        )
        self.adapter = Adapter(
            run.source.model.to(self.device),
            Settings(
                method=Descent(objective=LearnedObjective(self.network)),
                optimizer=self.recipe.optimizer,
                predict="before",  # the prediction is not needed, and this one costs nothing
                protect=False,
            ),
        )
        self.task_loss = TASK_LOSSES[self.recipe.task_loss]
        self.progress = state.Progress(totals=torch.zeros(3, device=self.device))
        if (run.out / state.FILE_NAME).is_file():
            self.progress = state.restore(run.out, self.network, self.optimizer)
        if self.progress.extra:
            self.adapter.load_state_dict(self.progress.extra)
        self._saved = time.monotonic()

    def continue_to_end(self, report: Reporter | None = None) -> None:
        """Take every batch that is left, saving after each epoch and every so often within one."""
        epochs, here = self.recipe.epochs, self.progress
        left = (epochs - here.epoch) * self.recipe.batches - here.step
        shown = reporter(epochs, here.epoch, left) if report is None else nullcontext(report)
        with shown as showing:
            while here.epoch < epochs:
                self._finish_epoch(showing)

    def _finish_epoch(self, report: Reporter) -> None:
        end = 0
        for stream, tasks, count in self._streams(self.progress.epoch):
            begin, end = end, end + count
            if self.progress.step < end:
                self._visit(stream, tasks, begin, end, report)
        self._close_epoch(report)

    def _visit(self, stream: Stream, tasks: Stream, begin: int, end: int, report: Reporter) -> None:
        """Adapt from the source over batches `begin` to `end` of the epoch, or those still left."""
        here, every = self.progress, self.recipe.every
        if here.step <= begin:
            self.adapter.reset()
        batches = islice(_endless(stream), here.step - begin, end - begin)
        judges = islice(_endless(tasks), here.step // every - begin // every, None)
        window: list[Tensor] = []
        for batch in batches:
            here.step += 1
            window.append(batch.inputs)
            # Batches of an unrolled window wait for the one with the update.
            if here.step % every == 0:
                self._update_objective(window, next(judges))
                window = []
                self._save_if_due()
            elif every - here.step % every >= self.recipe.unroll:
                self.adapter(window.pop())
            report.step(len(batch))

    def _save_if_due(self) -> None:
        """After an update no batch is waiting, so the adapter's state is all there is to keep."""
        if time.monotonic() - self._saved >= self.run.save_seconds:
            self.progress.extra = self.adapter.state_dict()
            self._save()

    def _save(self) -> None:
        state.save(self.run.out, self.protocol, self.network, self.optimizer, self.progress)
        self._saved = time.monotonic()

    def _streams(self, epoch: int) -> Iterator[tuple[Stream, Stream, int]]:
        """The streams of an epoch: (to adapt on, to be scored on, batches)."""
        shifts, recipe = self.run.shifts, self.recipe
        groups = [tuple(shifts)] if recipe.setting == "mixed" else [(shift,) for shift in shifts]
        share, more = divmod(recipe.batches, len(groups))
        for place, group in enumerate(groups):
            seeds = [derive_seed(recipe.seed, kind, epoch, place) for kind in ("adapt", "judge")]
            adapt, judge = (self._stream(group, seed) for seed in seeds)
            yield adapt, judge, share + (place < more)

    def _stream(self, shifts: tuple[Shift, ...], seed: int) -> Stream:
        images = sum(len(shift.dataset) for shift in shifts)
        return Stream(
            shifts=shifts,
            setting="mixed",
            batch_size=min(self.recipe.batch_size, images),
            seed=seed,
            device=self.device,
        )

    def _update_objective(self, window: list[Tensor], judge: Batch) -> None:
        """One differentiable adaptation, and one step of Adam along its gradient."""
        here, recipe = self.progress, self.recipe
        labels = judge.reveal_labels()
        outcome: MetaGradient = meta_gradient(
            self.adapter.step,
            self.adapter.state,
            [inputs_of(self.adapter, inputs) for inputs in window],
            inputs_of(self.adapter, judge.inputs),
            lambda logits: self.task_loss(logits, labels).mean(),
            order=recipe.order,
        )
        self.adapter.state = outcome.state
        for parameter, gradient in zip(self.network.parameters(), outcome.gradients, strict=True):
            parameter.grad = gradient
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(
                SCHEDULES[recipe.schedule], recipe.learning_rate, 0.0, here.epoch, recipe.epochs
            )
        self.optimizer.step()
        hits = (outcome.task_logits.argmax(-1) == labels).sum()
        count = len(labels)
        here.totals += torch.stack([outcome.task_loss * count, hits, hits.new_tensor(count)])

    def _close_epoch(self, report: Reporter) -> None:
        here = self.progress
        loss, hits, count = here.totals.tolist()
        skipped = self.adapter.health().skipped_non_finite
        if skipped or not math.isfinite(loss):
            came = f"it became {loss}" if not skipped else f"{skipped} updates were not"
            raise ValueError(
                f"the task loss must stay finite; in epoch {here.epoch + 1} {came}. Lower the learning "
                "rates, of the adaptation or of the objective."
            )
        row = {
            "epoch": here.epoch + 1,
            "train_loss": loss / count,
            "train_accuracy": hits / count,
        }
        here.history.append(row)
        here.epoch, here.step, here.extra = here.epoch + 1, 0, {}
        here.totals.zero_()
        self._save()
        write_history(self.run.out, here.history)
        report.epoch(here.epoch, row)


def start_almost_flat(network: LossNetwork) -> None:
    """Scale the last layer down, so that adaptation begins as batch statistics alone.

    A random objective drives the model away at random, and a short run would be spent on undoing that.
    Not quite flat: Adam's step does not depend on the scale of a gradient, but it needs one.
    """
    *_, weight, _ = network.head.parameters()
    with torch.no_grad():
        weight.mul_(START_SCALE)


def inputs_of(adapter: Adapter, samples: Tensor) -> Inputs:
    """A batch as the adapter hands it to its step."""
    return adapter.in_preferred_memory(Inputs((samples,), {}))


def _endless(stream: Stream) -> Iterator[Batch]:
    """The full batches of a stream, over and over."""
    batches = chain.from_iterable(repeat(stream))
    return (batch for batch in batches if len(batch) == stream.batch_size)
