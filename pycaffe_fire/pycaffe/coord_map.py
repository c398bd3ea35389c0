"""Where a blob's pixels lie in another blob, for the Crop layers of fully-convolutional nets.

A coordinate map (axis, a, b) says that pixel x of a layer's bottom is a * x + b of its top, on all
axes after `axis`. `crop(score, data)` makes the Crop layer that aligns one top with another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import NetError
from ..layers import LAYERS, layer_class
from ..layers.coordinates import SAME, UndefinedMapException, sliding
from .net_spec import Function, Top
from .net_spec import layers as L

__all__ = [
    "PASS_THROUGH_LAYERS",
    "AxisMismatchException",
    "UndefinedMapException",
    "compose",
    "conv_params",
    "coord_map",
    "coord_map_from_to",
    "crop",
    "crop_params",
    "inverse",
]

# Types that leave every pixel in its place. Scripts may add others.
PASS_THROUGH_LAYERS = sorted(kind for kind, cls in LAYERS.registered().items() if cls.pixelwise)

Map = tuple[Any, Any, Any]


class AxisMismatchException(NetError):
    """Maps over different axes, which cannot be composed."""


class _AlignmentError(NetError, AssertionError):
    """Tops that no crop can align; pycaffe asserts that they are."""


def conv_params(fn: Function) -> tuple[Any, Any, Any, Any]:
    """The first spatial axis less one, strides, extents of dilated kernels, and pads."""
    layer = fn.message()
    return sliding(fn.type_name, layer_class(fn.type_name).own_param(layer))


def crop_params(fn: Function) -> tuple[Any, Any]:
    """First axis and offsets of a Crop layer."""
    param = fn.message().crop_param
    return param.axis, np.array(list(param.offset) or [0])


def coord_map(fn: Function, bottom: int = 0) -> Map:
    """The coordinate map of one layer, from a bottom to its tops."""
    kind = layer_class(fn.type_name)
    if fn.type_name in PASS_THROUGH_LAYERS and not kind.pixelwise:
        return SAME
    return kind.coordinates(fn.message(), bottom)


def compose(base_map: Map, next_map: Map) -> Map:
    """The map that applies `next_map` first and `base_map` to its result."""
    (base_axis, base_a, base_b), (next_axis, next_a, next_b) = base_map, next_map
    if base_axis is not None and next_axis is not None and base_axis != next_axis:
        raise AxisMismatchException(
            f"maps begin at different axes, {base_axis + 1} and {next_axis + 1}"
        )
    axis = next_axis if base_axis is None else base_axis
    return axis, base_a * next_a, base_a * next_b + base_b


def inverse(coord_map: Map) -> Map:
    """The same relation from the other end."""
    axis, a, b = coord_map
    return axis, 1 / a, -b / a


def coord_map_from_to(top_from: Top, top_to: Top) -> Map:
    """The map from pixels of one top to those of another, through an ancestor of both."""
    from_maps: dict[Top, Map] = {top_from: SAME}
    frontier = [top_from]
    while frontier:
        frontier += _step_back(frontier.pop(), from_maps)
    to_maps: dict[Top, Map] = {top_to: SAME}
    frontier = [top_to]
    while frontier:
        top = frontier.pop()
        if top in from_maps:
            return compose(to_maps[top], inverse(from_maps[top]))
        frontier += _step_back(top, to_maps)
    raise _AlignmentError(
        "no map between these tops: no chain of convolutions, pooling and the like leads from "
        "both to one blob"
    )


def _step_back(top: Top, maps: dict[Top, Map]) -> list[Top]:
    """Note the maps of a top's bottoms that have none yet; these bottoms."""
    fresh = []
    for number, bottom in enumerate(top.fn.inputs):
        if bottom not in maps:
            try:
                maps[bottom] = compose(maps[top], coord_map(top.fn, number))
            except UndefinedMapException:
                continue
            fresh.append(bottom)
    return fresh


def crop(top_from: Top, top_to: Top) -> Any:
    """A Crop layer that cuts `top_from` down to the pixels that `top_to` shows."""
    axis, a, b = coord_map_from_to(top_from, top_to)
    a, b = np.atleast_1d(a), np.atleast_1d(b)
    if (a != 1).any():
        raise _AlignmentError(f"scale mismatch on crop: factors {a.tolist()}, 1 is needed")
    if (b > 0).any():
        raise _AlignmentError(f"cannot crop negative offset: {(-b).tolist()}; pad the first layer")
    if (np.round(b) != b).any():
        raise _AlignmentError(f"cannot crop noninteger offset: {(-b).tolist()}")
    # Tops that lie pixel on pixel share all axes; 2 is where pixels usually begin.
    first = 2 if axis is None else axis + 1
    offset = [int(n) for n in -b]
    return L.Crop(top_from, top_to, crop_param={"axis": first, "offset": offset})
