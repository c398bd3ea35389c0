"""BatchNorm, BN, GroupNorm, LayerNorm, LRN, MVN and Normalize."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ... import schema
from ...layers.bn import SEGNET_EPS, SEGNET_FIELDS
from ..averages import averages
from ..dims import Dim, Shape, merged, number
from .graph import Array, Graph
from .pooling import Pool, average
from .registry import Part, converts


def _normalised(
    graph: Graph, part: Part, scale: Array, shift: Array, mean: Array, variance: Array, eps: float
) -> str:
    """scale * (x - mean) / sqrt(variance + eps) + shift by ONNX's own op."""
    name = part.layer.name
    values = [
        graph.weight(f"{name}.{what}", np.ascontiguousarray(array, np.float32).reshape(-1))
        for what, array in (
            ("scale", scale), ("shift", shift), ("running_mean", mean), ("running_var", variance),
        )
    ]  # fmt: skip
    shape = part.x.shape
    inner = (*shape, Dim(1)) if len(shape) == 1 else shape
    x = graph.reshape(part.x.name, shape, inner)
    return graph.reshape(graph.op("BatchNormalization", x, *values, epsilon=eps), inner, shape)


def _by_batch(graph: Graph, x: str, axes: Sequence[int], eps: float) -> str:
    """(x - mean) / sqrt(variance + eps) with the batch's own statistics."""
    centred = graph.op("Sub", x, graph.reduce("ReduceMean", x, axes))
    variance = graph.reduce("ReduceMean", graph.op("Mul", centred, centred), axes)
    return graph.op("Div", centred, graph.op("Sqrt", graph.scaled(variance, 1, eps)))


def _channel_axes(shape: Shape) -> list[int]:
    return [axis for axis in range(len(shape)) if axis != 1]


@converts("BatchNorm")
def batch_norm(graph: Graph, part: Part) -> str:
    param, shape = part.param.batch_norm_param, part.x.shape
    arrays = [part.array(i) for i in range(len(part.layer.blobs))]
    mean, variance = averages(arrays[:3])
    scale = arrays[3] if len(arrays) > 3 else np.ones_like(mean)
    shift = arrays[4] if len(arrays) > 4 else np.zeros_like(mean)
    if param.HasField("use_global_stats") and not param.use_global_stats:
        if param.stats_batch_size:
            part.fail("statistics of parts of a batch (stats_batch_size) cannot be converted")
        y = _by_batch(graph, part.x.name, _channel_axes(shape), param.eps)
        return _scaled_channels(graph, part, y) if len(arrays) > 3 else y
    return _normalised(graph, part, scale, shift, mean, variance, param.eps)


def _scaled_channels(graph: Graph, part: Part, y: str) -> str:
    """y times the layer's own scale, plus its bias if it has one."""
    ones = [1] * (len(part.x.shape) - 2)
    y = graph.op("Mul", y, part.weight(graph, 3, part.array(3).size, *ones))
    if len(part.layer.blobs) > 4:
        y = graph.op("Add", y, part.weight(graph, 4, part.array(4).size, *ones))
    return y


@converts("BN")
def bn(graph: Graph, part: Part) -> str:
    """PSPNet's form has statistics; SegNet's takes the batch's, or none in INFERENCE mode."""
    param, shape = part.param.bn_param, part.x.shape
    if not any(param.HasField(field) for field in SEGNET_FIELDS):
        arrays = [part.array(i) for i in range(4)]
        return _normalised(graph, part, arrays[0], arrays[1], arrays[2], arrays[3], param.eps)
    x = part.x.name
    if param.bn_mode == schema.BNParameter.LEARN:
        eps = param.eps if param.HasField("eps") else SEGNET_EPS
        x = _by_batch(graph, x, _channel_axes(shape), eps)
    ones = [1] * (len(shape) - 2)
    scale, shift = (part.weight(graph, i, part.array(i).size, *ones) for i in range(2))
    return graph.op("Add", graph.op("Mul", x, scale), shift)


@converts("GroupNorm")
def group_norm(graph: Graph, part: Part) -> str:
    param, shape = part.param.group_norm_param, part.x.shape
    inner = number(merged(shape[1:])) // param.group_num
    groups = (shape[0], Dim(param.group_num), Dim(inner))
    x = graph.reshape(part.x.name, shape, groups)
    return graph.reshape(_by_batch(graph, x, [2], param.eps), groups, shape)


@converts("LayerNorm")
def layer_norm(graph: Graph, part: Part) -> str:
    param, axes = part.param.layer_norm_param, len(part.x.shape)
    axis = param.axis % axes
    return _by_batch(graph, part.x.name, list(range(axis, axes)), param.eps)


@converts("LRN")
def lrn(graph: Graph, part: Part) -> str:
    param, x = part.param.lrn_param, part.x
    size = int(param.local_size)
    if param.norm_region == schema.LRNParameter.ACROSS_CHANNELS:
        return graph.op("LRN", x.name, size=size, alpha=param.alpha, beta=param.beta, bias=param.k)
    sizes, half = (number(x.shape[2]), number(x.shape[3])), (size - 1) // 2
    pool = Pool((size, size), (1, 1), (half, half), sizes, sizes)
    squares = average(graph, graph.op("Mul", x.name, x.name), pool)
    inner = graph.scaled(squares, param.alpha, 1.0)
    return graph.op("Mul", x.name, graph.op("Pow", inner, graph.constant(-param.beta)))


@converts("MVN")
def mvn(graph: Graph, part: Part) -> str:
    """eps is added to the deviation, not to the variance."""
    param, shape, top = part.param.mvn_param, part.x.shape, part.tops[0]
    start = 1 if param.across_channels else 2
    padded = (*shape, *(Dim(1) for _ in range(4 - len(shape))))
    rows = (*padded[:start], merged(padded[start:]))
    if len(shape) == 4:
        rows = padded
    axes = list(range(start, len(rows)))
    x = graph.reshape(part.x.name, shape, rows)
    y = graph.op("Sub", x, graph.reduce("ReduceMean", x, axes))
    if param.normalize_variance:
        variance = graph.reduce("ReduceMean", graph.op("Mul", y, y), axes)
        y = graph.op("Div", y, graph.scaled(graph.op("Sqrt", variance), 1, param.eps))
    return graph.reshape(y, rows, top)


@converts("Normalize")
def normalize(graph: Graph, part: Part) -> str:
    param, x = part.param.norm_param, part.x
    axes = list(range(1, len(x.shape))) if param.across_spatial else [1]
    squares = graph.reduce("ReduceSum", graph.op("Mul", x.name, x.name), axes)
    y = graph.op("Div", x.name, graph.op("Sqrt", graph.scaled(squares, 1, param.eps)))
    ones = [1] * (len(x.shape) - 2)
    return graph.op("Mul", y, part.weight(graph, 0, part.array(0).size, *ones))
