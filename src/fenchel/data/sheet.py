"""Contact sheets: labelled rows of images on one picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fenchel.data.base import Dataset, Images
from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES
from fenchel.data.orders import spread

TILE = 72  # pixels that a small image is enlarged to, at least
LARGEST_TILE = 144
GAP, MARGIN, TITLE_HEIGHT = 4, 24, 56
PAPER, INK, FAINT = (255, 255, 255), (28, 30, 34), (120, 124, 132)
ROWS_BEFORE_TWO_COLUMNS = 8


@dataclass(frozen=True)
class Row:
    """A label and the images beside it, uint8 (n, H, W, C)."""

    label: str
    images: Images


def corruption_rows(
    shifted: Callable[[str, int], Dataset],
    clean: Dataset | None = None,
    *,
    corruptions: Sequence[str] = (),
    severities: Sequence[int] = (),
    count: int = 6,
) -> list[Row]:
    """The clean images if there are any, then the same under each corruption and severity.

    `shifted(corruption, severity)` gives a data set; corruptions of which there are no files are
    left out, unless they are named. Without `severities`: 5 for several corruptions, all five
    for a single one.
    """
    if count < 1:
        raise ValueError(f"a sheet needs at least one image per row; got {count}.")
    single = len(corruptions) == 1
    severities = severities or (SEVERITIES if single else (SEVERITIES[-1],))
    rows = [] if clean is None else [Row("clean", clean.images(spread(clean.labels, count)))]
    for corruption in corruptions or CORRUPTIONS:
        for severity in severities:
            try:
                dataset = shifted(corruption, severity)
            except FileNotFoundError:
                if corruptions:
                    raise
                continue
            label = _label(corruption, severity, single, len(severities) > 1)
            rows.append(Row(label, dataset.images(spread(dataset.labels, count))))
    if not rows:
        raise FileNotFoundError("there is no corrupted image to show. Fetch or make some first.")
    return rows


def _label(corruption: str, severity: int, single: bool, several: bool) -> str:
    name = corruption.replace("_", " ")
    if not several:
        return name
    return f"severity {severity}" if single else f"{name} {severity}"


def class_rows(dataset: Dataset, *, count: int = 10, most_classes: int = 20) -> list[Row]:
    """A row of clean images for each of the first classes."""
    present = np.unique(dataset.labels)[:most_classes]
    members = ((label, np.flatnonzero(dataset.labels == label)[:count]) for label in present)
    return [Row(dataset.classes[label], dataset.images(chosen)) for label, chosen in members]


def draw(rows: Sequence[Row], title: str, subtitle: str = "") -> Image.Image:
    """The sheet: two columns of rows when there are many."""
    height, width = rows[0].images.shape[1:3]
    scale = max(1, -(-TILE // max(height, width)))
    shrink = min(1.0, LARGEST_TILE / (scale * max(height, width)))
    tile = (round(width * scale * shrink), round(height * scale * shrink))
    columns = 2 if len(rows) > ROWS_BEFORE_TWO_COLUMNS else 1
    deep = -(-len(rows) // columns)
    wide = max(len(row.images) for row in rows)
    label_width = round(max(_font(14).getlength(row.label) for row in rows)) + MARGIN
    panel = label_width + wide * (tile[0] + GAP) + MARGIN
    sheet = Image.new(
        "RGB",
        (MARGIN + columns * panel, TITLE_HEIGHT + deep * (tile[1] + GAP) + MARGIN),
        PAPER,
    )
    pen = ImageDraw.Draw(sheet)
    pen.text((MARGIN, 14), title, font=_font(20, bold=True), fill=INK)
    end = MARGIN + pen.textlength(title, font=_font(20, bold=True)) + 14
    pen.text((end, 20), subtitle, font=_font(13), fill=FAINT)
    for number, row in enumerate(rows):
        left = MARGIN + (number // deep) * panel
        top = TITLE_HEIGHT + (number % deep) * (tile[1] + GAP)
        middle = (left, top + tile[1] // 2)
        pen.text(middle, row.label, font=_font(14), fill=INK, anchor="lm")
        for column, image in enumerate(row.images):
            place = (left + label_width + column * (tile[0] + GAP), top)
            sheet.paste(_tile(image, tile), place)
    return sheet


def _tile(image: Images, size: tuple[int, int]) -> Image.Image:
    pixels = np.broadcast_to(image, (*image.shape[:2], 3))
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    enlarged = size[0] >= picture.width
    method = Image.Resampling.NEAREST if enlarged else Image.Resampling.LANCZOS
    return picture.resize(size, method)


def _font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)


def save(sheet: Image.Image, path: Path) -> None:
    """Write the sheet, through a `.part` file so that no half of a picture is ever left."""
    extension = path.suffix.lower()
    formats = Image.registered_extensions()
    if extension not in formats:
        raise ValueError(f"the picture must be a .png or .jpg file; got {path.name!r}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        sheet.save(part, format=formats[extension])
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
