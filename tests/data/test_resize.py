"""Resizing against OpenCV's definition written out, against OpenCV if it is there, and itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.cpu import library
from pycaffe_fire.data.kernels import Resize
from pycaffe_fire.data.resize import AREA, CUBIC, LANCZOS, LINEAR, NEAREST, resize
from pycaffe_fire.errors import BackendError, DataError
from tests.random_numbers import RNG

SIZES = [
    (9, 7, 23, 17),
    (40, 50, 32, 32),
    (17, 33, 5, 9),
    (30, 8, 7, 40),
    (1, 6, 4, 3),
    (5, 1, 2, 7),
]


def linear_by_hand(plane: Any, height: int, width: int) -> Any:
    """One output pixel after the other, in integers."""
    old_height, old_width = plane.shape
    out = np.empty((height, width), np.uint8)

    def place(i: Any, old: Any, new: Any) -> Any:
        at = np.float32((i + 0.5) * (old / new) - 0.5)
        whole = int(np.floor(at))
        return whole, at - np.float32(whole)

    def row(y: Any, x: Any) -> Any:
        left, part = place(x, old_width, width)
        if left < 0 or left >= old_width - 1:
            left, part = min(max(left, 0), old_width - 1), np.float32(0)
        right = min(left + 1, old_width - 1)
        weights = round(float((1 - part) * 2048)), round(float(part * 2048))
        y = min(max(y, 0), old_height - 1)
        return int(plane[y, left]) * weights[0] + int(plane[y, right]) * weights[1]

    for y in range(height):
        top, part = place(y, old_height, height)
        above, below = round(float((1 - part) * 2048)), round(float(part * 2048))
        for x in range(width):
            total = (above * (row(top, x) >> 4) >> 16) + (below * (row(top + 1, x) >> 4) >> 16)
            out[y, x] = (total + 2) >> 2
    return out


@pytest.mark.parametrize("size", SIZES)
def test_linear_is_the_definition(size: Any) -> None:
    old, new = size[:2], size[2:]
    image = RNG.integers(0, 256, (2, *old), dtype=np.uint8)
    expected = np.stack([linear_by_hand(plane, *new) for plane in image])
    assert np.array_equal(resize(image, *new), expected)


@pytest.mark.parametrize("method", [LINEAR, CUBIC, AREA, NEAREST, LANCZOS])
@pytest.mark.parametrize("size", SIZES)
def test_kernels_give_what_numpy_gives(
    native_isa: str, monkeypatch: pytest.MonkeyPatch, method: Any, size: Any
) -> None:
    pixels = RNG.integers(0, 256, (*size[:2], 3), dtype=np.uint8)
    extreme = np.where(pixels < 128, 0, 255).astype(np.uint8)
    images = [extreme.transpose(2, 0, 1), pixels.transpose(2, 0, 1), pixels[::-1, ::-1].T]
    native = [resize(image, size[2], size[3], method) for image in images]
    monkeypatch.setattr(library, "available", lambda: False)
    for image, found in zip(images, native, strict=True):
        assert np.array_equal(resize(np.ascontiguousarray(image), size[2], size[3], method), found)


@pytest.mark.skipif(not library.available(), reason="the CPU kernels are not compiled")
def test_the_kernel_refuses_places_outside_the_image() -> None:
    ends = np.array([[0, 1], [1, 2]])
    kernel = Resize(
        threads=1, columns=ends, across=np.zeros((2, 2), np.int32), rows=ends, taps=2,
        down=np.zeros((2, 2), np.int32), out=np.zeros((2, 2), np.uint8), channels=1, height=2,
        width=2, old_height=2, old_width=3,
    )  # fmt: skip
    with pytest.raises(BackendError, match="resize: rows are not within 0 and 1"):
        kernel.run()
    kernel.rows, kernel.taps = ends[:1], 3
    with pytest.raises(BackendError, match="resize: columns has 4 elements, the kernel needs 6"):
        kernel.run()


@pytest.mark.parametrize("method", [LINEAR, CUBIC, AREA, NEAREST, LANCZOS])
def test_against_opencv(method: Any) -> None:
    cv2 = pytest.importorskip("cv2")
    code = {NEAREST: 0, LINEAR: 1, CUBIC: 2, AREA: 3, LANCZOS: 4}[method]
    for old_height, old_width, height, width in [*SIZES, (64, 48, 32, 24), (30, 60, 10, 15)]:
        image = RNG.integers(0, 256, (old_height, old_width, 3), dtype=np.uint8)
        expected = cv2.resize(image, (width, height), interpolation=code).transpose(2, 0, 1)
        got = resize(image.transpose(2, 0, 1), height, width, method)
        error = np.abs(got.astype(int) - expected)
        # OpenCV's own cubic and area round differently on different processors.
        assert error.max() <= (0 if method in (LINEAR, NEAREST) else 1)


def test_halving_is_the_mean_of_four() -> None:
    image = np.array([[[0, 1, 10, 20], [2, 3, 30, 43]]], np.uint8)
    assert resize(image, 1, 2).tolist() == [[[2, 26]]]


def test_constant_images_stay_constant() -> None:
    image = np.full((1, 13, 21), 201, np.uint8)
    for method in (LINEAR, CUBIC, AREA, NEAREST, LANCZOS):
        for size in ((5, 40), (26, 42), (13, 7), (3, 3)):
            assert (resize(image, *size, method) == 201).all()


def test_same_size_is_untouched_and_floats_are_refused() -> None:
    image = RNG.integers(0, 256, (3, 5, 6), dtype=np.uint8)
    assert resize(image, 5, 6) is image
    with pytest.raises(DataError, match="only 8-bit"):
        resize(image.astype(np.float32), 2, 2)
