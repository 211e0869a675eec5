"""Mutated files: readers either read them or answer with a ValueError that names the file.

Every mutation is a pure function of its seed, so a failure repeats.
"""

import bz2
import io
import pickle
import tarfile
import zipfile

import numpy as np
import pytest
from scipy.io import savemat

from fenchel.data.formats.cifar_binary import read_binary
from fenchel.data.formats.cifar_pickle import read_cifar_pickle
from fenchel.data.formats.idx import read_idx, write_idx
from fenchel.data.formats.libsvm import read_libsvm
from fenchel.data.formats.mat import read_mat
from fenchel.data.formats.npy import read_npy, read_npz
from fenchel.data.pictures import Crop, read_picture
from fenchel.data.sets.cifar import read_python
from fenchel.data.sets.svhn import read_digits
from fenchel.fetching.archive import extract

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
ROUNDS = 150


def idx(path):
    write_idx(path, PIXELS[..., 0])


def mat(path):
    savemat(path, {"X": PIXELS.transpose(1, 2, 3, 0), "y": np.array([[10], [3]], np.uint8)})


def mat_compressed(path):
    arrays = {"X": PIXELS.transpose(1, 2, 3, 0) // 64, "y": np.array([[10], [3]], np.uint8)}
    savemat(path, arrays, do_compression=True)


def npy(path):
    with path.open("wb") as sink:
        np.save(sink, PIXELS)


def npz(path):
    with path.open("wb") as sink:
        np.savez(sink, images=PIXELS, labels=np.arange(2))


def libsvm(path):
    path.write_text("\n".join(f"{k} 1:0.5 2:-0.25 16:1" for k in range(1, 9)))


def libsvm_bz2(path):
    path.write_bytes(bz2.compress(b"1 1:0.5 2:-0.25\n" * 50))


def cifar_binary(path):
    path.write_bytes(bytes(2 * 3073))


def cifar_pickle(path):
    data = PIXELS.reshape(2, -1)
    path.write_bytes(pickle.dumps({b"data": data, b"labels": [1, 2]}, protocol=2))


def png(path):
    from PIL import Image

    Image.fromarray(PIXELS[0]).save(path, format="PNG")


def jpeg(path):
    from PIL import Image

    Image.fromarray(PIXELS[0]).save(path, format="JPEG")


def tar(path):
    with tarfile.open(path, "w:gz") as archive:
        for name in ("a/one.npy", "a/two.npy"):
            member = tarfile.TarInfo(name)
            member.size = 600
            archive.addfile(member, io.BytesIO(bytes(range(200)) * 3))


def zip_(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/one.npy", bytes(range(200)) * 3)
        archive.writestr("a/two.npy", bytes(range(200)) * 3)


def unpack(path):
    extract(path, path.with_name("unpacked"), most_bytes=1 << 20)


CASES = {
    "idx": (idx, lambda path: read_idx(path, dimensions=3)),
    "mat": (mat, read_digits),
    "mat-compressed": (mat_compressed, read_mat),
    "npy": (npy, lambda path: np.array(read_npy(path))),
    "npz": (npz, read_npz),
    "libsvm": (libsvm, lambda path: read_libsvm(path, features=16)),
    "libsvm-bz2": (libsvm_bz2, lambda path: read_libsvm(path, features=16)),
    "cifar-binary": (cifar_binary, lambda path: read_binary(path, 1)),
    "cifar-pickle": (cifar_pickle, read_cifar_pickle),
    "cifar-python": (cifar_pickle, lambda path: read_python(path, "labels")),
    "png": (png, lambda path: read_picture(path, Crop())),
    "jpeg": (jpeg, lambda path: read_picture(path, Crop())),
    "tar": (tar, unpack),
    "zip": (zip_, unpack),
}


def mutated(content, seed):
    """Flips, overwrites, cuts, duplicates or inserts bytes; half of the time near the header."""
    random = np.random.default_rng(seed)
    data = bytearray(content)
    for _ in range(random.integers(1, 5)):
        reach = min(len(data), 160) if random.random() < 0.5 else len(data)
        place = int(random.integers(max(reach, 1)))
        kind = random.integers(6)
        if kind == 0 and data:
            data[place] ^= 1 << int(random.integers(8))
        elif kind == 1:
            data[place : place + 4] = random.bytes(4)
        elif kind == 2:
            data[place : place + 4] = b"\xff\xff\xff\x7f"
        elif kind == 3:
            del data[place:]
        elif kind == 4:
            data[place:place] = data[place : place + 64]
        else:
            data[place:place] = random.bytes(8)
    return bytes(data)


def complaint(read, path):
    """What the reader says against the file, if anything; only a ValueError is an answer."""
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow and zipfile remark on oddities
@pytest.mark.parametrize("case", CASES)
def test_mutated_files_are_read_or_refused_by_name(case, tmp_path):
    write, read = CASES[case]
    original = tmp_path / "original"
    write(original)
    read(original)
    content = original.read_bytes()
    refused = 0
    for seed in range(ROUNDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = folder / "mutant"
        path.write_bytes(mutated(content, seed))
        told = complaint(read, path)
        assert told is None or "mutant" in told, seed
        refused += told is not None
        left = {child.name for child in folder.iterdir()}
        assert left <= {"mutant", "unpacked"}, "something was written elsewhere"
    assert refused > ROUNDS // 20, "the mutations hardly broke anything"
