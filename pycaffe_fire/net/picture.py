"""A net in a notebook: drawn layer by layer, and as a table of shapes."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..blob import Blob

if TYPE_CHECKING:
    from .wiring import Wiring

WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 190, 40, 24, 34, 12  # pixels
LONGEST = 27  # characters that fit into a box
COLOURS = {"data": "#d7e8d0", "weights": "#cfdff2", "loss": "#f4d4d0", "other": "#ececec"}


def svg(net: Wiring) -> str:
    """Boxes for layers, below those they read from, and lines for blobs."""
    below = _producers(net)
    places = _places(below)
    columns = max((x for x, _ in places), default=0) + 1
    rows = max((y for _, y in places), default=0) + 1
    width = 2 * MARGIN + columns * (WIDTH + ACROSS) - ACROSS
    height = 2 * MARGIN + rows * (HEIGHT + DOWN) - DOWN
    lines = [
        _line(_corner(places[producer]), _corner(places[i]))
        for i, producers in enumerate(below)
        for producer in producers
    ]
    boxes = [_box(net, i, _corner(place)) for i, place in enumerate(places)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="11" text-anchor="middle">'
        f"{''.join(lines)}{''.join(boxes)}</svg>"
    )


def html(net: Wiring) -> str:
    """The drawing, and behind a click every layer with its shapes."""
    rows = "".join(_row(net, i) for i in range(len(net.layers)))
    head = "".join(f"<th>{title}</th>" for title in ("layer", "type", "from", "to", "weights"))
    return (
        f"<div><b>{escape(net.name or 'net')}</b>: {len(net.layers)} layers, "
        f"{sum(p.blob.count for p in net.parameters.items):,} weights"
        f'<div style="max-height: 40em; overflow: auto">{svg(net)}</div>'
        f"<details><summary>shapes</summary><table><tr>{head}</tr>{rows}</table></details></div>"
    )


def _row(net: Wiring, index: int) -> str:
    layer = net.layers[index]
    weights = ", ".join(_dims(blob) for blob in layer.blobs)
    cells = layer.name, layer.type, _named(net.bottoms[index]), _named(net.tops[index]), weights
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _named(blobs: list[Blob]) -> str:
    return ", ".join(f"{blob.name} {_dims(blob)}" for blob in blobs)


def _dims(blob: Blob) -> str:
    return "×".join(map(str, blob.shape)) or "scalar"


def _producers(net: Wiring) -> list[list[int]]:
    """For every layer those that made its bottoms; of in-place layers the last."""
    made: dict[int, int] = {}
    found = []
    for i in range(len(net.layers)):
        found.append(sorted({made[id(b)] for b in net.bottoms[i] if id(b) in made}))
        made.update((id(b), i) for b in net.tops[i])
    return found


def _places(below: list[list[int]]) -> list[tuple[int, int]]:
    """Column and row of every layer: a row below all it reads from, beside its row's others."""
    places: list[tuple[int, int]] = []
    taken: dict[int, set[int]] = {}
    for producers in below:
        row = max((places[p][1] + 1 for p in producers), default=0)
        free, column = taken.setdefault(row, set()), places[producers[0]][0] if producers else 0
        while column in free:
            column += 1
        free.add(column)
        places.append((column, row))
    return places


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return MARGIN + place[0] * (WIDTH + ACROSS), MARGIN + place[1] * (HEIGHT + DOWN)


def _line(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1, x2, y2 = start[0] + WIDTH // 2, start[1] + HEIGHT, end[0] + WIDTH // 2, end[1]
    bend = (y2 - y1) // 2
    curve = f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}"
    return f'<path d="{curve}" fill="none" stroke="#888"/>'


def _box(net: Wiring, index: int, corner: tuple[int, int]) -> str:
    (x, y), layer = corner, net.layers[index]
    kind = "data" if not net.bottoms[index] else "weights" if layer.blobs else "other"
    if any(layer.loss_weights):
        kind = "loss"
    shapes = ", ".join(_dims(blob) for blob in net.tops[index])
    texts = (layer.name, 15), (f"{layer.type} {shapes}", 31)
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="{COLOURS[kind]}" '
        f'stroke="#999"><title>{escape(f"{layer.name} ({layer.type}): {_named(net.tops[index])}")}'
        f"</title></rect>"
        + "".join(
            f'<text x="{x + WIDTH // 2}" y="{y + down}">{escape(_short(text))}</text>'
            for text, down in texts
        )
    )


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
