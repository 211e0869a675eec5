"""What every test shares: one thread, fixed seeds, the same hypothesis examples in every run."""

import importlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType

# Some virtual machines announce AMX and then kill whoever uses it, as oneDNN does for bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
import torch
from hypothesis import settings
from torch import Tensor
from torch.autograd.functional import jacobian

from fenchel import names, plugins

settings.register_profile(
    "fenchel", derandomize=True, deadline=None, max_examples=20, database=None
)
settings.load_profile("fenchel")
torch.set_num_threads(1)


EXTRAS = {"timm": "timm", "torchvision": "vision", "transformers": "transformers"}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Say after everything else what was skipped, a line a reason, wherever the tests are."""
    yield
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    for reason, count in reasons.most_common():
        tests = "test" if count == 1 else "tests"
        terminalreporter.write_line(f"==> skipped {count} {tests}: {reason}")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def optional_package() -> Callable[[str], ModuleType]:
    """Import the package of an extra; without it, skip the test and say why."""

    def load(name: str) -> ModuleType:
        try:
            _repair_torchvision()
            return importlib.import_module(name)
        except (ImportError, RuntimeError) as error:
            extra = EXTRAS[name]
            pytest.skip(f"{name} cannot be imported ({error}); pip install 'fenchel[{extra}]'")

    return load


_torchvision_schemas: list[torch.library.Library] = []
"""Kept for as long as the tests run: schemas go when the object that defined them goes."""


def _repair_torchvision() -> None:
    """Let torchvision be imported beside a CPU build of torch.

    There its compiled operators cannot be loaded, and its Python code stops at the first of them.
    Networks need none of them, so two empty schemas do; a healthy install never gets here.
    """
    try:
        importlib.import_module("torchvision")
    except ImportError:
        return  # whoever needs it will say so
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error) or _torchvision_schemas:
            raise
        library = torch.library.Library("torchvision", "DEF")
        _torchvision_schemas.append(library)
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        importlib.import_module("torchvision")


@pytest.fixture(scope="session")
def dense_label() -> Callable[..., Tensor]:
    """The conjugate label by the book: build Dg(h) with autograd, then solve Dg(h)^T y = grad f(h).

    Where Dg has no full rank, by least squares together with sum(y) = 1.
    """

    def solve(f: Callable[[Tensor], Tensor], g: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
        matrix = jacobian(g, h).mT
        right_side = jacobian(f, h)
        scale = matrix.norm(dim=0)
        if torch.linalg.matrix_rank(matrix / scale, rtol=1e-9) == len(h):
            return torch.linalg.solve(matrix, right_side)
        matrix = torch.cat([matrix / scale, 1 / scale[None]])
        right_side = torch.cat([right_side, torch.ones_like(h[:1])])
        return (
            torch.linalg.lstsq(matrix, right_side[:, None], driver="gelsd").solution[:, 0] / scale
        )

    return lambda f, g, h: torch.stack([solve(f, g, row) for row in h])


@pytest.fixture
def own_names() -> Iterator[None]:
    """Forget afterwards which names a test registered: others look at all the names there are."""
    registries = [names.registry_of(kind) for kind in names.HOMES]
    before = [(each, dict(each._things), dict(each._plugins)) for each in registries]
    loaded = dict(plugins._LOADED)
    yield
    for registry, things, brought in before:
        registry._things, registry._plugins = things, brought
    plugins._LOADED.clear()
    plugins._LOADED.update(loaded)
