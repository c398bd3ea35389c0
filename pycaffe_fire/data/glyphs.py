"""The shapes of the ten digits as pen strokes, and the tables the renderer reads them from.

A stroke goes through its points, straight or as a Catmull-Rom curve. Coordinates span the unit
square, x to the right and y down.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]


class Stroke(NamedTuple):
    points: tuple[Point, ...]
    smooth: bool = True
    closed: bool = False


def _line(*points: Point) -> Stroke:
    return Stroke(points, smooth=False)


def _curve(*points: Point) -> Stroke:
    return Stroke(points)


def _loop(*points: Point) -> Stroke:
    return Stroke(points, closed=True)


_THREE_BELOW = _curve(
    (0.42, 0.46), (0.68, 0.53), (0.8, 0.72), (0.6, 0.93), (0.35, 0.95), (0.18, 0.82)
)
_NINE_ABOVE = _loop((0.52, 0.06), (0.75, 0.18), (0.75, 0.4), (0.5, 0.52), (0.27, 0.4), (0.27, 0.18))

# One list per digit, one entry per way of writing it.
GLYPHS: tuple[tuple[tuple[Stroke, ...], ...], ...] = (
    (
        (
            _loop(
                (0.5, 0.05), (0.76, 0.2), (0.82, 0.5), (0.76, 0.8),
                (0.5, 0.95), (0.24, 0.8), (0.18, 0.5), (0.24, 0.2),
            ),
        ),
    ),
    (
        (_line((0.5, 0.05), (0.5, 0.95)),),
        (_line((0.32, 0.26), (0.55, 0.05), (0.55, 0.95)),),
        (_line((0.32, 0.24), (0.52, 0.05), (0.52, 0.95)), _line((0.3, 0.95), (0.74, 0.95))),
    ),
    (
        (
            _curve(
                (0.2, 0.26), (0.35, 0.09), (0.58, 0.06), (0.76, 0.22),
                (0.68, 0.45), (0.45, 0.68), (0.18, 0.93),
            ),
            _line((0.18, 0.93), (0.82, 0.93)),
        ),
        (
            _curve(
                (0.24, 0.2), (0.5, 0.05), (0.74, 0.2), (0.66, 0.5), (0.4, 0.86), (0.22, 0.9),
                (0.24, 0.76), (0.45, 0.82), (0.66, 0.94), (0.85, 0.86),
            ),
        ),
    ),
    (
        (_curve((0.2, 0.15), (0.5, 0.05), (0.74, 0.22), (0.64, 0.4), (0.42, 0.46)), _THREE_BELOW),
        (_line((0.2, 0.07), (0.76, 0.07), (0.42, 0.46)), _THREE_BELOW),
    ),
    (
        (_line((0.64, 0.95), (0.64, 0.05), (0.14, 0.66), (0.86, 0.66)),),
        (_line((0.3, 0.06), (0.2, 0.55), (0.82, 0.55)), _line((0.72, 0.08), (0.66, 0.95))),
    ),
    (
        (
            _line((0.78, 0.07), (0.3, 0.07), (0.25, 0.45)),
            _curve((0.25, 0.45), (0.52, 0.38), (0.78, 0.54), (0.76, 0.8), (0.5, 0.95), (0.2, 0.86)),
        ),
    ),
    (
        (
            _curve(
                (0.7, 0.07), (0.4, 0.25), (0.23, 0.55), (0.27, 0.82), (0.5, 0.95),
                (0.75, 0.82), (0.72, 0.6), (0.5, 0.51), (0.26, 0.66),
            ),
        ),
    ),
    (
        (_line((0.18, 0.08), (0.82, 0.08), (0.42, 0.95)),),
        (_line((0.18, 0.08), (0.82, 0.08), (0.42, 0.95)), _line((0.36, 0.5), (0.78, 0.5))),
    ),
    (
        (
            _loop((0.5, 0.05), (0.73, 0.16), (0.7, 0.37), (0.5, 0.47), (0.3, 0.37), (0.27, 0.16)),
            _loop((0.5, 0.47), (0.74, 0.58), (0.78, 0.82), (0.5, 0.95), (0.22, 0.82), (0.26, 0.58)),
        ),
    ),
    (
        (_NINE_ABOVE, _line((0.77, 0.28), (0.7, 0.95))),
        (_NINE_ABOVE, _curve((0.77, 0.28), (0.76, 0.65), (0.58, 0.93), (0.28, 0.9))),
    ),
)  # fmt: skip

_PIECES = 4  # straight pieces per span of a curve


class Tables(NamedTuple):
    """All glyphs, padded to one size: piece ends are weighted sums of four points each."""

    first: NDArray[np.int64]  # (10 + 1) glyph numbers of digit d: first[d] ... first[d + 1] - 1
    points: NDArray[np.float64]  # (glyphs, points, 2)
    corner: NDArray[np.int64]  # (glyphs, pieces, 2 ends, 4)
    weight: NDArray[np.float64]  # (glyphs, pieces, 2 ends, 4)


def _span_weights(t: float) -> list[float]:
    """Catmull-Rom: the curve between p1 and p2 at t as weights of p0, p1, p2, p3."""
    return [
        0.5 * (-t + 2 * t * t - t * t * t),
        0.5 * (2 - 5 * t * t + 3 * t * t * t),
        0.5 * (t + 4 * t * t - 3 * t * t * t),
        0.5 * (t * t * t - t * t),
    ]


def _pieces(stroke: Stroke, offset: int) -> list[tuple[list[list[int]], list[list[float]]]]:
    """(indices, weights) of both ends of every straight piece of a stroke."""
    n = len(stroke.points)
    found = []
    for span in range(n if stroke.closed else n - 1):
        around = [span - 1, span, span + 1, span + 2]
        around = [i % n if stroke.closed else min(max(i, 0), n - 1) for i in around]
        index = [offset + i for i in around]
        if stroke.smooth:
            ends = [_span_weights(piece / _PIECES) for piece in range(_PIECES + 1)]
        else:
            ends = [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
        found += [([index, index], [a, b]) for a, b in zip(ends, ends[1:], strict=False)]
    return found


def make_tables() -> Tables:
    """Flatten GLYPHS for vectorised use; a short glyph repeats its last piece."""
    glyphs = [glyph for digit in GLYPHS for glyph in digit]
    first = np.cumsum([0] + [len(digit) for digit in GLYPHS])
    points = [[p for stroke in glyph for p in stroke.points] for glyph in glyphs]
    pieces = []
    for glyph in glyphs:
        offset, found = 0, []
        for stroke in glyph:
            found += _pieces(stroke, offset)
            offset += len(stroke.points)
        pieces.append(found)
    width, most = max(map(len, points)), max(map(len, pieces))
    padded = [found + found[-1:] * (most - len(found)) for found in pieces]
    return Tables(
        first,
        np.array([p + p[-1:] * (width - len(p)) for p in points]),
        np.array([[index for index, _ in found] for found in padded]),
        np.array([[weight for _, weight in found] for found in padded]),
    )
