"""What is released: builds, passes the index's checks, is small, and runs from its wheel alone."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import fenchel

ROOT = Path(__file__).parents[2]
LARGEST = 12_000_000
SMALL_DEMO = """
from pathlib import Path
import fenchel
from fenchel.demo import experiment

experiment.EPOCHS, experiment.SHIFTS = 1, experiment.SHIFTS[:1]
experiment.STANDARD_METHODS = ("source", "conjugate")
outcome = experiment.run(Path("demo"), seeds=[0])
fenchel.adapt("zoo:svhn-resnet26-ce")
print(fenchel.__file__, len(outcome.errors))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("build", "hatchling", "twine"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed; pip install 'fenchel[package]'")
    folder = tmp_path_factory.mktemp("dist")
    run(
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(ROOT),
        cwd=folder,
    )
    return folder


def run(*command: str, cwd: Path, **environment: str) -> str:
    settings = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env={**settings, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def the_only(folder: Path, pattern: str) -> Path:
    (file,) = folder.glob(pattern)
    return file


def test_the_index_would_take_it(built: Path) -> None:
    files = [str(file) for file in built.iterdir() if file.suffix in (".whl", ".gz")]
    run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=built)


def test_the_wheel_is_small_and_holds_what_it_needs(built: Path) -> None:
    wheel = the_only(built, "*.whl")
    assert wheel.stat().st_size < LARGEST
    assert f"-{fenchel.__version__}-" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    for needed in ("fenchel/py.typed", "fenchel/zoo/cifar10-resnet26-poly.safetensors"):
        assert needed in names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "website/"))]


def test_the_source_package_can_build_the_site(built: Path) -> None:
    with tarfile.open(the_only(built, "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"mkdocs.yml", "website/hooks.py", "docs/index.md", "notebooks/digits.ipynb"} <= names


def test_the_wheel_runs_the_demo_in_an_environment_of_its_own(built: Path, tmp_path: Path) -> None:
    """Its dependencies are lent by this environment; fenchel itself comes from the wheel."""
    place = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", str(place), cwd=tmp_path)
    python = str(place / ("Scripts" if os.name == "nt" else "bin") / "python")
    packages = the_only(place, "lib/python*/site-packages")
    with zipfile.ZipFile(the_only(built, "*.whl")) as wheel:
        wheel.extractall(packages)
    lent = dict.fromkeys(
        str(Path(path))
        for path in (sysconfig.get_path("purelib"), *sys.path)
        if "site-packages" in path
    )
    (packages / "lent.pth").write_text("\n".join(lent), encoding="utf-8")
    where, cells = run(python, "-c", SMALL_DEMO, cwd=tmp_path, OMP_NUM_THREADS="1").split()[-2:]
    assert Path(where).is_relative_to(place)
    assert int(cells) == 2


def test_versions_agree() -> None:
    version = fenchel.__version__
    assert f"## {version} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    minor = version.rpartition(".")[0]
    assert f"| {minor} | yes |" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
