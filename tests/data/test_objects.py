"""Boxes seen through windows: SSD's projection, clipping and emit constraints, box by box."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.data.objects import NO_OBJECTS, mirrored, through_window
from pycaffe_fire.data.resize_param import padded_window
from tests.random_numbers import RNG


def objects(count: int) -> Any:
    corners = np.sort(RNG.random((count, 2, 2)), axis=1).reshape(count, 4)
    ids = np.stack((RNG.integers(1, 5, count), np.arange(count)), axis=1)
    return np.hstack((ids, corners, RNG.integers(0, 2, (count, 1)))).astype(np.float32)


def constraint(text: str) -> Any:
    return schema.parse_text(text, schema.EmitConstraint()) if text else None


def seen_slowly(rows: Any, window: Any, emit: Any) -> list[list[float]]:
    """The definition, one box and coordinate at a time."""
    left, top, right, bottom = window
    found = []
    for label, instance, xmin, ymin, xmax, ymax, difficult in rows.tolist():
        if emit is not None:
            if emit.emit_type == schema.EmitConstraint.CENTER:
                x, y = (xmin + xmax) / 2, (ymin + ymax) / 2
                if not (left <= x <= right and top <= y <= bottom):
                    continue
            else:
                wide = max(0, min(xmax, right) - max(xmin, left))
                high = max(0, min(ymax, bottom) - max(ymin, top))
                if wide * high / ((xmax - xmin) * (ymax - ymin)) <= emit.emit_overlap:
                    continue
        if xmin >= right or xmax <= left or ymin >= bottom or ymax <= top:
            continue
        box = [
            min(1, max(0, (value - low) / (high - low)))
            for value, low, high in zip(
                (xmin, ymin, xmax, ymax), (left, top) * 2, (right, bottom) * 2, strict=True
            )
        ]
        if box[0] < box[2] and box[1] < box[3]:
            found.append([label, instance, *box, difficult])
    return found


@pytest.mark.parametrize(
    "emit", ["", "emit_type: CENTER", "emit_type: MIN_OVERLAP emit_overlap: 0.4"]
)
def test_emit_constraints(emit: str) -> None:
    rows, lost = objects(200), 0
    for _ in range(20):
        low, high = RNG.uniform(-0.3, 0.5, 2), RNG.uniform(0.55, 1.4, 2)
        window = (*low.tolist(), *high.tolist())
        got = through_window(rows, window, constraint(emit))
        expected = np.array(seen_slowly(rows, window, constraint(emit)), np.float32)
        assert got.dtype == np.float32 and got.shape == expected.shape
        assert np.allclose(got, expected, atol=2e-6)
        lost += len(rows) - len(got)
    assert lost > 100


def test_mirroring_twice_is_nothing() -> None:
    rows = objects(10)
    turned = mirrored(rows)
    assert np.allclose(turned[:, 2], 1 - rows[:, 4]) and np.array_equal(turned[:, 3], rows[:, 3])
    assert np.allclose(mirrored(turned), rows, atol=1e-6)
    assert len(mirrored(NO_OBJECTS)) == 0


@pytest.mark.parametrize("height, width", [(40, 60), (60, 40), (50, 50)])
def test_padding_moves_boxes(height: int, width: int) -> None:
    """FIT_LARGE_SIZE_AND_PAD: the image lies in the middle, scaled alike both ways."""
    param = schema.parse_text(
        "height: 30 width: 30 resize_mode: FIT_LARGE_SIZE_AND_PAD", schema.ResizeParameter()
    )
    window = padded_window(param, height, width)
    row = np.array([[1, 0, 0.25, 0.5, 0.75, 1.0, 0]], np.float32)
    (got,) = through_window(row, window, None)[:, 2:6]
    scale = 30 / max(height, width)
    x, y = (30 - width * scale) / 2, (30 - height * scale) / 2
    pixels = [x + 0.25 * width * scale, y + 0.5 * height * scale,
              x + 0.75 * width * scale, y + height * scale]  # fmt: skip
    assert np.allclose(got * 30, pixels, atol=1e-4)
