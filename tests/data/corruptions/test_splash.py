"""The steps behind the water of the spatter, against loops, and against OpenCV where installed."""

import math

import numpy as np
import pytest
from scipy import ndimage

from fenchel.data.corruptions.splash import distance_to, drops, equalise, outlines


@pytest.fixture(scope="module")
def blots():
    noise = np.random.default_rng(0).normal(0.65, 0.3, (12, 24, 30))
    liquid = ndimage.gaussian_filter(noise, (0, 1, 1), mode="nearest")
    return np.where(liquid < 0.69, 0, liquid * 255).astype(np.uint8)


def naive_canny(image):
    height, width = image.shape
    padded = np.pad(image.astype(int), 1, mode="edge")
    slope, gradient = np.zeros((height + 2, width + 2), dtype=int), {}
    for r, c in np.ndindex(height, width):
        window = padded[r : r + 3, c : c + 3]
        right = (window[:, 2] - window[:, 0]) @ [1, 2, 1]
        down = (window[2] - window[0]) @ [1, 2, 1]
        gradient[r, c] = right, down
        slope[r + 1, c + 1] = abs(right) + abs(down)
    ridge = {}
    for (r, c), (right, down) in gradient.items():
        here, degrees = slope[r + 1, c + 1], math.degrees(math.atan2(abs(down), abs(right)))
        if degrees < 22.5:
            kept = slope[r + 1, c] < here >= slope[r + 1, c + 2]
        elif degrees > 67.5:
            kept = slope[r, c + 1] < here >= slope[r + 2, c + 1]
        else:
            side = -1 if (right < 0) != (down < 0) else 1
            kept = slope[r, c + 1 - side] < here > slope[r + 2, c + 1 + side]
        if kept and here > 50:
            ridge[r, c] = here
    edges = np.zeros(image.shape, dtype=bool)
    waiting = [place for place, here in ridge.items() if here > 150]
    while waiting:
        r, c = waiting.pop()
        if not edges[r, c]:
            edges[r, c] = True
            near = [(r + i, c + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
            waiting.extend(place for place in near if place in ridge)
    return edges


def naive_distance(marked):
    """The shortest way in an open plane: knight's moves, filled up with straight or diagonal ones."""
    result = np.full(marked.shape, 20.0)
    for place in np.ndindex(marked.shape):
        for mark in np.argwhere(marked):
            near, far = sorted(abs(np.array(place) - mark))
            if 2 * near <= far:
                way = 2.1969 * near + (far - 2 * near)
            else:
                way = 2.1969 * (far - near) + 1.4 * (2 * near - far)
            result[place] = min(result[place], way)
    return result


def test_outlines_equal_a_loop_over_pixels(blots):
    edges = outlines(blots)
    assert 0.05 < edges.mean() < 0.5
    for image, edge in zip(blots, edges, strict=True):
        np.testing.assert_array_equal(edge, naive_canny(image))


def test_weak_outlines_need_a_strong_one():
    weak = np.zeros((1, 9, 9), dtype=np.uint8)
    weak[:, :, 5:] = 30
    assert not outlines(weak).any()
    strong = weak.copy()
    strong[:, 4:, 5:] = 60
    assert outlines(strong)[0, :3].any()


def test_outlines_stay_within_their_image():
    step = np.zeros((3, 9, 9), dtype=np.uint8)
    step[1, :, 4:] = 200
    edges = outlines(step)
    assert edges[1].any()
    assert not edges[[0, 2]].any()


def test_distances_equal_the_shortest_of_all_ways():
    marked = np.random.default_rng(1).random((4, 11, 14)) < 0.03
    marked[3] = False
    for mask, lengths in zip(marked, distance_to(marked), strict=True):
        np.testing.assert_allclose(lengths, naive_distance(mask), atol=1e-3)


def test_distances_end_at_twenty():
    marked = np.zeros((1, 5, 60), dtype=bool)
    marked[0, 2, 0] = True
    np.testing.assert_allclose(distance_to(marked)[0, 2], np.minimum(np.arange(60), 20))


def test_equalising_spreads_levels_by_their_ranks():
    levels = np.array([[[0, 0, 3, 3], [3, 7, 7, 20]], [[5, 5, 5, 5], [5, 5, 5, 5]]], np.uint8)
    first, second = equalise(levels)
    # Six pixels lie above the lowest level: three, five and six of them up to 3, 7 and 20.
    expected = {0: 0, 3: round(255 * 3 / 6), 7: round(255 * 5 / 6), 20: 255}
    np.testing.assert_array_equal(first, np.vectorize(expected.get)(levels[0]))
    np.testing.assert_array_equal(second, levels[1])


def test_the_brightest_drop_is_one_and_nothing_gives_nothing(blots):
    np.testing.assert_array_equal(drops(blots).max(axis=(1, 2)), 1)
    np.testing.assert_array_equal(drops(np.zeros((2, 9, 9), dtype=np.uint8)), 0)


def test_drops_equal_the_steps_of_opencv(blots):
    cv2 = pytest.importorskip("cv2")
    for image, water in zip(blots, drops(blots), strict=True):
        relief = cv2.distanceTransform(255 - cv2.Canny(image, 50, 150), cv2.DIST_L2, 5)
        relief = cv2.blur(np.minimum(relief, 20), (3, 3)).astype(np.uint8)
        emboss = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], dtype=np.float32)
        relief = cv2.blur(cv2.filter2D(cv2.equalizeHist(relief), cv2.CV_8U, emboss), (3, 3))
        expected = image * relief.astype(np.float32)
        np.testing.assert_allclose(water, expected / expected.max(), rtol=1e-6)
