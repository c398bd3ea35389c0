"""SSD's batch samplers: sizes and shapes of windows, and what they must keep in view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend import random
from pycaffe_fire.data.augment import Dice
from pycaffe_fire.data.batch_sampler import check_samplers, cut, sample_window
from pycaffe_fire.data.objects import Scene
from pycaffe_fire.errors import DataError

KEY = random.key(3, "sampler")
IMAGE = np.arange(3 * 40 * 60, dtype=np.uint8).reshape(3, 40, 60)
SCENE = Scene(
    IMAGE, np.array([[1, 0, 0.1, 0.1, 0.4, 0.5, 0], [2, 0, 0.5, 0.6, 0.9, 0.9, 0]], np.float32)
)


def samplers(*texts: str) -> Any:
    return [schema.parse_text(text, schema.BatchSampler()) for text in texts]


def windows(*texts: str, count: int = 100, scene: Scene = SCENE) -> Any:
    given = samplers(*texts)
    check_samplers(given)
    return [sample_window(scene, given, Dice(KEY, i)) for i in range(count)]


def test_windows_are_within_their_limits() -> None:
    limits = "min_scale: 0.3 max_scale: 0.9 min_aspect_ratio: 0.5 max_aspect_ratio: 2"
    found = np.array(windows(f"sampler {{ {limits} }} max_sample: 1"))
    width, height = (found[:, 2:] - found[:, :2]).T
    scale, ratio = np.sqrt(width * height), width / height
    assert found.min() >= 0 and found.max() <= 1 + 1e-6
    assert scale.min() >= 0.3 - 1e-6 and scale.max() <= 0.9 + 1e-6 and np.ptp(scale) > 0.4
    assert ratio.min() >= 0.5 - 1e-6 and ratio.max() <= 2 + 1e-6 and np.ptp(ratio) > 0.8


@pytest.mark.parametrize(
    "limits, low, high",
    [
        ("min_jaccard_overlap: 0.3", 0.3, 1.0),
        ("max_jaccard_overlap: 0.1", 0.0, 0.1),
        ("min_object_coverage: 0.9", 0.9, 1.0),
        ("max_object_coverage: 0.5", 0.0, 0.5),
        ("min_sample_coverage: 0.5", 0.5, 1.0),
        ("max_sample_coverage: 0.05", 0.0, 0.05),
    ],
)
def test_constraints(limits: str, low: float, high: float) -> None:
    """Some object has the value that the constraint asks for."""
    text = "sampler { min_scale: 0.2 } max_sample: 1 max_trials: 200"
    found = windows(f"{text} sample_constraint {{ {limits} }}")
    assert None not in found
    for left, top, right, bottom in found:
        values = []
        for xmin, ymin, xmax, ymax in SCENE.objects[:, 2:6].tolist():
            wide = max(0.0, min(right, xmax) - max(left, xmin))
            high_side = max(0.0, min(bottom, ymax) - max(top, ymin))
            shared = wide * high_side
            of_object = (xmax - xmin) * (ymax - ymin)
            of_window = (right - left) * (bottom - top)
            union = of_object + of_window - shared
            whole = union if "jaccard" in limits else of_object if "object" in limits else of_window
            values.append(shared / whole)
        assert any(low - 1e-5 <= value <= high + 1e-5 for value in values)


def test_how_many_windows_are_tried_and_found() -> None:
    whole = "max_sample: 1 max_trials: 1"  # SSD's first sampler: the image itself
    assert windows(whole, count=3) == [(0, 0, 1, 1)] * 3
    never = "max_trials: 5 sample_constraint { min_jaccard_overlap: 1.5 }"
    assert windows(never, count=3) == [None] * 3
    assert windows(f"use_original_image: false {whole}", count=3) == [None] * 3
    small = "sampler { min_scale: 0.5 max_scale: 0.5 } max_sample: 3"
    chosen = [window == (0, 0, 1, 1) for window in windows(whole, small, count=400)]
    assert 60 < sum(chosen) < 140  # one of four windows
    empty = Scene(IMAGE, SCENE.objects[:0])
    assert windows("sample_constraint { min_jaccard_overlap: 0.1 }", count=2, scene=empty) == [
        None, None
    ]  # fmt: skip


def test_pixels_of_a_window() -> None:
    assert np.array_equal(cut(SCENE, (0.25, 0.5, 0.75, 1.0)), IMAGE[:, 20:, 15:45])
    assert cut(SCENE, (0.999, 0.999, 1.0, 1.0)).shape == (3, 1, 1)


@pytest.mark.parametrize(
    "text, message",
    [
        ("sampler { min_scale: 0 }", "0 < min_scale <= max_scale <= 1, got 0 and 1"),
        ("sampler { max_scale: 1.5 }", "0 < min_scale <= max_scale <= 1"),
        ("sampler { min_aspect_ratio: 2 }", "min_aspect_ratio <= max_aspect_ratio, got 2 and 1"),
    ],
)
def test_wrong_limits(text: str, message: str) -> None:
    with pytest.raises(DataError, match=f"batch_sampler 1: .*{message}"):
        check_samplers(samplers("", text))
