"""CIFAR's binary batches: label bytes, then 3072 pixels, channel by channel, for each image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fenchel.data.base import Images
from fenchel.files import bad_file

SIDE = 32
PIXELS = 3 * SIDE * SIDE


def read_binary(path: Path, label_bytes: int) -> tuple[Images, npt.NDArray[np.uint8]]:
    """Images (N, 32, 32, 3), a view of the memory-mapped file, and the last label byte of each."""
    record = label_bytes + PIXELS
    size = path.stat().st_size
    if size == 0 or size % record:
        rule = f"must hold whole records of {record} bytes"
        raise bad_file(path, rule, f"{size} bytes ({size % record} too many)")
    rows = np.memmap(path, np.uint8, mode="r").reshape(-1, record)
    images = rows[:, label_bytes:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return images, np.array(rows[:, label_bytes - 1])


def write_binary(path: Path, images: Images, *labels: npt.NDArray[Any]) -> None:
    """Write a binary batch: the label bytes, then the pixels of each image channel by channel."""
    pixels = images.transpose(0, 3, 1, 2).reshape(len(images), PIXELS)
    columns = [label.astype(np.uint8)[:, None] for label in labels]
    path.write_bytes(np.concatenate([*columns, pixels], axis=1).tobytes())
