"""Interp, Upsample and Unpooling."""

from __future__ import annotations

import numpy as np

from ..dims import Dim, merged, number
from .graph import Graph
from .registry import Part, converts


@converts("Interp")
def interp(graph: Graph, part: Part) -> str:
    """Bilinear between corner pixels; negative pads crop first."""
    param, x, top = part.param.interp_param, part.x, part.tops[0]
    name = x.name
    if param.pad_beg or param.pad_end:
        for axis in (2, 3):
            end = number(x.shape[axis]) + param.pad_end
            name = graph.slice(name, axis, -param.pad_beg, end)
    return graph.op(
        "Resize", name, "", "", graph.sizes(name, top),
        mode="linear", coordinate_transformation_mode="align_corners",
    )  # fmt: skip


@converts("Upsample", "Unpooling")
def upsample(graph: Graph, part: Part) -> str:
    x, top = part.x, part.tops[0]
    if len(part.bottoms) == 1:
        scales = [1.0, 1.0, *(number(top[i]) / number(x.shape[i]) for i in (2, 3))]
        return graph.op(
            "Resize", x.name, "", graph.constant(scales), mode="nearest",
            coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        )  # fmt: skip
    mask = part.bottoms[1]
    places, _ = graph.flat(mask, 2)
    values, _ = graph.flat(x, 2)
    planes = (*top[:2], merged(top[2:]))
    empty = graph.zeros(x.name, (*top[:2], Dim(int(planes[2]))))
    y = graph.op("ScatterElements", empty, graph.cast(places, np.int64), values, axis=2)
    return graph.reshape(y, planes, top)
