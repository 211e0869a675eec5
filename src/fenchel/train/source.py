"""Training of a source model: one loop for every loss, resumable to the bit.

Randomness comes from counters (`seeds`), learning rates from the step number (`schedule`), and
everything else that the next step depends on is in one file (`state`). So a run that is killed at
any moment continues from its last save to the same bits as one that was not.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from fenchel.models import Checkpoint, Metadata, build, read_metadata
from fenchel.models.checkpoint import FILE_NAME as CHECKPOINT_NAME
from fenchel.models.weights import load_parameters
from fenchel.train import augmentation, state
from fenchel.train.evaluation import evaluate
from fenchel.train.examples import Examples, hold, hold_out, prepare
from fenchel.train.outputs import require_logits
from fenchel.train.recipe import Recipe
from fenchel.train.reporting import Reporter, reporter
from fenchel.train.run import (
    Result,
    TrainingRun,
    arguments_for,
    metadata_for,
    read_history,
    require_same_run,
    write_history,
)
from fenchel.train.schedule import SCHEDULES, learning_rate
from fenchel.train.seeds import derive_seed, generator

NOTE_EVERY = 10
"""Steps between two readings of the running loss; each reading is a synchronisation on a GPU."""

SAVING_SHARE = 0.02
"""The largest share of the time that saving the state within an epoch may take."""


def train(run: TrainingRun, report: Reporter | None = None) -> Result:
    """Train `run`, continue it where it was left, or return what it left when it is finished.

    Raises:
        ValueError: the folder holds a run with other settings, another process is at work there,
            or the loss became infinite.
    """
    with state.exclusive(run.out), torch.random.fork_rng(devices=[]):
        started = _started(run.out)
        threads = run.threads or _threads_of(started) or torch.get_num_threads()
        with _torch_threads(threads):
            examples = hold(run.data, torch.device(run.device), run.limit)
            examples, held_out = hold_out(examples, run.recipe.held_out, run.seed)
            metadata = metadata_for(run, arguments_for(run, examples), threads)
            if started is not None:
                require_same_run(run.out, started, metadata)
            finished = run.out / CHECKPOINT_NAME
            if not finished.is_file():
                trainer = Trainer(run, metadata, examples, held_out)
                trainer.continue_to_end(report)
                trainer.keep(finished)
            state.remove(run.out)
    return Result(finished, read_metadata(finished).metrics, read_history(run.out))


class Trainer:
    """The model, the optimiser and the position of one run, and how they move."""

    def __init__(
        self, run: TrainingRun, metadata: Metadata, examples: Examples, held_out: Examples | None
    ) -> None:
        self.run, self.metadata = run, metadata
        self.examples, self.held_out = examples, held_out
        self.augmentation = augmentation.parse(run.recipe.augmentation)
        self.device = torch.device(run.device)
        torch.manual_seed(derive_seed(run.seed, "weights"))
        model = (
            build(metadata.architecture, **metadata.arguments)
            if run.own is None
            else run.own.make(metadata.arguments)
        )
        if run.weights is not None:
            load_parameters(model, run.weights)
        model = model.to(self.device)
        if run.data.is_images and self.device.type != "mps":
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model: nn.Module = model.train()
        first = prepare(
            examples.read(torch.arange(len(examples))[:2]), self.augmentation, self.device
        )
        require_logits(self.model, first, run.loss.labels.scores(len(run.data.classes)))
        self.optimizer = make_optimizer(self.model, run.recipe)
        self.batch_size = min(run.recipe.batch_size, len(examples))
        self.steps = len(examples) // self.batch_size
        self.progress = state.Progress(totals=torch.zeros(3, device=self.device))
        if (run.out / state.FILE_NAME).is_file():
            self.progress = state.restore(run.out, self.model, self.optimizer)

    def continue_to_end(self, report: Reporter | None = None) -> None:
        """Take every step that is left, saving the state on the way."""
        epochs, here = self.run.recipe.epochs, self.progress
        left = (epochs - here.epoch) * self.steps - here.step
        shown = reporter(epochs, here.epoch, left) if report is None else nullcontext(report)
        with shown as showing:
            while here.epoch < epochs:
                self._finish_epoch(showing)

    def _finish_epoch(self, report: Reporter) -> None:
        here, run = self.progress, self.run
        order = torch.randperm(
            len(self.examples), generator=generator(run.seed, "order", here.epoch)
        )
        batches = torch.split(order, self.batch_size)[: self.steps]
        due = time.monotonic() + run.save_seconds
        while here.step < self.steps:
            self.take_step(batches[here.step])
            report.step(self.batch_size)
            if report.wants_notes and here.step % NOTE_EVERY == 0:
                report.note(*self._means())
            if time.monotonic() >= due and here.step < self.steps:
                due = self._save() + run.save_seconds
        self._close_epoch(report)

    def take_step(self, positions: Tensor) -> None:
        """One update on the examples at `positions`, and the position moves on by one."""
        here, run, recipe = self.progress, self.run, self.run.recipe
        inputs = self.examples.read(positions)
        if run.data.is_images:
            draws = generator(run.seed, "augmentation", here.epoch, here.step)
            inputs = self.augmentation(inputs, draws)
        inputs = inputs.to(self.device)
        labels = self.examples.labels[positions.to(self.device)]
        # Only for models that draw themselves, such as dropout.
        torch.manual_seed(derive_seed(run.seed, "model", here.epoch, here.step))
        done, total = here.epoch * self.steps + here.step, recipe.epochs * self.steps
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(
                SCHEDULES[recipe.schedule],
                recipe.learning_rate,
                recipe.final_learning_rate,
                done,
                total,
            )
        logits = self.model(inputs)
        value = run.loss(logits, run.loss.labels.targets(labels)).mean()
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(value)
        if recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip_norm)
        self.optimizer.step()
        hits = (run.loss.labels.predictions(logits.detach()) == labels).sum()
        here.totals += torch.stack(
            [value.detach() * len(labels), hits, hits.new_tensor(len(labels))]
        )
        here.step += 1

    def _means(self) -> tuple[float, float]:
        """Mean loss and accuracy over this epoch's steps; a loss that is no number ends the run."""
        loss, hits, count = self.progress.totals.tolist()
        if not math.isfinite(loss):
            raise ValueError(
                f"the training loss must stay finite; in epoch {self.progress.epoch + 1} it became "
                f"{loss}. Lower the learning rate, or clip the gradient's norm."
            )
        return loss / count, hits / count

    def _close_epoch(self, report: Reporter) -> None:
        """Score the held-out images, remember the best, and save."""
        here, run = self.progress, self.run
        loss, accuracy = self._means()
        row = {"epoch": here.epoch + 1, "train_loss": loss, "train_accuracy": accuracy}
        if self.held_out is not None:
            scores = evaluate(self.model, self.held_out, run.loss, self.augmentation)
            row |= {f"held_out_{name}": value for name, value in scores.items()}
            earlier = [past["held_out_accuracy"] for past in here.history]
            if run.recipe.keep == "best" and scores["accuracy"] > max(earlier, default=-1.0):
                here.best = {n: t.detach().clone() for n, t in self.model.state_dict().items()}
                here.best_epoch = here.epoch + 1
        here.history.append(row)
        here.epoch, here.step = here.epoch + 1, 0
        here.totals.zero_()
        self._save()
        write_history(run.out, here.history)
        report.epoch(here.epoch, row)

    def _save(self) -> float:
        """Save the state; returns the earliest moment for the next save of the same cost."""
        begin = time.monotonic()
        if self.progress.step:
            self._means()
        identity = self.metadata.to_strings()
        state.save(self.run.out, identity, self.model, self.optimizer, self.progress)
        end = time.monotonic()
        return end + (end - begin) / SAVING_SHARE

    def keep(self, path: Path) -> None:
        """Write the kept checkpoint, scored on the test set, which decided nothing."""
        here, run = self.progress, self.run
        epoch = here.best_epoch or here.epoch
        if here.best:
            self.model.load_state_dict(here.best)
        metrics = {k: v for k, v in here.history[epoch - 1].items() if k != "epoch"}
        if run.test is not None:
            scores = evaluate(self.model, hold(run.test, self.device), run.loss, self.augmentation)
            metrics |= {f"test_{name}": value for name, value in scores.items()}
        metadata = dataclasses.replace(self.metadata, epoch=epoch, metrics=metrics)
        write_history(run.out, here.history)
        Checkpoint(self.model, metadata).save(path)


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimiser that the recipe names, over every parameter."""
    rate, decay = recipe.learning_rate, recipe.weight_decay
    if recipe.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)
    return torch.optim.SGD(
        model.parameters(),
        lr=rate,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov and recipe.momentum > 0,
        weight_decay=decay,
    )


def _started(folder: Path) -> Metadata | None:
    """How the run in `folder` was started: from its checkpoint, or its state, if there is one."""
    if (folder / CHECKPOINT_NAME).is_file():
        return read_metadata(folder)
    identity = state.read_identity(folder)
    return None if identity is None else Metadata.from_strings(identity, str(folder))


def _threads_of(metadata: Metadata | None) -> int | None:
    return None if metadata is None else metadata.recipe.get("threads")


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
