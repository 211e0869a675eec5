"""The interactive page computes in the browser what the library computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fenchel
from fenchel.losses import LOSSES, parse

ASSETS = Path(__file__).parents[2] / "docs" / "assets"
CLASSES = 4
TOLERANCE = 2e-8


@pytest.fixture(scope="module")
def script(browser: Any) -> Any:
    """An empty page with the losses of the site."""
    page = browser.new_page()
    page.add_script_tag(content=(ASSETS / "losses.js").read_text(encoding="utf-8"))
    yield page
    page.close()


@pytest.fixture(scope="module")
def known(script: Any) -> dict[str, Any]:
    found = script.evaluate("FENCHEL_LOSSES.losses.map(({name, option}) => [name, option ?? null])")
    return dict(found)


def test_every_loss_of_the_library_is_on_the_page(known: dict[str, Any]) -> None:
    assert set(known) == set(LOSSES)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_label_objective_and_gradient_are_those_of_the_library(
    name: str, script: Any, known: dict[str, Any]
) -> None:
    option = known[name]
    random = torch.Generator().manual_seed(0)
    scores = 1 if name == "exponential" else CLASSES
    h = 2 * torch.randn(20, scores, generator=random, dtype=torch.float64)
    values = [None] if option is None else [option["value"], option["low"], option["high"]]
    for value in values:
        spec = name if value is None else f"{name}:{option['name']}={value}"
        found = script.evaluate(
            "([name, rows, value]) => rows.map((h) => FENCHEL_LOSSES.studied(name, h, value ?? undefined))",
            [name, h.tolist(), value],
        )
        check(parse(spec), h, found)


def check(loss: fenchel.Loss, h: torch.Tensor, found: list[dict[str, Any]]) -> None:
    h = h.clone().requires_grad_()
    objective = loss.conjugate(h)
    (gradient,) = torch.autograd.grad(objective.sum(), h, materialize_grads=True)
    expected = {"label": loss.label(h), "objective": objective, "gradient": gradient}
    for key, value in expected.items():
        shown = torch.tensor([row[key] for row in found], dtype=torch.float64)
        torch.testing.assert_close(shown, value.detach(), rtol=TOLERANCE, atol=TOLERANCE)


def test_the_page_shows_the_numbers_and_follows_its_sliders(address: str, browser: Any) -> None:
    page = browser.new_page()
    page.set_default_timeout(120_000)
    try:
        page.goto(f"{address}/explanation/conjugate.html")
        page.select_option(".conjugates select", "squared")
        page.eval_on_selector_all(
            ".conjugates input[type=range]",
            "(inputs) => inputs.forEach((input, k) => {"
            " input.value = [3, 1, -1, 0.5][k]; input.dispatchEvent(new Event('input')); })",
        )
        caption = page.inner_text("#chosen caption")
        labels = page.eval_on_selector_all(
            "#chosen tbody td:nth-of-type(2)", "t => t.map(c => c.innerText.trim())"
        )
    finally:
        page.close()
    h = torch.tensor([3.0, 1.0, -1.0, 0.5])
    assert f"{fenchel.SquaredLoss().conjugate(h).item():.3f}" in caption
    assert labels == [f"{value:.3f}" for value in h.tolist()]
