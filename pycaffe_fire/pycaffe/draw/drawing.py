"""A chart with places for everything, drawn as SVG or, through Pillow, as pixels."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import inf
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from .boxes import COLOURS, Box, Chart
from .layout import Layout, Point, lay_out
from .wrap import LONGEST, Rows, rounded, wrap

TITLE, TEXT, LINE_STEP = 13.0, 11.0, 15.0
PADDING, MARGIN, ROUNDING = 9.0, 18.0, 5.0
ARROW = 6.0
INK, PALE, EDGE, BORDER, PAPER = "#1d2433", "#566074", "#7c879c", "#aab3c5", "#ffffff"
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
MAX_PIXELS = 80_000_000  # of a canvas that is scaled down in the end
DIRECTIONS = ("TB", "BT", "LR", "RL")


@dataclass
class Placed:
    """A box and where it goes, by its upper left corner."""

    box: Box
    x: float
    y: float
    width: float
    height: float


@dataclass
class Drawing:
    """Boxes, and curves of points: one to begin with, then three (of a Bézier curve) a piece."""

    boxes: list[Placed]
    curves: list[list[Point]]
    width: float
    height: float


def drawing(chart: Chart, rankdir: str = "LR", longest: float = LONGEST) -> Drawing:
    """Places for everything; arrows run as Graphviz's rankdir says (TB: from top to bottom).

    What is wider than `longest` continues in another row; what is high stays one column, since
    readers scroll.
    """
    upright = rankdir in ("TB", "BT")
    sizes = [_box_size(box) for box in chart.boxes]
    turned = [size if upright else size[::-1] for size in sizes]
    found = lay_out(turned, chart.arrows)
    rows = wrap(found, [across for across, _ in turned], chart.arrows, inf if upright else longest)
    across, along = rows.size

    def place(point: Point) -> Point:
        x, y = point
        if rankdir in ("BT", "RL"):
            y = along - y
        x, y = (x, y) if upright else (y, x)
        return x + MARGIN, y + MARGIN

    boxes = []
    for number, (box, (width, height)) in enumerate(zip(chart.boxes, sizes, strict=True)):
        x, y = place(rows.place(found.ranks[number], found.centres[number]))
        boxes.append(Placed(box, x - width / 2, y - height / 2, width, height))
    lanes: list[list[int]] = [[] for _ in rows.lengths]  # boxes whose arrows leave each row
    curves = []
    for (start, end), way in zip(chart.arrows, found.ways, strict=True):
        thickness = turned[start][1], turned[end][1]
        points = _curve(way, found, rows, start, thickness, lanes)
        curves.append([place(point) for point in points])
    width, height = (across, along) if upright else (along, across)
    return Drawing(boxes, curves, width + 2 * MARGIN, height + 2 * MARGIN)


def _curve(
    way: Sequence[Point], found: Layout, rows: Rows, start: int, thickness: tuple[float, float],
    lanes: list[list[int]],
) -> list[Point]:  # fmt: skip
    """From one box's edge to the other's: straight through ranks, bent between them."""
    (x, middle), (_, end_middle), first = way[0], way[-1], found.ranks[start]
    at = rows.place(first, (x, middle + thickness[0] / 2))
    points = [at]
    target = end_middle - thickness[1] / 2
    for rank, (x, _) in enumerate(way[1:], first + 1):
        begin, end = found.bands[rank] if rank < first + len(way) - 1 else (target, target)
        entry, row = rows.place(rank, (x, begin)), rows.row_of[rank - 1]
        if rows.row_of[rank] == row:
            bend = (entry[1] - at[1]) / 2
            points += [(at[0], at[1] + bend), (entry[0], entry[1] - bend), entry]
        else:
            if start not in lanes[row]:
                lanes[row].append(start)
            points += rounded(rows.turn(row, at, entry, lanes[row].index(start)))
        at = rows.place(rank, (x, end))
        if end > begin:
            points += [entry, at, at]
    return points


def _box_size(box: Box) -> tuple[float, float]:
    widths = [_text_width(box.title, TITLE), *(_text_width(line, TEXT) for line in box.lines)]
    return max(widths) + 2 * PADDING, TITLE + LINE_STEP * len(box.lines) + 2 * PADDING - 4


def _text_width(text: str, size: float) -> float:
    """About as wide as Helvetica draws it, rather a bit wider."""
    narrow, wide = sum(c in "iljtfr.,:;|!/ ()[]'-" for c in text), sum(c in "mwMW@" for c in text)
    return size * (0.36 * narrow + 0.92 * wide + 0.6 * (len(text) - narrow - wide))


def _texts(placed: Placed) -> Iterator[tuple[str, float, float, float, str]]:
    """(text, centre, middle, size, colour) of every line in a box."""
    x, y = placed.x + placed.width / 2, placed.y + PADDING + TITLE / 2 - 1
    yield placed.box.title, x, y, TITLE, INK
    for line in placed.box.lines:
        y += LINE_STEP
        yield line, x, y, TEXT, PALE


def _arrow_head(curve: Sequence[Point]) -> list[Point]:
    """A triangle at the end of a curve; curves arrive along an axis."""
    (x, y), (before_x, before_y) = curve[-1], curve[-2]
    length = max(abs(x - before_x), abs(y - before_y)) or 1.0
    dx, dy = (x - before_x) / length * ARROW, (y - before_y) / length * ARROW
    half = 0.45
    return [
        (x, y),
        (x - dx - half * dy, y - dy + half * dx),
        (x - dx + half * dy, y - dy - half * dx),
    ]


def to_svg(drawn: Drawing, title: str = "") -> str:
    """The drawing as an SVG document."""
    width, height = round(drawn.width), round(drawn.height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{FONT}" text-anchor="middle">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        f'<g fill="none" stroke="{EDGE}" stroke-width="1.3">',
    ]
    for curve in drawn.curves:
        pieces = [curve[i : i + 3] for i in range(1, len(curve), 3)]
        path = "".join("C" + " ".join(_pair(point) for point in piece) for piece in pieces)
        parts.append(f'<path d="M{_pair(curve[0])}{path}"/>')
    parts.append(f'</g><g fill="{EDGE}">')
    for curve in drawn.curves:
        corners = " ".join(_pair(point) for point in _arrow_head(curve))
        parts.append(f'<polygon points="{corners}"/>')
    parts.append(f'</g><g stroke="{BORDER}">')
    for p in drawn.boxes:
        parts.append(
            f'<rect x="{p.x:.1f}" y="{p.y:.1f}" width="{p.width:.1f}" height="{p.height:.1f}" '
            f'rx="{ROUNDING:g}" fill="{COLOURS[p.box.family]}"/>'
        )
    parts.append("</g>")
    for p in drawn.boxes:
        for text, x, y, size, colour in _texts(p):
            weight = ' font-weight="600"' if size == TITLE else ""
            parts.append(
                f'<text x="{x:.1f}" y="{y + size * 0.35:.1f}" font-size="{size:g}" '
                f'fill="{colour}"{weight}>{escape(text)}</text>'
            )
    return "\n".join([*parts, "</svg>\n"])


def _pair(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"


def to_pixels(drawn: Drawing, kind: str) -> bytes:
    """The drawing as a file of a kind that Pillow writes: PNG, JPEG, PDF, ..."""
    fine = 4 if 16 * drawn.width * drawn.height <= MAX_PIXELS else 2
    image = Image.new("RGB", (round(drawn.width * fine), round(drawn.height * fine)), PAPER)
    draw = ImageDraw.Draw(image)

    def scale(points: Sequence[Point]) -> list[Point]:
        return [(x * fine, y * fine) for x, y in points]

    for curve in drawn.curves:
        draw.line(scale(_flattened(curve)), fill=EDGE, width=round(1.3 * fine), joint="curve")
        draw.polygon(scale(_arrow_head(curve)), fill=EDGE)
    fonts: dict[float, Any] = {n: ImageFont.load_default(n * fine) for n in (TITLE, TEXT)}
    for p in drawn.boxes:
        corners = scale([(p.x, p.y), (p.x + p.width, p.y + p.height)])
        draw.rounded_rectangle(
            corners, ROUNDING * fine, fill=COLOURS[p.box.family], outline=BORDER, width=fine
        )
        for text, x, y, size, colour in _texts(p):
            draw.text((x * fine, y * fine), text, fill=colour, font=fonts[size], anchor="mm")
    # Drawn large and scaled down, which is what smooths the lines; two pixels for each unit stay.
    image = image.resize((image.width * 2 // fine, image.height * 2 // fine), Image.Resampling.BOX)
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def _flattened(curve: Sequence[Point], steps: int = 12) -> list[Point]:
    """A curve as points on it, close together."""
    points = [curve[0]]
    for i in range(1, len(curve), 3):
        a, (b, c, d) = points[-1], curve[i : i + 3]
        for k in range(1, steps + 1):
            t = k / steps
            u = 1 - t
            mix = (u**3, 3 * u * u * t, 3 * u * t * t, t**3)
            x, y = (sum(m * p[j] for m, p in zip(mix, (a, b, c, d), strict=True)) for j in (0, 1))
            points.append((x, y))
    return points
