"""Convolution, Deconvolution and Im2col in any number of axes, and InnerProduct."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...layers.convolution import SlidingWindow
from ..dims import Dim, Shape, merged, number
from .graph import Graph, Tensor
from .registry import Part, converts


def _attributes(part: Part) -> dict[str, Any]:
    layer = part.layer
    assert isinstance(layer, SlidingWindow)
    window = layer.window
    return {
        "kernel_shape": list(window.kernel),
        "strides": list(window.stride),
        "pads": [*window.pad, *window.pad],
        "dilations": list(window.dilation),
    }


def _by_channel(graph: Graph, x: Tensor, axis: int) -> tuple[str, Shape]:
    """x as samples, channels and at least one spatial axis."""
    shape = (merged(x.shape[:axis]), *x.shape[axis:])
    if axis == len(x.shape) - 1:
        shape = (*shape, Dim(1))
    return graph.reshape(x.name, x.shape, shape), shape


def _convolved(graph: Graph, part: Part, kind: str) -> list[str]:
    param = part.param.convolution_param
    axis = part.layer.axis(part.bottom_blobs[0], param.axis)
    flat = axis == len(part.x.shape) - 1  # no spatial axis
    shape = (*part.array(0).shape, 1) if flat else ()
    weights = [part.weight(graph, 0, *shape)]
    if param.bias_term:
        weights.append(part.weight(graph, 1))
    found = []
    for x, top in zip(part.bottoms, part.tops, strict=True):
        name, _ = _by_channel(graph, x, axis)
        y = graph.op(kind, name, *weights, group=param.group, **_attributes(part))
        inner = (merged(top[:axis]), *top[axis:], *([Dim(1)] if flat else []))
        found.append(graph.reshape(y, inner, top))
    return found


@converts("Convolution", "DepthwiseConvolution", "ConvolutionDepthwise")
def convolution(graph: Graph, part: Part) -> list[str]:
    return _convolved(graph, part, "Conv")


@converts("Deconvolution")
def deconvolution(graph: Graph, part: Part) -> list[str]:
    return _convolved(graph, part, "ConvTranspose")


@converts("Im2col")
def im2col(graph: Graph, part: Part) -> str:
    """A convolution of each channel with one kernel for each cell that picks that cell."""
    axis = part.layer.axis(part.bottom_blobs[0], part.param.convolution_param.axis)
    attributes, channels = _attributes(part), number(part.x.shape[axis])
    cells = prod(attributes["kernel_shape"])
    picks = np.eye(cells, dtype=np.float32).reshape(cells, 1, *attributes["kernel_shape"])
    weights = graph.constant(np.tile(picks, (channels, 1, *(1 for _ in picks.shape[2:]))))
    name, _ = _by_channel(graph, part.x, axis)
    y = graph.op("Conv", name, weights, group=channels, **attributes)
    top = part.tops[0]
    return graph.reshape(y, (merged(top[:axis]), *top[axis:]), top)


@converts("InnerProduct")
def inner_product(graph: Graph, part: Part) -> str:
    param, x = part.param.inner_product_param, part.x
    axis = part.layer.axis(part.bottom_blobs[0], param.axis)
    rows = (merged(x.shape[:axis]), merged(x.shape[axis:]))
    name = x.name
    if axis == 1 and len(x.shape) > 2:
        name = graph.op("Flatten", name, axis=1)
    elif axis != 1:
        name = graph.reshape(name, x.shape, rows)
    weights = [part.weight(graph, i) for i in range(len(part.blobs))]
    y = graph.op("Gemm", name, *weights, transB=int(not param.transpose))
    return graph.reshape(y, (rows[0], Dim(param.num_output)), part.tops[0])
