"""Where a blob's pixels lie in another blob, for the Crop layers of fully-convolutional nets.

A coordinate map (axis, a, b) says that pixel x of a layer's bottom is a * x + b of its top, on all
axes after `axis`. `crop(score, data)` makes the Crop layer that aligns one top with another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import NetError
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

PASS_THROUGH_LAYERS = [
    "AbsVal", "BNLL", "BatchNorm", "Bias", "Clip", "Dropout", "ELU", "Eltwise", "Exp", "LRN", "Log",
    "MVN", "PReLU", "Power", "ReLU", "Scale", "Sigmoid", "Split", "Swish", "TanH", "Threshold",
]  # fmt: skip
_STRIDED = {"Convolution": "convolution", "Pooling": "pooling", "Im2col": "convolution"}

Map = tuple[Any, Any, Any]


class UndefinedMapException(NetError):
    """A layer that has no coordinate map: its pixels have no place in its bottom."""


class AxisMismatchException(NetError):
    """Maps over different axes, which cannot be composed."""


class _AlignmentError(NetError, AssertionError):
    """Tops that no crop can align; pycaffe asserts that they are."""


def conv_params(fn: Function) -> tuple[Any, Any, Any, Any]:
    """The first spatial axis less one, strides, extents of dilated kernels, and pads."""
    own = _STRIDED.get(fn.type_name, "convolution") + "_param"
    params = fn.params.get(own, fn.params)
    sides = {f"{what}_{side}" for what in ("pad", "kernel", "stride") for side in "hw"}
    if sides & set(params) or "kernel_size" not in params:
        raise UndefinedMapException(
            f"{fn.type_name}: give kernel_size, stride and pad, as lists where sides differ, "
            f"instead of {', '.join(sorted(sides & set(params))) or 'nothing'}"
        )
    size, dilation = (np.array(params.get(k, 1), ndmin=1) for k in ("kernel_size", "dilation"))
    stride, pad = (
        np.array(params.get("stride", 1), ndmin=1),
        np.array(params.get("pad", 0), ndmin=1),
    )
    return params.get("axis", 1), stride, (size - 1) * dilation + 1, pad


def crop_params(fn: Function) -> tuple[Any, Any]:
    """First axis and offsets of a Crop layer."""
    params = fn.params.get("crop_param", fn.params)
    return params.get("axis", 2), np.array(params.get("offset", 0), ndmin=1)


def coord_map(fn: Function) -> Map:
    """The coordinate map of one layer, from its bottom to its top."""
    if fn.type_name in _STRIDED:
        axis, stride, size, pad = conv_params(fn)
        return axis, 1 / stride, (pad - (size - 1) / 2) / stride
    if fn.type_name == "Deconvolution":
        axis, stride, size, pad = conv_params(fn)
        return axis, stride, (size - 1) / 2 - pad
    if fn.type_name in PASS_THROUGH_LAYERS:
        return None, 1, 0
    if fn.type_name == "Crop":
        axis, offset = crop_params(fn)
        return axis - 1, 1, -offset  # counted as convolutions do, by the axis before the pixels
    raise UndefinedMapException(f"{fn.type_name} layers do not map pixels to pixels")


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
    from_maps = {top_from: _identity()}
    frontier = [top_from]
    while frontier:
        frontier += _step_back(frontier.pop(), from_maps)
    to_maps = {top_to: _identity()}
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


def _identity() -> Map:
    return None, 1, 0


def _step_back(top: Top, maps: dict[Top, Map]) -> list[Top]:
    """Note the maps of a top's bottoms that have none yet; these bottoms."""
    # A Crop layer only takes sizes from its second bottom.
    bottoms = top.fn.inputs[:1] if top.fn.type_name == "Crop" else top.fn.inputs
    try:
        made = compose(maps[top], coord_map(top.fn)) if bottoms else None
    except UndefinedMapException:
        return []
    fresh = [bottom for bottom in bottoms if bottom not in maps]
    maps.update((bottom, made) for bottom in fresh if made is not None)
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
