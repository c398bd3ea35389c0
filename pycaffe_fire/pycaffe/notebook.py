"""A net in a notebook: its drawing, and a table of its layers' shapes."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..backend.blob import Blob
from ..net.graph import filter_net

if TYPE_CHECKING:
    from .net import Net


def svg(net: Net) -> str:
    """The net as it was written, without the splits."""
    from .draw import svg as drawing  # it is above us, and few nets are looked at

    return drawing(
        filter_net(net.written), shapes={name: blob.shape for name, blob in net.blobs.items()}
    )


def html(net: Net) -> str:
    """The whole drawing, as wide as there is room, and, folded away, every layer with shapes."""
    rows = "".join(_row(net, i) for i in range(len(net.layers)))
    head = "".join(f"<th>{title}</th>" for title in ("layer", "type", "from", "to", "weights"))
    fitting = svg(net).replace("<svg ", '<svg style="max-width: 100%; height: auto" ', 1)
    return (
        f"<div><b>{escape(net.name or 'net')}</b>: {len(net.layers)} layers, "
        f"{sum(p.blob.count for p in net.parameters.items):,} weights"
        f"<div>{fitting}</div>"
        f"<details><summary>shapes</summary><table><tr>{head}</tr>{rows}</table></details></div>"
    )


def _row(net: Net, index: int) -> str:
    layer = net.layers[index]
    weights = ", ".join(blob.dims() for blob in layer.blobs)
    cells = layer.name, layer.type, _named(net.bottoms[index]), _named(net.tops[index]), weights
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _named(blobs: list[Blob]) -> str:
    return ", ".join(f"{blob.name} {blob.dims()}" for blob in blobs)
