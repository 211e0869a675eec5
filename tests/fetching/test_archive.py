"""Archives: hostile ones leave nothing behind, inside or outside."""

import gzip
import io
import stat
import tarfile
import zipfile

import pytest

from fenchel.fetching.archive import check_archive, checked_name, extract


def tar_with(path, *members, mode="w"):
    """Members are (name, content), or TarInfo objects as they stand."""
    with tarfile.open(path, mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member, io.BytesIO(bytes(member.size)))
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return path


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def refused(archive, words, **limits):
    """Extraction fails with the archive's name, and the folder is as it was."""
    before = sorted(archive.parent.rglob("*"))
    with pytest.raises(ValueError, match=words) as told:
        extract(archive, archive.parent / "out", **limits)
    assert archive.name in str(told.value)
    assert sorted(archive.parent.rglob("*")) == before


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_tar_of_plain_files_comes_out_whole(tmp_path, mode):
    files = [("CIFAR-10-C/fog.npy", b"fog" * 1000), ("CIFAR-10-C/labels.npy", b"")]
    archive = tar_with(
        tmp_path / "set.tar", special("CIFAR-10-C", tarfile.DIRTYPE), *files, mode=mode
    )
    extract(archive, tmp_path / "out")
    assert (tmp_path / "out/CIFAR-10-C/fog.npy").read_bytes() == b"fog" * 1000
    assert (tmp_path / "out/CIFAR-10-C/labels.npy").read_bytes() == b""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "set.tar"]
    assert check_archive(archive) == 3


def test_zip_of_plain_files_comes_out_whole(tmp_path):
    with zipfile.ZipFile(tmp_path / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("photos/", "")
        archive.writestr("photos/a.txt", "hello")
    extract(tmp_path / "set.zip", tmp_path / "out")
    assert (tmp_path / "out/photos/a.txt").read_text() == "hello"
    assert check_archive(tmp_path / "set.zip") == 2


@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../evil", "/tmp/evil", "a\\..\\evil", "c:evil", "..", "a/.."],
)
def test_paths_that_lead_outside_are_refused(tmp_path, name):
    refused(tar_with(tmp_path / "evil.tar", ("good", b"1"), (name, b"2")), "outside")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("good", b"1")
        archive.writestr(name, b"2")
    refused(tmp_path / "evil.zip", "outside")
    with pytest.raises(ValueError, match="outside"):
        checked_name(name)


@pytest.mark.parametrize(
    "member",
    [
        special("link", tarfile.SYMTYPE, "/etc"),
        special("link", tarfile.SYMTYPE, "good"),
        special("link", tarfile.LNKTYPE, "good"),
        special("device", tarfile.CHRTYPE),
        special("disk", tarfile.BLKTYPE),
        special("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name}-{member.type.decode()}",
)
def test_links_and_devices_are_refused(tmp_path, member):
    archive = tar_with(tmp_path / "evil.tar", ("good", b"1"), member, ("link/evil", b"2"))
    refused(archive, "link or device")
    with pytest.raises(ValueError, match="link or device"):
        check_archive(archive)


def test_links_in_a_zip_are_refused(tmp_path):
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr(info, "/etc")
    refused(tmp_path / "evil.zip", "link or device")


def test_a_file_may_come_once_only(tmp_path):
    refused(tar_with(tmp_path / "twice.tar", ("a", b"1"), ("a", b"2")), "twice")
    refused(tar_with(tmp_path / "under.tar", ("a", b"1"), ("a/b", b"2")), "twice")


def test_bombs_are_stopped_at_the_limit(tmp_path):
    archive = tar_with(tmp_path / "bomb.tar.gz", ("zeros", bytes(5_000_000)), mode="w:gz")
    refused(archive, "bytes", most_bytes=1_000_000)
    archive = tar_with(tmp_path / "many.tar", *[(str(k), bytes(1000)) for k in range(10)])
    refused(archive, "limit", most_bytes=5000)
    refused(archive, "more than 5 members", most_files=5)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("zeros", bytes(5_000_000))
    refused(tmp_path / "bomb.zip", "limit", most_bytes=1_000_000)


def test_bomb_in_an_extended_header_is_stopped(tmp_path):
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 500_000_000
    with gzip.open(tmp_path / "pax.tar.gz", "wb", compresslevel=1) as sink:
        sink.write(header.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(50):
            sink.write(bytes(1_000_000))
    refused(tmp_path / "pax.tar.gz", "limit|bomb", most_bytes=1_000_000)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_truncated_archives_are_refused(tmp_path, mode):
    archive = tar_with(tmp_path / "cut.tar", ("a", bytes(range(256)) * 500), mode=mode)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    refused(archive, "archive")
    with pytest.raises(ValueError, match="archive"):
        check_archive(archive)


@pytest.mark.parametrize(
    "content", [b"", b"<html>no</html>", b"PK\x03\x04 not a zip", b"\x1f\x8bx"]
)
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "odd.tar").write_bytes(content)
    refused(tmp_path / "odd.tar", "odd.tar")


def test_a_folder_with_content_is_not_unpacked_over(tmp_path):
    archive = tar_with(tmp_path / "set.tar", ("a", b"1"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("keep")
    with pytest.raises(ValueError, match="empty folder"):
        extract(archive, tmp_path / "out")
