"""npy and npz arrays, memory-mapped where possible; pickled objects are refused."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fenchel.data.formats.compressed import GIBIBYTE
from fenchel.files import bad_file

NPZ_LIMIT = 8 * GIBIBYTE


def read_npy(path: Path) -> npt.NDArray[Any]:
    """The array of an `.npy` file, memory-mapped and read-only."""
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        raise
    except Exception as error:  # hostile headers surface as many types
        raise bad_file(path, "must be an .npy array of numbers", _told(error)) from error
    if array.dtype.kind not in "biuf":
        raise bad_file(path, "must be an .npy array of numbers", f"an array of {array.dtype}")
    return array


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Every array of an `.npz` file, in memory."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            total = sum(member.file_size for member in archive.infolist())
            if total > NPZ_LIMIT:
                raise bad_file(path, f"may unpack to at most {NPZ_LIMIT} bytes", str(total))
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                with archive.open(member) as stream:
                    arrays[name] = npy_array(stream, member.file_size)
    except FileNotFoundError:
        raise
    except Exception as error:  # as above, and all that zip can raise
        raise bad_file(path, "must be an .npz of numeric arrays", _told(error)) from error
    return arrays


def npy_array(stream: Any, size: int) -> npt.NDArray[Any]:
    """The array of numbers in a stream of `size` bytes; its header may not promise more than they hold."""
    version = np.lib.format.read_magic(stream)
    header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if header is None:
        raise ValueError(f"npy version {version} is not supported")
    shape, fortran, dtype = header(stream)
    if dtype.kind not in "biuf":
        raise ValueError(f"an array of {dtype}")
    if any(n < 0 for n in shape) or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"shape {shape} of {dtype} in {size} bytes")
    content = stream.read(math.prod(shape) * dtype.itemsize)
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _told(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
