"""noise_param: OpenCV's own results, pixel by pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend import random
from pycaffe_fire.data.augment import Dice
from pycaffe_fire.data.noise import add_noise, check_noise
from pycaffe_fire.errors import DataError

SLOPE = np.stack(np.broadcast_arrays(np.arange(83) * 2, np.arange(61)[:, None] * 3, 90))
IMAGE = np.clip(SLOPE + np.random.default_rng(4).integers(-40, 40, (3, 61, 83)), 0, 255).astype(
    np.uint8
)


def noisy(text: str, image: Any = IMAGE, sample: int = 0) -> Any:
    param = schema.parse_text(text, schema.NoiseParameter())
    check_noise(param, "noise_param")
    return add_noise(image, param, Dice(random.key(1, "noise"), sample))


def with_opencv(cv2: Any, text: str, image: Any) -> Any:
    """What SSD's source calls for one field."""
    name = text.partition(":")[0]
    if name == "decolorize":
        return cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    if name == "gauss_blur":
        return cv2.GaussianBlur(image, (7, 7), 1.5)
    if name in ("hist_eq", "clahe"):
        bright = cv2.cvtColor(image, cv2.COLOR_BGR2YCrCb)
        change = cv2.equalizeHist if name == "hist_eq" else cv2.createCLAHE(4).apply
        bright[..., 0] = change(bright[..., 0].copy())
        return cv2.cvtColor(bright, cv2.COLOR_YCrCb2BGR)
    if name == "jpeg":
        return cv2.imdecode(cv2.imencode(".jpg", image, [1, 40])[1], cv2.IMREAD_COLOR)
    if name == "erode":
        return cv2.erode(image, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3), (1, 1)))
    if name == "posterize":
        return cv2.LUT(image, np.array([i // 64 * 64 + 32 for i in range(256)], np.uint8))
    if name == "inverse":
        return cv2.bitwise_not(image)
    if name == "convert_to_hsv":
        return cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    return cv2.cvtColor(image.astype(np.float32) * np.float32(1 / 255), cv2.COLOR_BGR2Lab)


@pytest.mark.parametrize(
    "text, most",
    [
        ("decolorize: true", 0),
        ("gauss_blur: true", 1),
        ("hist_eq: true", 0),
        ("clahe: true", 0),
        ("jpeg: 40", 0),
        ("erode: true", 0),
        ("posterize: true", 0),
        ("inverse: true", 0),
        ("convert_to_hsv: true", 0),
        ("convert_to_lab: true", 0.5),  # OpenCV looks roots up in a table
    ],
)
def test_noise_is_what_opencv_gives(text: str, most: float) -> None:
    cv2 = pytest.importorskip("cv2")
    got = noisy(text)
    expected = with_opencv(cv2, text, np.ascontiguousarray(IMAGE.transpose(1, 2, 0)))
    assert np.abs(got.transpose(1, 2, 0).astype(float) - expected).max() <= most
    assert not np.array_equal(got, IMAGE)


def test_clahe_where_tiles_fit() -> None:
    cv2 = pytest.importorskip("cv2")
    grey = np.ascontiguousarray(IMAGE[:1, :56, :64])
    assert np.array_equal(noisy("clahe: true", grey)[0], cv2.createCLAHE(4).apply(grey[0].copy()))
    assert np.array_equal(noisy("hist_eq: true", grey)[0], cv2.equalizeHist(grey[0].copy()))
    flat = np.full((1, 8, 8), 7, np.uint8)
    assert np.array_equal(noisy("hist_eq: true", flat), flat)


def test_salt_and_pepper() -> None:
    text = "saltpepper: true saltpepper_param { fraction: 0.1 value: 0 value: 9 value: 255 }"
    got = noisy(text)
    changed = (got != IMAGE).any(axis=0)
    assert 0.07 < changed.mean() < 0.1  # some pixels are hit twice
    assert (got[:, changed].T == [0, 9, 255]).all()
    assert np.array_equal(noisy(text), got) and not np.array_equal(noisy(text, sample=1), got)


def test_what_does_not_fit() -> None:
    with pytest.raises(DataError, match="decolorize needs images of 3 channels, got 1"):
        noisy("decolorize: true", IMAGE[:1])
    with pytest.raises(DataError, match="2 value for images of 3 channels"):
        noisy("saltpepper: true saltpepper_param { fraction: 0.1 value: 1 value: 2 }")
