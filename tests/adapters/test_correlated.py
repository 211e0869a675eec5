"""Labels that come in runs: noticed, made use of, and nothing changed where they do not."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import fenchel
from fenchel.adapters import correlated
from fenchel.adapters.correlated import acted_upon, corrected, in_runs, with_classes
from fenchel.adapters.monitor import Compared, Predicted

CLASSES = 6


def sure(labels: Tensor, strength: float = 8.0, noise: float = 0.0) -> Tensor:
    """Logits that name the labels, more or less."""
    generator = torch.Generator().manual_seed(7)
    scores = strength * torch.nn.functional.one_hot(labels, CLASSES).double()
    return scores + noise * torch.randn(scores.shape, generator=generator, dtype=torch.float64)


def labels_of(kind: str, count: int = 1200) -> Tensor:
    drawn = torch.randint(CLASSES, (count,), generator=torch.Generator().manual_seed(5))
    return drawn.sort().values if kind == "sorted" else drawn


def met(logits: Tensor, size: int) -> list[dict[str, Tensor]]:
    """What is known after each batch."""
    seen: dict[str, Tensor] = {}
    history = []
    for batch in logits.split(size):
        seen, _ = corrected(with_classes(seen, batch.softmax(-1)), batch, batch.softmax(-1))
        history.append(seen)
    return history


@pytest.mark.parametrize("size", [1, 4, 100])
def test_the_correlation_tells_sorted_from_independent_labels(size):
    apart = met(sure(labels_of("independent")), size)
    together = met(sure(labels_of("sorted")), size)
    later = len(apart) // 4
    assert max(float(seen["correlation"]) for seen in apart[later:]) < correlated.NOTICED
    # A run ends with the class; within it nearly all of the variance lies between batches.
    found = sorted(float(seen["correlation"]) for seen in together[later:])
    assert found[len(found) // 2] > 0.6
    assert min(found) > correlated.STRONG
    assert max(found) <= 1


def test_the_correlation_is_the_plain_restatement():
    logits = sure(labels_of("sorted", 600))
    found, all_classes, samples = 0.0, None, 0.0
    for batch, seen in zip(logits.split(100), met(logits, 100), strict=True):
        own = [float((batch.argmax(-1) == c).sum()) / 100 for c in range(CLASSES)]
        if all_classes is None:
            all_classes = own
        else:
            together = [
                (samples * a + 100 * b) / (samples + 100)
                for a, b in zip(all_classes, own, strict=True)
            ]
            spread = sum((b - a) ** 2 for a, b in zip(all_classes, own, strict=True))
            variance = max(1e-6, sum(a * (1 - a) for a in together))
            pairs = (sum(b * b for b in own) - 0.01) / 0.99
            most = min(1.0, max(0.0, 10 * (pairs - 1 / CLASSES) / (1 - 1 / CLASSES)))
            latest = min(spread / variance, most)
            found = min(0.7 * found + 0.3 * latest, most)
            all_classes = together
            counted = min(1.0, 3 / max(1e-9, 100 * max(found, latest)))
            assert float(seen["independent"]) == pytest.approx(counted)
        samples = min(1000.0, samples + 100)
        assert float(seen["correlation"]) == pytest.approx(found)
        assert seen["classes"].tolist() == pytest.approx(all_classes)


@pytest.mark.parametrize("size", [5, 80])
def test_the_prior_is_that_of_plain_expectation_maximisation(size):
    logits = sure(labels_of("sorted", 160), 3.0, 1.0)
    known = [1 / CLASSES] * CLASSES
    for batch, seen in zip(logits.split(size), met(logits, size), strict=True):
        p = batch.softmax(-1).clamp_min(1e-8).tolist()
        remembered = 0.0 if size >= 64 else 16.0
        prior = known if remembered else [1 / CLASSES] * CLASSES
        for _ in range(10):
            counts = [remembered * k + 0.03 for k in known]
            for row in p:
                whole = sum(a * b for a, b in zip(row, prior, strict=True))
                for c in range(CLASSES):
                    counts[c] += row[c] * prior[c] / whole
            prior = [count / sum(counts) for count in counts]
        known = prior
        assert seen["class_prior"].tolist() == pytest.approx(prior, rel=1e-9)


def test_corrected_logits_are_probabilities_times_the_prior():
    logits = sure(labels_of("sorted", 400), 3.0, 1.0)
    seen: dict[str, Tensor] = {}
    strengths = []
    for batch in logits.split(80):
        p = batch.softmax(-1)
        seen, output = corrected(with_classes(seen, p), batch, p)
        strength = min(1.0, max(0.0, (float(seen["correlation"]) - 0.05) / 0.1))
        strengths.append(strength)
        if strength:
            wanted = p * (CLASSES * seen["class_prior"]) ** strength
            torch.testing.assert_close(output.exp(), wanted, rtol=1e-9, atol=1e-9)
        else:
            assert torch.equal(output, batch)
    assert strengths[0] == 0
    assert strengths[-1] == 1


def test_the_whole_of_a_sorted_stream_is_predicted_better():
    labels = labels_of("sorted")
    logits = sure(labels, 2.0, 1.5)
    for size in (1, 4, 80):
        seen: dict[str, Tensor] = {}
        right = 0
        for batch, truth in zip(logits.split(size), labels.split(size), strict=True):
            p = batch.softmax(-1)
            seen, output = corrected(with_classes(seen, p), batch, p)
            right += int((output.argmax(-1) == truth).sum())
        plain = int((logits.argmax(-1) == labels).sum())
        assert (len(labels) - right) < 0.75 * (len(labels) - plain), size


def test_one_sample_that_is_not_finite_spoils_no_other():
    logits = sure(labels_of("sorted", 100), 3.0, 1.0)
    seen: dict[str, Tensor] = {}
    for number, batch in enumerate(logits.split(10)):
        batch = batch.clone()
        if number == 5:
            batch[3] = math.nan
        p = batch.softmax(-1)
        seen, output = corrected(with_classes(seen, p), batch, p)
        rows = [row for row in range(10) if number != 5 or row != 3]
        assert output[rows].isfinite().all()
    assert seen["class_prior"].isfinite().all()


# --- on an adapter -------------------------------------------------------------------------------


class Given(nn.Module):
    """Its logits are its input, once normalised; (samples, ..., classes)."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(classes, elementwise_affine=True)

    def forward(self, x: Tensor) -> Tensor:
        return 6 * self.norm(x)


@pytest.mark.parametrize("statistics", ["source", "batch"])
def test_independent_labels_leave_outputs_bit_for_bit(statistics):
    model = nn.Sequential(nn.BatchNorm1d(CLASSES, affine=False), Given()).double()
    logits = sure(labels_of("independent", 800), 2.0, 1.0)
    plain, careful = (
        fenchel.adapt(
            model,
            trained_with="cross-entropy",
            method="conjugate",
            statistics=statistics,
            correct_output=correct,
        )
        for correct in (False, True)
    )
    for batch in logits.split(100):
        assert torch.equal(plain(batch), careful(batch))
    assert float(careful.state.seen["class_samples"]) == 800  # it was looked at


def test_an_adapter_notices_a_sorted_stream():
    model = nn.Sequential(nn.BatchNorm1d(CLASSES, affine=False), Given()).double()
    labels = labels_of("sorted")
    logits = sure(labels, 2.0, 1.0)
    right = {}
    for correct in (False, True):
        adapted = fenchel.adapt(
            model,
            trained_with="cross-entropy",
            method="conjugate",
            statistics="source",
            learning_rate=0.0,
            correct_output=correct,
        )
        outputs = torch.cat([adapted(batch) for batch in logits.split(30)])
        right[correct] = int((outputs.argmax(-1) == labels).sum())
    assert float(adapted.state.seen["correlation"]) > correlated.STRONG
    assert len(labels) - right[True] < 0.75 * (len(labels) - right[False])


@pytest.mark.filterwarnings("ignore::fenchel.adapters.UnboundedObjectiveWarning")
@pytest.mark.parametrize(
    ("model", "x", "loss", "options"),
    [
        (nn.Sequential(Given(4), nn.Linear(4, 1)), torch.randn(30, 4), "squared", {}),
        (Given(4), torch.randn(30, 2, 4), "cross-entropy", {"dim": -1}),
        (Given(4), torch.randn(30, 4), "binary-cross-entropy", {}),
    ],
    ids=["one score", "dense", "several labels"],
)
def test_outputs_without_classes_are_left_alone(model, x, loss, options):
    options = {"trained_with": loss, "method": "conjugate", **options}
    plain, careful = (
        fenchel.adapt(model, correct_output=correct, **options) for correct in (False, True)
    )
    for _ in range(3):
        assert torch.equal(plain(x), careful(x))
    assert careful.state.seen == {}


def test_labels_in_runs_are_told_from_a_source_that_prefers_a_class():
    """One batch of few classes leaves it open; those after it show whether all of them are alike."""
    biased = sure(torch.where(labels_of("independent", 600) < 4, 0, 1)).softmax(-1)
    together = sure(labels_of("sorted", 600)).softmax(-1)
    spread = sure(labels_of("independent", 600)).softmax(-1)
    assert in_runs({}, spread[:100], spread[:100]) is False
    for p, expected in ((biased, False), (together, True), (spread, False)):
        if expected or p is biased:
            assert in_runs({}, p[:100], p[:100]) is None
        seen: dict[str, Tensor] = {}
        told = []
        for batch in p.split(100):
            told.append(in_runs(seen, batch, batch))
            seen = with_classes(seen, batch)
        assert all(each is expected for each in told[1:])
    assert in_runs({"correlation": torch.tensor(0.9)}, spread[:100], spread[:100]) is True


def test_a_correlation_is_acted_upon_in_full_from_the_strong_one_on():
    def known(correlation: float) -> dict[str, Tensor]:
        return {"correlation": torch.tensor(correlation)}

    assert acted_upon({}) == 0
    assert acted_upon(known(0.02)) == pytest.approx(0.02)  # too little to correct anything by
    assert acted_upon(known(0.1)) == pytest.approx(0.5)  # halfway from NOTICED to STRONG
    assert acted_upon(known(0.2)) == 1
    assert acted_upon(known(0.9)) == 1


def test_a_corrected_stream_with_fewer_mistaken_classes_is_healthy():
    """Every batch is mostly of one class. The source spreads a third over others, the correction mends it."""
    runs = torch.arange(5).repeat_interleave(100)
    astray = torch.arange(500) % 3 == 0
    spread = torch.where(astray, (runs + torch.arange(500)) % 10, runs)

    def compared(correlation: float) -> str:
        parts = [
            Compared(
                *(Predicted.of(sure_of(labels[part])) for labels in (runs, spread, spread)),
                correlation,
            )
            for part in torch.arange(500).split(100)
        ]
        return sum(parts[1:], parts[0]).judged()[0]

    def sure_of(labels: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(labels, 10).double()

    assert compared(0.0) != "healthy"
    assert compared(acted_upon({"correlation": torch.tensor(0.3)})) == "healthy"
