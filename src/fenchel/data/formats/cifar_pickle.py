"""The pickled batches of CIFAR's python version, read without trusting them.

Unpickling runs any code that the file names. Here the opcodes are first checked against the few those
batches need, and the only callables that can be reached are stand-ins of ours that hold a shape,
a dtype and bytes. NumPy arrays are built from those, after the fact.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fenchel.files import bad_file

SAFE_OPCODES = """
    PROTO FRAME STOP MARK POP EMPTY_DICT EMPTY_LIST EMPTY_TUPLE DICT LIST TUPLE TUPLE1 TUPLE2
    TUPLE3 APPEND APPENDS SETITEM SETITEMS NONE NEWTRUE NEWFALSE INT LONG BININT BININT1 BININT2
    LONG1 STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINBYTES
    SHORT_BINBYTES PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE
    BUILD
""".split()  # noqa: SIM905 (a list literal would fill the screen)


class _Dtype:
    """Stands in for numpy.dtype: only its text is kept."""

    def __init__(self, text: object = "", *_: object) -> None:
        self.text = text.decode("latin1") if isinstance(text, bytes) else str(text)

    def __setstate__(self, state: object) -> None:
        """The byte order and the like: nothing that unsigned bytes need."""


class _Array:
    """Stands in for numpy.ndarray until its state has been checked."""

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def array(self) -> npt.NDArray[np.uint8]:
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            raise ValueError("an array without content")
        _, shape, dtype, fortran, raw = self.state
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        if not isinstance(dtype, _Dtype) or dtype.text not in ("u1", "uint8", "|u1"):
            raise ValueError("an array that is not of unsigned bytes")
        sizes = isinstance(shape, tuple) and all(isinstance(n, int) and n >= 0 for n in shape)
        if not isinstance(raw, bytes) or not sizes or math.prod(shape) != len(raw):
            raise ValueError(f"an array of shape {shape!r:.60} that does not fit its bytes")
        flat: npt.NDArray[np.uint8] = np.frombuffer(raw, np.uint8)
        return flat.reshape(tuple(shape), order="F" if fortran else "C")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _encode(text: object, *_: object) -> bytes:
    return str(text).encode("latin1")


STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"a reference to {module}.{name}") from None


def read_cifar_pickle(path: Path) -> dict[str, Any]:
    """The dictionary of a CIFAR batch: texts, lists of integers and uint8 arrays, nothing else."""
    content = path.read_bytes()
    try:
        _check_opcodes(content)
        table = _Restricted(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(table, dict):
            raise ValueError(f"a {type(table).__name__}, not a dictionary")
        return {_text(key): _plain(value) for key, value in table.items()}
    except Exception as error:  # hostile opcodes fail in every way there is
        told = str(error) or type(error).__name__
        rule = "must be a CIFAR batch: a pickled dictionary of lists, texts and uint8 arrays"
        raise bad_file(path, rule, told[:200]) from error


def _check_opcodes(content: bytes) -> None:
    """Refuse opcodes outside the list, and memo slots whose table would outgrow the file."""
    for opcode, argument, position in pickletools.genops(content):
        if opcode.name not in SAFE_OPCODES:
            raise ValueError(f"opcode {opcode.name} at byte {position}")
        if "PUT" in opcode.name and int(argument or 0) > len(content):
            raise ValueError(f"memo slot {argument} at byte {position}")


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _plain(value: object) -> Any:
    if isinstance(value, _Array):
        return value.array()
    if isinstance(value, list):
        return [_text(item) if isinstance(item, bytes) else item for item in value]
    return _text(value) if isinstance(value, bytes) else value
