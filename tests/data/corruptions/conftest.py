"""Images to corrupt: synthetic ones with edges, gradients and texture."""

import numpy as np
import pytest


def scenes(count: int, height: int, width: int) -> np.ndarray:
    generator = np.random.default_rng(7)
    down, right = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    images = np.empty((count, height, width, 3))
    for image in images:
        colours = generator.uniform(20, 235, (4, 3))
        image[:] = colours[0] + (colours[1] - colours[0]) * down[..., None]
        centre, radius = generator.uniform(0.3, 0.7, 2), generator.uniform(0.15, 0.35)
        disk = (down - centre[0]) ** 2 + (right - centre[1]) ** 2 < radius**2
        image[disk] = colours[2]
        image[(right > 0.6) & (down > 0.75)] = colours[3]
        stripes = 30 * np.sin(2 * np.pi * generator.uniform(3, 8) * (right + down))
        image += (stripes * (down < 0.4))[..., None]
        # No flat region: there the last bit of a sum decides whole levels.
        image += generator.integers(-4, 5, image.shape)
    return np.clip(images, 0, 255).astype(np.uint8)


@pytest.fixture(scope="session")
def small() -> np.ndarray:
    """Eight images of 32 x 32 pixels."""
    return scenes(8, 32, 32)


@pytest.fixture(scope="session")
def large() -> np.ndarray:
    """Two images of 224 x 224 pixels."""
    return scenes(2, 224, 224)
