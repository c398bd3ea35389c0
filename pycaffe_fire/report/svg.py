"""A panel of curves as inline SVG, for pages that must not need anything else.

Without a script it is a plot; zoom.js, which pages carry along, adds zooming and reading values.
Curves lie in an inner <svg> whose viewBox is what is seen of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from html import escape

from .curves import AXES, Line, Panel

WIDTH, HEIGHT = 620, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 24, 12, 40
DASHES = {
    "solid": "",
    "dashed": ' stroke-dasharray="7 4"',
    "dotted": ' stroke-dasharray="2 3"',
}
MOST_POINTS = 1200  # more than there are pixels to show them

Scale = Callable[[float], float]
Points = Sequence[tuple[float, float]]


def chart(panel: Panel, by: str) -> str:
    """The panel with axes, grid and legend, and its numbers for the script."""
    points = [p for line in panel.lines for p in (*line.points, *line.raw)]
    xs = [x for x, _ in points]
    ys = [y for _, y in points if y > 0 or not panel.logarithmic]
    if not xs or not ys:
        return ""
    if panel.from_zero:
        ys.append(0.0)
    x_ticks = ticks(min(xs), max(xs))
    y_ticks = _decades(min(ys), max(ys)) if panel.logarithmic else ticks(min(ys), max(ys))
    wide = min(min(xs), x_ticks[0]), max(max(xs), x_ticks[-1])
    bounds = min(min(ys), y_ticks[0]), max(max(ys), y_ticks[-1])
    low, high = (math.log10(b) for b in bounds) if panel.logarithmic else bounds
    x = _scale(*wide, LEFT, WIDTH - RIGHT)
    straight = _scale(low, high, HEIGHT - BOTTOM, TOP)
    y: Scale = (lambda v: straight(math.log10(v))) if panel.logarithmic else straight
    axes = _axis_x(x, x_ticks) + _axis_y(y, y_ticks)
    curves = "".join(_curve(line, x, y, panel.logarithmic) for line in panel.lines)
    legend = "".join(
        f'<span><i style="border-top:3px {line.style} {line.colour}"></i>'
        f"{escape(line.label)}</span>"
        for line in panel.lines
    )
    frame = LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    inner = (
        '<svg class="curves" x="{0}" y="{1}" width="{2}" height="{3}" viewBox="{0} {1} {2} {3}" '
        'preserveAspectRatio="none">'.format(*frame)
    )
    name = (
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{AXES[by]}</text>"
    )
    return (
        f"<figure><figcaption>{escape(panel.title)}</figcaption>"
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(panel.title)}"><g class="axes">{axes}</g>{name}{inner}{curves}</svg>'
        f'</svg><div class="legend">{legend}</div>'
        f"{_numbers(panel, by, (*wide, low, high), frame)}</figure>"
    )


def _numbers(panel: Panel, by: str, domain: Sequence[float], frame: Sequence[float]) -> str:
    """What zoom.js needs: the curves' own numbers and where they are drawn."""
    lines = [
        {"label": line.label, "colour": line.colour, "points": _shown(line, panel.logarithmic)}
        for line in panel.lines
    ]
    record = {
        "domain": domain, "frame": frame, "log": panel.logarithmic, "by": AXES[by], "lines": lines,
    }  # fmt: skip
    text = json.dumps(record, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json">{text}</script>'


def _shown(line: Line, positive: bool) -> list[tuple[float, float]]:
    """What can be drawn, each number with six digits."""
    kept = (p for p in _thinned(line.points) if p[1] > 0 or not positive)
    return [(float(f"{a:.6g}"), float(f"{b:.6g}")) for a, b in kept]


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


def _axis_x(x: Scale, values: Sequence[float]) -> str:
    made = []
    for value in values:
        at = x(value)
        made.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>'
        )
    return "".join(made)


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
    def path(points: Points, steps: bool = False) -> str:
        kept = [(x(a), y(b)) for a, b in _thinned(points) if b > 0 or not positive]
        if steps:  # a corner before every value: the old one holds until then
            corners = [(b[0], a[1]) for a, b in zip(kept, kept[1:], strict=False)]
            kept = kept[:1] + [p for pair in zip(corners, kept[1:], strict=True) for p in pair]
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in kept)

    made = ""
    if line.raw:
        made += f'<polyline class="raw" stroke="{line.colour}" points="{path(line.raw)}"/>'
    made += (
        f'<polyline stroke="{line.colour}"{DASHES[line.style]} '
        f'points="{path(line.points, line.steps)}"/>'
    )
    if line.is_test and len(line.points) <= 100:
        dots = "".join(f"M{x(a):.1f},{y(b):.1f}h0" for a, b in line.points if b > 0 or not positive)
        made += f'<path class="dots" stroke="{line.colour}" d="{dots}"/>'
    return made


def _thinned(points: Points) -> Points:
    """Every n-th point and the last."""
    step = -(-len(points) // MOST_POINTS)
    return points if step < 2 else [*points[::step], points[-1]]
