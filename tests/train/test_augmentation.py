"""Augmentation of whole batches, against one image at a time."""

import pytest
import torch
from torch.nn import functional

from fenchel.train.augmentation import (
    AUGMENTATIONS,
    NoAugmentation,
    PadCrop,
    ResizedCrop,
    parse,
    to_unit_range,
)
from fenchel.train.seeds import generator


def images(count=16, height=12, width=10, channels=3):
    return torch.randint(0, 256, (count, height, width, channels), generator=generator(0)).byte()


def test_plain_images_are_in_the_unit_range_and_channels_last():
    batch = images()
    batch[0, 0, 0, 0], batch[0, 0, 1, 0] = 0, 255
    plain = NoAugmentation()(batch, generator(1))
    assert plain.shape == (16, 3, 12, 10)
    assert plain.is_contiguous(memory_format=torch.channels_last)
    assert (plain.min(), plain.max()) == (0.0, 1.0)
    assert torch.equal((plain * 255).round().byte().permute(0, 2, 3, 1), batch)


def windows_of(image, padding, side_h, side_w, flip):
    """Every window that `PadCrop` may take of one (H, W, C) image."""
    padded = functional.pad(image, (0, 0, padding, padding, padding, padding))
    for top in range(padded.shape[0] - side_h + 1):
        for left in range(padded.shape[1] - side_w + 1):
            window = padded[top : top + side_h, left : left + side_w]
            yield (top, left, False), window
            if flip:
                yield (top, left, True), window.flip(1)


@pytest.mark.parametrize("flip", [True, False])
def test_pad_crop_takes_every_window_of_the_padded_image(flip):
    batch = images(1).expand(400, -1, -1, -1)
    crops = (PadCrop(padding=2, flip=flip)(batch, generator(3)) * 255).round().byte()
    places = {w.flatten().numpy().tobytes(): p for p, w in windows_of(batch[0], 2, 12, 10, flip)}
    seen = {places[c.permute(1, 2, 0).flatten().numpy().tobytes()] for c in crops}
    assert len(seen) > 0.9 * len(places)
    assert any(mirrored for _, _, mirrored in seen) == flip


def test_pad_crop_to_a_smaller_side_stays_inside_and_evaluates_the_centre():
    batch = images(8, 32, 32)
    crop = parse("pad-crop:padding=0,size=28,flip=False")
    assert crop(batch, generator(0)).shape == (8, 3, 28, 28)
    assert torch.equal(crop.plain(batch), to_unit_range(batch[:, 2:30, 2:30]))
    assert crop.output_side(32) == 28
    assert crop.output_side(16) == 16  # smaller images stay as they are


def test_augmentation_is_a_function_of_the_generator_alone():
    batch = images()
    for augmentation in (PadCrop(), ResizedCrop()):
        first, again = augmentation(batch, generator(5)), augmentation(batch, generator(5))
        assert torch.equal(first, again)
        assert not torch.equal(first, augmentation(batch, generator(6)))


@pytest.mark.parametrize("spec", AUGMENTATIONS)
def test_batches_come_out_channels_last_and_in_the_unit_range(spec):
    batch = parse(spec)(images(), generator(0))
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert batch.min() >= 0
    assert batch.max() <= 1


def test_augmentation_leaves_the_batch_as_it_was():
    batch = images()
    before = batch.clone()
    for spec in ("none", "pad-crop", "resized-crop"):
        parse(spec)(batch, generator(0))
    assert torch.equal(batch, before)


def test_resized_crop_stretches_each_window_like_interpolate():
    batch, crop = images(32, 24, 24), ResizedCrop(smallest=0.2, flip=False)
    stretched = crop(batch, generator(9))
    windows = torch.stack(crop._windows(32, 24, 24, generator(9)), dim=1)
    for image, result, (top, left, tall, wide) in zip(batch, stretched, windows, strict=True):
        window = to_unit_range(image[None, top : top + tall, left : left + wide])
        expected = functional.interpolate(window, (24, 24), mode="bilinear", align_corners=False)
        torch.testing.assert_close(result, expected[0], atol=1e-5, rtol=0)


def test_resized_crop_windows_have_the_stated_areas_and_shapes():
    top, left, tall, wide = ResizedCrop(smallest=0.2)._windows(4000, 32, 32, generator(2))
    area, ratio = tall * wide / 1024, wide / tall
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + tall).max() == 32
    assert (left + wide).max() == 32
    assert 0.17 < area.min() < 0.22
    assert area.max() > 0.95
    # Large windows fit only when nearly square, so fewer of them are taken: below the mean 0.6.
    assert 0.52 < area.mean() < 0.6
    # Whole pixels shift the ratio a little beyond its limits.
    assert 0.7 < ratio.min() < 0.8
    assert 1.25 < ratio.max() < 1.45


def test_resized_crop_mirrors_half_of_the_images():
    ramp = torch.arange(0, 240, 10).byte().view(1, 1, 24, 1).expand(600, 24, 24, 1)
    result = ResizedCrop()(ramp, generator(4))[:, 0, 12]
    mirrored = (result[:, 0] > result[:, -1]).float().mean()
    assert 0.42 < mirrored < 0.58


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("pad-corp", "Did you mean 'pad-crop'"),
        ("pad-crop:pading=4", "padding"),
        ("pad-crop:padding=-1", "padding >= 0"),
        ("resized-crop:smallest=0", "share of the area"),
    ],
)
def test_mistakes_in_specs_are_explained(spec, message):
    with pytest.raises(ValueError, match=message):
        parse(spec)
