"""Readers of public formats: what they accept, and how they refuse."""

import bz2
import gzip
import pickle
import struct
import zipfile

import numpy as np
import pytest
from scipy.io import savemat

from fenchel.data.formats.cifar_pickle import read_cifar_pickle
from fenchel.data.formats.compressed import read_bytes
from fenchel.data.formats.idx import read_idx, write_idx
from fenchel.data.formats.image_list import read_image_list
from fenchel.data.formats.libsvm import read_libsvm
from fenchel.data.formats.mat import read_mat
from fenchel.data.formats.npy import read_npy, read_npz

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (3, 5, 4), dtype=np.uint8)


def refuses(read, path, *words, **options):
    """The reader must answer with a ValueError that names the file."""
    with pytest.raises(ValueError) as told:
        read(path, **options)
    assert path.name in str(told.value)
    for word in words:
        assert word in str(told.value)


class Evil:
    """Unpickling this touches a file: the marker that code was executed."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


# idx


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
def test_idx_reads_what_was_written(tmp_path, compress):
    path = tmp_path / "train-images-idx3-ubyte"
    write_idx(path, IMAGES)
    if compress:
        path = path.with_suffix(".gz")
        path.write_bytes(gzip.compress((tmp_path / "train-images-idx3-ubyte").read_bytes()))
    np.testing.assert_array_equal(read_idx(path, dimensions=3), IMAGES)


def test_idx_refuses_wrong_rank_truncation_and_html(tmp_path):
    path = tmp_path / "t10k-images-idx3-ubyte"
    write_idx(path, IMAGES)
    refuses(read_idx, path, "must start with", dimensions=1)
    path.write_bytes(path.read_bytes()[:-1])
    refuses(read_idx, path, "needs 60 bytes", "found 59", dimensions=3)
    path.write_bytes(b"\x00\x00\x08\x03\xff\xff")
    refuses(read_idx, path, "header", dimensions=3)
    path.write_bytes(b"<!DOCTYPE html><html><body>404</body></html>")
    refuses(read_idx, path, "an HTML page instead of data", dimensions=3)


def test_idx_header_that_promises_terabytes_allocates_nothing(tmp_path):
    path = tmp_path / "huge-idx3-ubyte"
    path.write_bytes(b"\x00\x00\x08\x03" + struct.pack(">3I", 2**32 - 1, 2**31, 2**31))
    refuses(read_idx, path, dimensions=3)


# compressed files


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_decompression_stops_at_the_limit(tmp_path, compress):
    path = tmp_path / "bomb"
    path.write_bytes(compress(bytes(1_000_000)))
    assert len(read_bytes(path, limit=1_000_000)) == 1_000_000
    refuses(read_bytes, path, "bomb", limit=999_999)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_truncated_compression_is_refused(tmp_path, compress):
    path = tmp_path / "cut"
    path.write_bytes(compress(RANDOM.bytes(5000))[:-100])
    refuses(read_bytes, path, "decompress", limit=10**6)


# libsvm


def test_libsvm_fills_what_a_line_leaves_out(tmp_path):
    path = tmp_path / "usps.bz2"
    path.write_bytes(bz2.compress(b"7 1:0.5 3:-1\n\n10 4:1e-1\n"))
    values, labels = read_libsvm(path, features=4)
    np.testing.assert_allclose(values, [[0.5, 0, -1, 0], [0, 0, 0, 0.1]])
    assert labels.tolist() == [7, 10]


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"x 1:2", b"1 1:2:3", b"1 a:2", b"1 5:1", b"1 0:1", b"1 1:nan", b"1.5 1:1"),
        *(b"\xff 1:1", b"1 99999999999999999999:1", b"1e999 1:1", b"nan 1:1"),
    ],
)
def test_libsvm_refuses_malformed_lines(tmp_path, text):
    path = tmp_path / "usps.bz2"
    path.write_bytes(bz2.compress(text))
    refuses(read_libsvm, path, features=4)


def test_libsvm_of_too_many_lines_allocates_nothing(tmp_path):
    path = tmp_path / "usps.bz2"
    path.write_bytes(bz2.compress(b"1\n" * 300_000))
    refuses(read_libsvm, path, "lines", features=10**9)


# MATLAB


@pytest.mark.parametrize("compression", [False, True])
def test_mat_reads_numeric_arrays_and_skips_the_rest(tmp_path, compression):
    path = tmp_path / "test_32x32.mat"
    tables = {
        "X": RANDOM.integers(0, 256, (32, 32, 3, 5), dtype=np.uint8),
        "y": np.array([[10], [1], [2], [3], [4]], np.uint8),
        "d": RANDOM.normal(size=(3, 2)),
        "i": np.arange(6, dtype=np.int16).reshape(2, 3),
        "words": "hello",
        "complex": np.ones((2, 2)) * 1j,
        "cell": np.array([1, "a"], dtype=object),
    }
    savemat(path, tables, do_compression=compression)
    arrays = read_mat(path)
    assert sorted(arrays) == ["X", "d", "i", "y"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, tables[name])
        assert array.dtype == tables[name].dtype


def test_mat_refuses_truncation_and_other_files(tmp_path):
    path = tmp_path / "train_32x32.mat"
    savemat(path, {"X": np.zeros((9, 9), np.uint8)}, do_compression=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    refuses(read_mat, path)
    path.write_bytes(b"MATLAB 7.3 is HDF5")
    refuses(read_mat, path, "level-5")


def test_mat_zlib_bomb_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "bomb.mat"
    savemat(path, {"X": np.zeros((1000, 1000), np.uint8)}, do_compression=True)
    monkeypatch.setattr("fenchel.data.formats.mat.LIMIT", 10_000)
    refuses(read_mat, path, "inflates to more than")


# npy and npz


def test_npy_is_memory_mapped_and_read_only(tmp_path):
    np.save(tmp_path / "fog.npy", IMAGES)
    array = read_npy(tmp_path / "fog.npy")
    assert isinstance(array, np.memmap)
    assert not array.flags.writeable
    np.testing.assert_array_equal(array, IMAGES)


def test_npy_with_a_pickle_inside_is_refused_and_not_executed(tmp_path):
    marker = tmp_path / "executed"
    np.save(tmp_path / "evil.npy", np.array([Evil(marker)]), allow_pickle=True)
    refuses(read_npy, tmp_path / "evil.npy")
    (tmp_path / "bare.npy").write_bytes(pickle.dumps(Evil(marker)))
    refuses(read_npy, tmp_path / "bare.npy")
    with zipfile.ZipFile(tmp_path / "evil.npz", "w") as archive:
        archive.write(tmp_path / "evil.npy", "images.npy")
        archive.write(tmp_path / "bare.npy", "labels.npy")
    refuses(read_npz, tmp_path / "evil.npz")
    assert not marker.exists()


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.zeros(2, "u1,f4")])
def test_npy_of_other_things_than_numbers_is_refused(tmp_path, array):
    np.save(tmp_path / "odd.npy", array)
    refuses(read_npy, tmp_path / "odd.npy", "array of")


def test_npy_truncated_is_refused(tmp_path):
    path = tmp_path / "fog.npy"
    np.save(path, IMAGES)
    path.write_bytes(path.read_bytes()[:-1])
    refuses(read_npy, path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_reads_every_array_in_either_order(tmp_path, save):
    save(tmp_path / "set.npz", images=np.asfortranarray(IMAGES), labels=np.arange(3))
    arrays = read_npz(tmp_path / "set.npz")
    np.testing.assert_array_equal(arrays["images"], IMAGES)
    np.testing.assert_array_equal(arrays["labels"], np.arange(3))


def test_npz_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "bomb.npz", images=np.zeros(1_000_000, np.uint8))
    monkeypatch.setattr("fenchel.data.formats.npy.NPZ_LIMIT", 500_000)
    refuses(read_npz, tmp_path / "bomb.npz", "may unpack to at most")


# CIFAR pickles


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_cifar_pickle_reads_batches_of_any_protocol(tmp_path, protocol):
    path = tmp_path / "data_batch_1"
    table = {b"data": IMAGES.reshape(3, -1), b"labels": [0, 1, 2], b"batch_label": b"first"}
    path.write_bytes(pickle.dumps(table, protocol=protocol))
    read = read_cifar_pickle(path)
    np.testing.assert_array_equal(read["data"], IMAGES.reshape(3, -1))
    assert read["labels"] == [0, 1, 2]
    assert read["batch_label"] == "first"


def test_cifar_pickle_reads_what_python_2_wrote(tmp_path):
    """The published files: protocol 2, byte strings, the array's bytes as a string."""
    path = tmp_path / "data_batch_1"
    path.write_bytes(
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b"
        b"\x87R(K\x01K\x02K\x03\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff"
        b"\xffJ\xff\xff\xff\xffK\x00tb\x89U\x06\x00\x01\x02\xfd\xfe\xfftbU\x06labels](K\x03K\x04eu."
    )
    read = read_cifar_pickle(path)
    assert read["data"].tolist() == [[0, 1, 2], [253, 254, 255]]
    assert read["labels"] == [3, 4]


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_cifar_pickle_never_executes_what_it_reads(tmp_path, protocol):
    marker = tmp_path / "executed"
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({b"data": Evil(marker)}, protocol=protocol))
    refuses(read_cifar_pickle, path, "open")
    assert not marker.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"(S'true'\nios\nsystem\n.",  # INST
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # NEWOBJ
        b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo slot that would fill the memory
        b"\x80\x04B\xff\xff\xff\x7f.",  # bytes that are not there
        b"\x80\x02K\x01.",
        b"\x80\x02cnumpy\ndtype\nU\x02O8\x85R.",
        b"",
        b".",
    ],
)
def test_cifar_pickle_refuses_hostile_programs(tmp_path, program):
    path = tmp_path / "data_batch_1"
    path.write_bytes(program)
    refuses(read_cifar_pickle, path)


@pytest.mark.parametrize("array", [np.zeros((2, 2)), np.array([len], dtype=object)])
def test_cifar_pickle_refuses_arrays_of_other_types(tmp_path, array):
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({"data": array}, protocol=2))
    refuses(read_cifar_pickle, path)


# lists of pictures


def test_image_list_reads_paths_with_spaces(tmp_path):
    path = tmp_path / "image_list.txt"
    path.write_text("a/b c.png 3\n\nd.png 11\n")
    assert read_image_list(path) == (["a/b c.png", "d.png"], [3, 11])


@pytest.mark.parametrize(
    "text", ["", "a.png", "a.png x", "../a.png 1", "/etc/passwd 1", "a.png -1", "a.png ٣"]
)
def test_image_list_refuses_malformed_lines_and_paths_outside(tmp_path, text):
    path = tmp_path / "image_list.txt"
    path.write_text(text, encoding="utf-8")
    refuses(read_image_list, path)
