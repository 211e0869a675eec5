"""Verification: published, made here, readable, bad or unknown."""

import shutil
import tarfile

import numpy as np
import pytest

from fenchel.data import DATASETS
from fenchel.data.fetching import verify as verify_module
from fenchel.data.fetching.verify import verify
from fenchel.files import md5_of


def statuses(path, **options):
    return {finding.path.name: finding.status for finding in verify(path, **options)}


@pytest.mark.parametrize("name", [name for name, entry in DATASETS.items() if entry.recipe])
def test_examples_of_every_data_set_are_readable(name, tmp_path):
    DATASETS[name].write_example(tmp_path)
    assert set(statuses(tmp_path, checksums=False).values()) == {"readable"}


def test_the_published_md5_decides(tmp_path, monkeypatch):
    DATASETS["cifar10"].write_example(tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    assert statuses(path) == {"test_batch.bin": "bad"}
    published = {"cifar-10-batches-bin/test_batch.bin": md5_of(path)}
    monkeypatch.setattr(verify_module, "_published", lambda: published)
    assert statuses(path) == {"test_batch.bin": "published"}
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    (finding,) = verify(path)
    assert finding.status == "bad"
    assert "md5" in finding.detail


def test_names_as_common_as_test_need_their_folder(tmp_path):
    DATASETS["cifar100"].write_example(tmp_path)
    assert statuses(tmp_path)["test"] == "bad"
    shutil.copy(tmp_path / "cifar-100-python" / "test", tmp_path / "test")
    assert statuses(tmp_path / "test") == {"test": "unknown"}


def test_html_truncation_and_leftovers_are_bad(tmp_path):
    (tmp_path / "fog.npy").write_text("<html>quota exceeded</html>")
    np.save(tmp_path / "snow.npy", np.zeros(1000))
    (tmp_path / "snow.npy").write_bytes((tmp_path / "snow.npy").read_bytes()[:-8])
    (tmp_path / "set.tar.part").write_bytes(b"half")
    findings = {finding.path.name: finding for finding in verify(tmp_path)}
    assert {finding.status for finding in findings.values()} == {"bad"}
    assert "HTML page" in findings["fog.npy"].detail
    assert "unfinished" in findings["set.tar.part"].detail


def test_an_archive_that_leads_outside_is_bad(tmp_path):
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("../evil"))
    (finding,) = verify(tmp_path / "set.tar")
    assert finding.status == "bad"
    assert "outside" in finding.detail
    assert [path.name for path in tmp_path.iterdir()] == ["set.tar"]


def test_other_files_are_unknown(tmp_path):
    (tmp_path / "notes.md").write_text("hello")
    assert statuses(tmp_path) == {"notes.md": "unknown"}


def test_nothing_to_check_is_told(tmp_path):
    with pytest.raises(ValueError, match="holds no file"):
        list(verify(tmp_path))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        list(verify(tmp_path / "gone"))
