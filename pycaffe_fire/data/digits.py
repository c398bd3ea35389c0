"""The embedded digits: 28x28 grey images drawn by code, so that a demo needs no download.

Everything comes from the counter-based generator and from operations that round the same on every
machine (no sine, no library call), so the databases are identical everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend import random
from ..backend.cpu import library
from .datum import encode_datum
from .drawn import make_database
from .glyphs import make_tables
from .kernels import DrawStrokes

SIZE = 28
SPLITS = {"train": 20_000, "test": 4_000}
_SEED = 28
_TABLES = make_tables()
_POINTS = _TABLES.points.shape[1]

# How far a digit may stray from its drawing: (least, most) of each uniform choice.
_JITTER = (-0.055, 0.055)  # of every point of a stroke, in parts of the digit
_TURN = (-0.17, 0.17)  # tangent of half the angle
_SCALE = (13.0, 21.0)  # pixels, height and width apart
_SHEAR = (-0.35, 0.35)
_SHIFT = (-3.0, 3.0)  # pixels
_RADIUS = (0.5, 1.7)  # of the pen, pixels
_PAPER = (0.0, 60.0)  # grey of the background
_INK = (90.0, 255.0)  # how much brighter the stroke is
_NOISE = (0.0, 0.35)  # of full range


def _geometry(u: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Labels, and the straight pieces (n, pieces, 2 ends, xy) in pixels, from (n, k) uniforms."""
    rows = np.arange(len(u))
    choice = u.astype(np.float64)
    label = (choice[:, 0] * 10).astype(np.int64)
    ways = _TABLES.first[label + 1] - _TABLES.first[label]
    glyph = _TABLES.first[label] + (choice[:, 1] * ways).astype(np.int64)
    jitter = _spread(choice[:, 2 : 2 + 2 * _POINTS], _JITTER).reshape(-1, _POINTS, 2)
    points = _TABLES.points[glyph] + jitter - 0.5
    turn, shear, wide, high, right, down = choice[:, 2 + 2 * _POINTS :].T
    t = _spread(turn, _TURN)
    cosine, sine = (1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)
    x = points[:, :, 0] * _spread(wide, _SCALE)[:, None]
    y = points[:, :, 1] * _spread(high, _SCALE)[:, None]
    x = x + y * _spread(shear, _SHEAR)[:, None]
    placed = np.stack(
        (
            x * cosine[:, None] - y * sine[:, None] + (_spread(right, _SHIFT) + SIZE / 2)[:, None],
            x * sine[:, None] + y * cosine[:, None] + (_spread(down, _SHIFT) + SIZE / 2)[:, None],
        ),
        axis=-1,
    )
    index, weight = _TABLES.corner[glyph], _TABLES.weight[glyph]
    ends = np.zeros((*index.shape[:3], 2))
    for k in range(4):  # a fixed order of additions
        ends = ends + placed[rows[:, None, None], index[..., k]] * weight[..., k, None]
    return label, ends


def _spread(unit: NDArray[np.float64], limits: tuple[float, float]) -> NDArray[np.float64]:
    return limits[0] + unit * (limits[1] - limits[0])


def _draw(ends: NDArray[np.float64], radius: Any, out: NDArray[np.float64]) -> None:
    """out[i, y, x] = how much of the pixel the pen covers, 0 to 1."""
    count, pieces = ends.shape[:2]
    DrawStrokes(
        threads=1, ends=ends, radius=radius, out=out, count=count, pieces=pieces, size=out.shape[1]
    ).run()


def _draw_numpy(ends: NDArray[np.float64], radius: Any, out: NDArray[np.float64]) -> None:
    centre = np.arange(out.shape[1]) + 0.5
    for i, pieces in enumerate(ends):
        a = pieces[:, 0, :, None, None]
        dx, dy = (pieces[:, 1, :, None, None] - a).transpose(1, 0, 2, 3)
        px, py = centre[None, None, :] - a[:, 0], centre[None, :, None] - a[:, 1]
        t = np.clip((px * dx + py * dy) * (1.0 / (dx * dx + dy * dy + 1e-12)), 0.0, 1.0)
        ex, ey = px - t * dx, py - t * dy
        nearest = (ex * ex + ey * ey).min(axis=0)
        out[i] = np.clip(radius[i] + 0.5 - np.sqrt(nearest), 0.0, 1.0)


def render(split: str, first: int, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (count, 28, 28) and labels of a split, from number `first` on."""
    shape = random.key(_SEED, f"digits {split} shape")
    width = 2 + 2 * _POINTS + 6
    u = random.uniform_batch(shape, 0, first, count, width, np.empty((count, width), np.float32))
    label, ends = _geometry(u)
    tone = random.key(_SEED, f"digits {split} tone")
    v = random.uniform_batch(tone, 0, first, count, 4, np.empty((count, 4), np.float32))
    radius, paper, ink, noise = (
        _spread(v[:, i].astype(np.float64), limits)
        for i, limits in enumerate((_RADIUS, _PAPER, _INK, _NOISE))
    )
    cover = np.empty((count, SIZE, SIZE))
    (_draw if library.available() else _draw_numpy)(ends, radius, cover)
    grain = random.bits_batch(random.key(_SEED, f"digits {split} grain"), 0, first, count, SIZE**2)
    # The difference of two 16-bit halves: a triangular distribution around nothing.
    grain_value = ((grain >> 16).astype(np.float64) - (grain & 0xFFFF)) / 65536.0 * 255.0
    value = cover * ink[:, None, None] + paper[:, None, None]
    value = value + grain_value.reshape(cover.shape) * noise[:, None, None]
    return np.clip(value, 0.0, 255.0).astype(np.uint8), label


def make_digits(folder: Path) -> list[str]:
    """Write digits_train_lmdb and digits_test_lmdb; returns a sentence on each."""
    return [
        make_database(folder / f"digits_{split}_lmdb", "digits", count, partial(_records, split))
        for split, count in SPLITS.items()
    ]


def _records(split: str, first: int, count: int) -> Iterator[bytes]:
    images, labels = render(split, first, count)
    for image, label in zip(images, labels, strict=True):
        yield encode_datum(image[None], int(label))
