"""Downloads against a real server on the loopback device."""

import hashlib

import numpy as np
import pytest

from fenchel.fetching.download import Interrupted, download

CONTENT = np.random.default_rng(0).bytes(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


def get(server, target, **options):
    options = {"md5": MD5, "most_bytes": 10**9, "timeout": 5.0, **options}
    download(f"{server.url}/data.bin", target, **options)


@pytest.fixture
def target(tmp_path, server):
    server.files["data.bin"] = CONTENT
    return tmp_path / "folder" / "data.bin"


def files_beside(target):
    return sorted(path.name for path in target.parent.iterdir())


@pytest.mark.parametrize("hides_length", [False, True])
def test_a_file_arrives_whole_and_under_its_name_alone(server, target, hides_length):
    server.hides_length = hides_length
    get(server, target)
    assert target.read_bytes() == CONTENT
    assert files_beside(target) == ["data.bin"]


def test_a_broken_transfer_is_resumed_where_it_stopped(server, target):
    server.break_after = [100_000, 50_000]
    get(server, target)
    assert target.read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_transfer_that_keeps_breaking_is_resumed_by_the_next_call(server, target):
    server.break_after = [1000, 1000, 1000]
    with pytest.raises(Interrupted, match="3000 of 300000"):
        get(server, target)
    assert files_beside(target) == ["data.bin.part"]
    get(server, target)
    assert target.read_bytes() == CONTENT
    assert server.requests[-1] == ("data.bin", "bytes=3000-")


def test_a_server_without_ranges_starts_over(server, target):
    server.ignores_ranges = True
    server.break_after = [100_000]
    get(server, target)
    assert target.read_bytes() == CONTENT


def test_a_partial_file_of_something_else_is_replaced(server, target):
    target.parent.mkdir()
    target.with_name("data.bin.part").write_bytes(b"stale" * 100)
    get(server, target)
    assert target.read_bytes() == CONTENT
    assert files_beside(target) == ["data.bin"]


def test_a_partial_file_that_is_too_long_is_replaced(server, target):
    target.parent.mkdir()
    target.with_name("data.bin.part").write_bytes(CONTENT + b"more")
    get(server, target)
    assert target.read_bytes() == CONTENT


def test_a_whole_partial_file_needs_only_its_name(server, target):
    target.parent.mkdir()
    target.with_name("data.bin.part").write_bytes(CONTENT)
    get(server, target)
    assert files_beside(target) == ["data.bin"]


def test_wrong_md5_is_refused_and_deleted(server, target):
    with pytest.raises(ValueError, match="md5") as told:
        get(server, target, md5="0" * 32)
    assert "data.bin" in str(told.value)
    assert files_beside(target) == []


def test_an_html_page_is_refused_and_deleted(server, target):
    server.files["data.bin"] = b"  <!DOCTYPE html><html>please log in</html>"
    with pytest.raises(ValueError, match="HTML page instead of"):
        get(server, target)
    assert files_beside(target) == []


@pytest.mark.parametrize("hides_length", [False, True])
def test_more_bytes_than_accepted_are_refused(server, target, hides_length):
    server.hides_length = hides_length
    with pytest.raises(ValueError, match=r"at most|more than"):
        get(server, target, most_bytes=100_000)
    assert files_beside(target) == []


def test_a_missing_file_is_told_with_its_address(server, target):
    server.files.clear()
    with pytest.raises(OSError, match="answered 404"):
        get(server, target)
    assert files_beside(target) == []


def test_no_server_at_all_is_told_at_once(tmp_path):
    with pytest.raises(OSError, match="cannot be reached"):
        download("http://127.0.0.1:9/x", tmp_path / "x", md5=MD5, most_bytes=9, timeout=2.0)
