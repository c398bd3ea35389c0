"""A panel of curves as inline SVG, for pages that must not need anything else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from .curves import AXES, Line, Panel

WIDTH, HEIGHT = 620, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 40
DASHES = {
    "solid": "",
    "dashed": ' stroke-dasharray="7 4"',
    "dotted": ' stroke-dasharray="2 3"',
}
MOST_POINTS = 1200  # more than there are pixels to show them

Scale = Callable[[float], float]


def chart(panel: Panel, by: str) -> str:
    """The panel with axes, grid and legend."""
    points = [p for line in panel.lines for p in (*line.points, *line.raw)]
    xs = [x for x, _ in points]
    ys = [y for _, y in points if y > 0 or not panel.logarithmic]
    if not xs or not ys:
        return ""
    x_ticks = ticks(min(xs), max(xs))
    y_ticks = _decades(min(ys), max(ys)) if panel.logarithmic else ticks(min(ys), max(ys))
    x = _scale(min(min(xs), x_ticks[0]), max(max(xs), x_ticks[-1]), LEFT, WIDTH - RIGHT)
    bounds = min(min(ys), y_ticks[0]), max(max(ys), y_ticks[-1])
    low, high = (math.log10(b) for b in bounds) if panel.logarithmic else bounds
    straight = _scale(low, high, HEIGHT - BOTTOM, TOP)
    y: Scale = (lambda v: straight(math.log10(v))) if panel.logarithmic else straight
    parts = [_axis_x(x, x_ticks, by), _axis_y(y, y_ticks)]
    parts += [_curve(line, x, y, panel.logarithmic) for line in panel.lines]
    legend = "".join(
        f'<span><i style="border-top:3px {line.style} {line.colour}"></i>'
        f"{escape(line.label)}</span>"
        for line in panel.lines
    )
    return (
        f'<figure><figcaption>{escape(panel.title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' role="img" aria-label="{escape(panel.title)}">{"".join(parts)}</svg>'
        f'<div class="legend">{legend}</div></figure>'
    )


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers that cover a range."""
    if high <= low:
        return [low]
    rough = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [step * i for i in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**i for i in range(first, max(last, first + 1) + 1)]


def _axis_x(x: Scale, values: Sequence[float], by: str) -> str:
    made = []
    for value in values:
        at = x(value)
        made.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    name = f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{AXES[by]}</text>'
    return "".join(made) + name


def _axis_y(y: Scale, values: Sequence[float]) -> str:
    made = []
    for value in values:
        at = y(value)
        made.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    return "".join(made)


def _curve(line: Line, x: Scale, y: Scale, positive: bool) -> str:
    def path(points: Sequence[tuple[float, float]]) -> str:
        kept = [p for p in _thinned(points) if p[1] > 0 or not positive]
        return " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in kept)

    made = ""
    if line.raw:
        made += f'<polyline class="raw" stroke="{line.colour}" points="{path(line.raw)}"/>'
    made += f'<polyline stroke="{line.colour}"{DASHES[line.style]} points="{path(line.points)}"/>'
    if line.is_test and len(line.points) <= 100:
        made += "".join(
            f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{line.colour}">'
            f"<title>{escape(line.label)} = {b:g} at {a:g}</title></circle>"
            for a, b in line.points
            if b > 0 or not positive
        )
    return made


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Every n-th point and the last."""
    step = -(-len(points) // MOST_POINTS)
    return points if step < 2 else [*points[::step], points[-1]]
