"""What holds for every loss: a new file under losses/ is covered here with no other edit."""

import dataclasses
import pickle
from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fenchel import derive
from fenchel.losses import LOSSES, Loss, Signed, parse

EXTREMES = [
    "focal:gamma=0",
    "focal:gamma=0.5",
    "generalized-cross-entropy:q=0.2",
    "label-smoothing:smoothing=0",
    "poly:epsilon=-0.5",
    "poly:epsilon=6.0",
]


def variations() -> list[Loss]:
    """Every registered loss with its defaults, and with each number moved a little."""
    losses = [cls() for cls in LOSSES.values()]
    for loss in list(losses):
        for field in dataclasses.fields(loss):
            moved = 0.8 * getattr(loss, field.name)
            losses.append(dataclasses.replace(loss, **{field.name: moved}))
    return losses + [parse(spec) for spec in EXTREMES]


every_loss = pytest.mark.parametrize("loss", variations(), ids=repr)


def scores(
    loss: Loss, *shape: int, classes: int = 10, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Random scores (*shape, classes), or (*shape, 1) for a loss of one score."""
    classes = 1 if isinstance(loss.labels, Signed) else classes
    return torch.randn(*shape, classes, dtype=dtype)


def gradient(function: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    point = h.detach().clone().requires_grad_()
    return torch.autograd.grad(function(point).sum(), point)[0]


def relative_gap(actual: Tensor, expected: Tensor) -> float:
    return float(((actual - expected).abs() / expected.abs().clamp_min(1)).max())


@every_loss
def test_gradients_agree_with_finite_differences(loss: Loss) -> None:
    h = scores(loss, 4, classes=6).requires_grad_()
    assert torch.autograd.gradcheck(loss.conjugate, h)
    assert torch.autograd.gradcheck(loss.label, h)
    y = loss.labels.soft(h.detach())
    assert torch.autograd.gradcheck(lambda point: loss(point, y), h)


@every_loss
def test_label_makes_the_prediction_stationary(loss: Loss) -> None:
    h = 2 * scores(loss, 5)
    y = loss.label(h)
    left = gradient(lambda point: loss.f(point) - (y * loss.g(point)).sum(-1), h)
    assert left.abs().max() < 1e-10


@every_loss
def test_detached_label_gives_zero_gradient_and_the_live_one_does_not(loss: Loss) -> None:
    h = 0.5 * scores(loss, 5)
    detached = gradient(lambda point: loss(point, loss.label(point).detach()), h)
    live = gradient(loss.conjugate, h)
    assert detached.abs().max() < 1e-10
    assert (live.abs().amax(-1) > 1e-4).all()


@every_loss
def test_label_solves_the_naive_dense_system(
    loss: Loss, dense_label: Callable[..., Tensor]
) -> None:
    h = scores(loss, 3)
    assert relative_gap(loss.label(h), dense_label(loss.f, loss.g, h)) < 1e-9


@every_loss
def test_objective_is_the_loss_at_the_label(loss: Loss) -> None:
    h = 2 * scores(loss, 5)
    y = loss.label(h)
    torch.testing.assert_close(loss.conjugate(h), loss.f(h) - (y * loss.g(h)).sum(-1))
    torch.testing.assert_close(loss.conjugate(h), loss(h, y) - loss.label_term(y))


@every_loss
def test_loss_is_f_minus_the_pairing_with_g(loss: Loss) -> None:
    h = 2 * scores(loss, 5)
    y = loss.labels.soft(scores(loss, 5))
    expected = loss.f(h) - (y * loss.g(h)).sum(-1) + loss.label_term(y)
    torch.testing.assert_close(loss(h, y), expected)


@every_loss
@pytest.mark.parametrize(
    ("classes", "dtype", "tolerance"), [(10, torch.float64, 1e-8), (1000, torch.float32, 1e-4)]
)
def test_derived_twin_agrees(
    loss: Loss, classes: int, dtype: torch.dtype, tolerance: float
) -> None:
    twin = derive(lambda h, y: loss(h, y), labels=loss.labels)
    h = 2 * scores(loss, 4, classes=classes, dtype=dtype)
    assert relative_gap(twin.label(h), loss.label(h)) < tolerance
    assert relative_gap(twin.conjugate(h), loss.conjugate(h)) < tolerance
    assert relative_gap(gradient(twin.conjugate, h), gradient(loss.conjugate, h)) < tolerance
    y = loss.labels.hard(h)
    assert relative_gap(twin(h, y), loss(h, y)) < tolerance


@every_loss
def test_classes_have_no_order(loss: Loss) -> None:
    h = 2 * scores(loss, 5)
    order = torch.randperm(h.shape[-1])
    torch.testing.assert_close(loss.label(h[:, order]), loss.label(h)[:, order])
    torch.testing.assert_close(loss.conjugate(h[:, order]), loss.conjugate(h))


@every_loss
def test_fenchel_young_inequality_where_g_is_the_identity(loss: Loss) -> None:
    h, other = 2 * scores(loss, 50), 2 * scores(loss, 50)
    if not torch.equal(loss.g(h), h):
        pytest.skip("g is not the identity")
    # f*(y) = -conj(other) at y = label(other), so f(h) + f*(y) - <y, h> >= 0, with equality at other.
    y = loss.label(other)
    gap = loss.f(h) - loss.conjugate(other) - (y * h).sum(-1)
    at_other = loss.f(other) - loss.conjugate(other) - (y * other).sum(-1)
    assert (gap >= -1e-12).all()
    assert gap.max() > 0.1
    assert at_other.abs().max() < 1e-12


@every_loss
@given(data=st.data())
def test_label_is_stationary_at_any_scores(loss: Loss, data: st.DataObject) -> None:
    classes = scores(loss, classes=data.draw(st.integers(2, 6))).shape[-1]
    numbers = st.floats(-8, 8, allow_subnormal=False)
    values = data.draw(st.lists(numbers, min_size=classes, max_size=classes))
    h = torch.tensor(values, dtype=torch.float64)
    y = loss.label(h)
    left = gradient(lambda point: loss.f(point) - (y * loss.g(point)).sum(-1), h)
    size = 1 + loss.f(h).abs() + (y * loss.g(h)).abs().max()
    assert left.abs().max() < 1e-9 * size
    torch.testing.assert_close(
        loss.conjugate(h), loss.f(h) - (y * loss.g(h)).sum(-1), rtol=1e-9, atol=1e-9 * float(size)
    )


@every_loss
@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
def test_extreme_scores_stay_finite(loss: Loss, autocast: bool) -> None:
    for classes, size in product((2, 10, 21841), (1.0, 50.0, 90.0, 1e4)):
        h = size * (2 * torch.rand(6, scores(loss, classes=classes).shape[-1]) - 1)
        h[0], h[1], h[2, 0], h[3, -1] = size, -size, size, -size
        h[4] = torch.where(torch.arange(h.shape[-1]) == 0, size, -size)
        h = h.bfloat16() if autocast else h
        h.requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            label, value = loss.label(h), loss.conjugate(h)
        assert label.dtype == value.dtype == torch.float32
        (slope,) = torch.autograd.grad(value.sum() + (label * label).sum(), h)
        assert label.isfinite().all()
        assert value.isfinite().all()
        assert slope.isfinite().all()


@every_loss
def test_leading_axes_are_independent_samples(loss: Loss) -> None:
    h = scores(loss, 2, 3, 4)
    rows = h.reshape(24, -1)
    torch.testing.assert_close(loss.label(h).reshape(24, -1), loss.label(rows))
    torch.testing.assert_close(loss.conjugate(h).reshape(24), loss.conjugate(rows))
    torch.testing.assert_close(loss.conjugate(rows[:1]), loss.conjugate(rows)[:1])
    torch.testing.assert_close(loss.conjugate(rows[0]), loss.conjugate(rows)[0])
    torch.testing.assert_close(
        loss(h, loss.labels.hard(h)).reshape(24), loss(rows, loss.labels.hard(rows))
    )


@every_loss
def test_classes_may_lie_on_another_axis(loss: Loss) -> None:
    h = scores(loss, 2, 5, 7)
    moved = h.movedim(-1, 1)
    y = loss.labels.soft(h)
    torch.testing.assert_close(loss.label(moved, dim=1), loss.label(h).movedim(-1, 1))
    torch.testing.assert_close(loss.conjugate(moved, dim=1), loss.conjugate(h))
    torch.testing.assert_close(loss(moved, y.movedim(-1, 1), dim=1), loss(h, y))


@every_loss
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_values_do_not_need_gradients(loss: Loss, mode: Callable[[], torch.no_grad]) -> None:
    h = scores(loss, 5)
    with mode():
        inside = h * 1.0  # an inference tensor in inference mode
        label, value = loss.label(inside), loss.conjugate(inside)
        plain = loss(inside, loss.labels.hard(inside))
    assert not label.requires_grad
    assert not value.requires_grad
    torch.testing.assert_close(label, loss.label(h))
    torch.testing.assert_close(value, loss.conjugate(h))
    torch.testing.assert_close(plain, loss(h, loss.labels.hard(h)))


@every_loss
def test_compact_labels_mean_their_written_out_form(loss: Loss) -> None:
    h = scores(loss, 4, 3)
    if isinstance(loss.labels, Signed):
        compact = torch.randint(2, (4, 3)) * 2 - 1
        written = compact[..., None].double()
    else:
        compact = torch.randint(h.shape[-1], (4, 3))
        written = torch.eye(h.shape[-1], dtype=h.dtype)[compact]
    assert torch.equal(loss(h, compact), loss(h, written))


@every_loss
def test_spec_names_the_loss(loss: Loss) -> None:
    again = parse(loss.spec)
    assert again == loss
    assert hash(again) == hash(loss)
    assert repr(again) == repr(loss)
    assert pickle.loads(pickle.dumps(loss)) == loss


def test_losses_with_other_numbers_differ() -> None:
    losses = variations()
    assert len(set(losses)) == len({repr(loss) for loss in losses})
