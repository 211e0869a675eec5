"""Images out of the body of a request: decoded in memory, within limits; nothing in it is a path or code."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from fenchel.data.formats.npy import npy_array
from fenchel.data.pictures import read_picture
from fenchel.predict.images import check_array, crop_to
from fenchel.serve.limits import Limits, Refused

NPY = ("application/x-npy", "application/octet-stream")
PICTURES = ("image/png", "image/jpeg", "image/bmp", "image/webp", "image/tiff")
FILES = "multipart/form-data"
DECODERS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF")
"""Those of Pillow that may see bytes of a request; some others start programs."""
LONGEST_FILE_NAME = 200

Decoded = TypeVar("Decoded")


@dataclass(frozen=True)
class Images:
    """The images of a request: uint8 (N, H, W, C), or floats that go to the model as they are."""

    names: tuple[str, ...]
    values: npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ImageReader:
    """Reads the images of requests, all in the same way."""

    size: int | None = None
    mode: str = "RGB"
    limits: Limits = field(default_factory=Limits)

    def read(self, content_type: str, body: bytes) -> Images:
        """The images of a body of that type.

        Raises:
            Refused: it holds none, too many, or something else.
        """
        header = _header("Content-Type", content_type)
        kind = header.get_content_type()
        if not body:
            raise Refused(400, "a request carries images; its body is empty.")
        if kind in NPY:
            return self._array(body)
        if kind in PICTURES:
            return self._pictures([("image", body)])
        if kind == FILES:
            boundary = header.get_param("boundary")
            if not isinstance(boundary, str) or not boundary:
                raise Refused(400, f"{FILES} needs a boundary; the header names none.")
            return self._pictures(list(_files(body, boundary, self.limits.images)))
        raise Refused(
            415,
            f"images come as {FILES}, as one picture ({', '.join(PICTURES)}) or as an array ({NPY[0]}); got "
            f"{kind!r}.",
        )

    def _array(self, body: bytes) -> Images:
        try:
            values = npy_array(io.BytesIO(body), len(body))
            check_array(values, "the body")
        except Exception as error:  # hostile headers surface as many types
            told = (str(error) or type(error).__name__).splitlines()[0]
            raise Refused(
                422, f"the body must be an .npy array of images; it is not ({told})."
            ) from None
        self._require_few(len(values))
        self._require_few_pixels(_pixels_in(values))
        values = values if values.dtype == np.uint8 else _as_float32(values)
        values = values[..., None] if values.dtype == np.uint8 and values.ndim == 3 else values
        return Images(tuple(str(row) for row in range(len(values))), values)

    def _pictures(self, files: list[tuple[str, bytes]]) -> Images:
        self._require_few(len(files))
        # Before anything is decoded: a small file may hold a large picture.
        self._require_few_pixels(sum(_tried(name, _pixels, content) for name, content in files))
        decoded: list[npt.NDArray[Any]] = []
        for name, content in files:
            pixels = _tried(name, self._decoded, content)
            if decoded and pixels.shape != decoded[0].shape:
                raise Refused(
                    422,
                    f"the images of a request have one size; {name!r} has {_shape(pixels)} and the first "
                    f"{_shape(decoded[0])}. Start the service with a size, or send equal ones.",
                )
            decoded.append(pixels)
        return Images(tuple(name for name, _ in files), np.stack(decoded))

    def _decoded(self, content: bytes) -> npt.NDArray[Any]:
        fit = crop_to(self.size)
        return read_picture(Path("it"), fit, self.mode, content=content, formats=DECODERS)

    def _require_few_pixels(self, total: int) -> None:
        if total > self.limits.pixels:
            raise Refused(
                413,
                f"the images of a request have at most {self.limits.pixels} pixels together; got {total}. "
                "Send fewer, or smaller ones.",
            )

    def _require_few(self, count: int) -> None:
        if count > self.limits.images:
            raise Refused(
                413,
                f"a request holds at most {self.limits.images} images; got {count}. Send fewer.",
            )
        if count == 0:
            raise Refused(400, "a request carries images; there is none in it.")


def _pixels(content: bytes) -> int:
    with Image.open(io.BytesIO(content), formats=DECODERS) as picture:
        return int(picture.width) * int(picture.height)


def _pixels_in(values: npt.NDArray[Any]) -> int:
    """Of bytes (N, H, W) and (N, H, W, C), and of floats (N, C, H, W); other floats are no pictures."""
    if values.dtype == np.uint8:
        return math.prod(values.shape[:3])
    return math.prod(values.shape) // values.shape[1] if values.ndim == 4 and values.size else 0


def _tried(name: str, decode: Callable[[bytes], Decoded], content: bytes) -> Decoded:
    try:
        return decode(content)
    except Exception as error:  # decoders raise SyntaxError, struct.error, EOFError and more
        told = (str(error) or type(error).__name__).splitlines()[0]
        raise Refused(422, f"{name!r} must be a readable picture; it is not ({told}).") from None


def _as_float32(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is left out
        return np.ascontiguousarray(values, dtype=np.float32)


def _shape(pixels: npt.NDArray[Any]) -> str:
    return f"{pixels.shape[1]} x {pixels.shape[0]} pixels"


def _header(name: str, value: str) -> Message:
    message = Message()
    message[name] = "".join(character for character in value if character.isprintable())
    return message


def _files(body: bytes, boundary: str, most: int) -> Iterator[tuple[str, bytes]]:
    """The files of a form, with their names. All stays in memory; the body's size bounds it."""
    mark = b"\r\n--" + boundary.encode("utf-8", "replace")
    parts = (b"\r\n" + body).split(mark, most + 2)
    if len(parts) < 3:
        raise Refused(400, "the form has no part, or its boundary is another than the header says.")
    if len(parts) == most + 3 or not parts[-1].startswith(b"--"):
        raise Refused(413, f"a form holds at most {most} files, and ends with its boundary.")
    for part in parts[1:-1]:
        head, separator, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if not separator:
            raise Refused(400, "every part of a form has a header and a content; one has not.")
        yield _file_name(head), content


def _file_name(head: bytes) -> str:
    """What the client calls the file: shown back, and used for nothing else."""
    for line in head.decode("utf-8", "replace").split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() == "content-disposition":
            try:
                name = _header("Content-Disposition", value.strip()).get_filename() or "image"
            except (ValueError, LookupError, TypeError):  # encodings that do not exist
                return "image"
            return name[:LONGEST_FILE_NAME].encode("utf-8", "replace").decode()
    return "image"
