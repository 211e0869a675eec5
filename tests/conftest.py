"""What every test shares: one thread, fixed seeds, the same hypothesis examples in every run."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

# Some virtual machines announce AMX and then kill whoever uses it, as oneDNN does for bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
import torch
from hypothesis import settings
from torch import Tensor
from torch.autograd.functional import jacobian

from fenchel import names, plugins
from fenchel.files import locked

settings.register_profile(
    "fenchel", derandomize=True, deadline=None, max_examples=20, database=None
)
settings.load_profile("fenchel")
torch.set_num_threads(1)


CHROMIUM = Path("/usr/bin/chromium")
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


@pytest.fixture(scope="module")
def one_cluster_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray starts a dozen processes: two clusters on two cores keep each other from starting in time."""
    with locked(tmp_path_factory.getbasetemp().parent / "cluster.lock", seconds=900):
        yield


@pytest.fixture
def server() -> Iterator[Any]:
    """A web server on the loopback device; see `loopback_server.py`."""
    file = Path(__file__).with_name("loopback_server.py")
    spec = importlib.util.spec_from_file_location("loopback_server", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    with module.serving() as script:
        yield script


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, started once for all pages of a module."""
    playwright = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip("there is no browser; install Debian's (apt-get install chromium)")
    # Root has no sandbox, and containers give shared memory too small for a page.
    flags = ["--no-sandbox", "--disable-dev-shm-usage"]
    with playwright.sync_playwright() as tools:
        started = tools.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., WatchedPage]]:
    """Open a file in the browser, with options of playwright's `new_page`; closed after the test."""
    opened: list[WatchedPage] = []

    def open_file(path: Path, **options: Any) -> WatchedPage:
        opened.append(WatchedPage(browser, path, **options))
        return opened[-1]

    yield open_file
    for page in opened:
        page.view.close()


class WatchedPage:
    """A page in a browser with everything it complained about and asked for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.view = browser.new_page(**options)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.view.on("console", lambda message: self.complaints.append(message.text))
        self.view.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.view.on("request", lambda request: self.requests.append(request.url))
        self.view.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.view.goto(path.as_uri())

    def faults(self) -> list[str]:
        """What is cut, what cannot be read, and what the page complained of; see `page_faults.js`."""
        script = (Path(__file__).parent / "page_faults.js").read_text(encoding="utf-8")
        found: list[str] = self.view.evaluate(script)
        return [*found, *self.complaints]


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
    for each in registries:
        each.everything()  # what is loaded at its first use is no test's own
    before = [(each, dict(each._things), dict(each._plugins)) for each in registries]
    loaded = dict(plugins._LOADED)
    yield
    for registry, things, brought in before:
        registry._things, registry._plugins = things, brought
    plugins._LOADED.clear()
    plugins._LOADED.update(loaded)
