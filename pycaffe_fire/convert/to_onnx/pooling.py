"""Pooling and SPP by explicit pads: no runtime agrees with another on ONNX's ceil_mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ... import schema
from ...layers.pooling import Pooling, pooled_size
from ..dims import Dim, merged, number
from .graph import Graph, Tensor
from .registry import Part, converts


@dataclass(frozen=True)
class Pool:
    """A window over all axes after the channels, with how many places it takes."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    sizes: tuple[int, ...]  # of the bottom
    outputs: tuple[int, ...]

    def overhang(self, pads: Sequence[int]) -> list[int]:
        """By how much the last window reaches beyond the bottom and `pads` more pixels."""
        ends = zip(self.outputs, self.stride, self.kernel, self.sizes, pads, strict=True)
        return [max(0, (out - 1) * s + k - size - p) for out, s, k, size, p in ends]

    @property
    def beyond(self) -> bool:
        """Does a window lie outside the bottom altogether?"""
        starts = zip(self.outputs, self.stride, self.pad, self.sizes, strict=True)
        return any((out - 1) * s - p >= size for out, s, p, size in starts)

    def node(self, graph: Graph, kind: str, x: str, pads: list[int], outputs: int) -> list[str]:
        return graph.ops(
            kind, [x], outputs, kernel_shape=list(self.kernel), strides=list(self.stride), pads=pads
        )


def maximum(graph: Graph, x: Tensor, pool: Pool, mask: bool = False) -> list[str]:
    """The largest values, and with `mask` where in their planes they were."""
    pads = [*pool.pad, *pool.overhang(pool.pad)]
    if not mask:
        return pool.node(graph, "MaxPool", x.name, pads, 1)
    y, places = pool.node(graph, "MaxPool", x.name, pads, 2)
    plane = graph.constant(prod(pool.sizes), np.int64)
    return [y, graph.cast(graph.op("Mod", places, plane), np.float32)]


def average(graph: Graph, x: str, pool: Pool) -> str:
    """Means over windows: Caffe's own zeros count, what reaches beyond them does not."""
    if any(pool.pad):
        x = graph.op("Pad", x, graph.integers([0, 0, *pool.pad, 0, 0, *pool.pad]))
    overhang = pool.overhang([2 * pad for pad in pool.pad])
    return pool.node(graph, "AveragePool", x, [*(0 for _ in overhang), *overhang], 1)[0]


def inner_average(graph: Graph, x: str, pool: Pool) -> str:
    """Means over what of the windows lies within the bottom."""
    pads = [*pool.pad, *pool.overhang(pool.pad)]
    return pool.node(graph, "AveragePool", x, pads, 1)[0]


def stochastic(graph: Graph, x: str, pool: Pool) -> str:
    """The expected value of a draw: sum of x^2 / sum of x, 0 where nothing is positive."""
    total = average(graph, x, pool)
    squares = average(graph, graph.op("Mul", x, x), pool)
    positive = graph.op("Greater", total, graph.constant(0))
    ratio = graph.op("Div", squares, graph.op("Where", positive, total, graph.constant(1)))
    return graph.op("Where", positive, ratio, graph.constant(0))


def _pooled(graph: Graph, part: Part, method: str, pool: Pool, mask: bool) -> list[str]:
    if pool.beyond:
        part.fail(
            "a window lies beyond the bottom, because the stride exceeds the kernel; ONNX has no "
            "such windows; set round_mode: FLOOR"
        )
    if method == "MAX":
        return maximum(graph, part.x, pool, mask)
    return [(average if method == "AVE" else stochastic)(graph, part.x.name, pool)]


@converts("Pooling")
def pooling(graph: Graph, part: Part) -> list[str]:
    param, x, mask = part.param.pooling_param, part.x, len(part.tops) > 1
    method = schema.PoolingParameter.PoolMethod.Name(param.pool)
    sizes = tuple(number(size) for size in x.shape[2:])
    if param.global_pooling and method != "STOCHASTIC" and not mask:
        return [graph.op("GlobalMaxPool" if method == "MAX" else "GlobalAveragePool", x.name)]
    assert isinstance(part.layer, Pooling)
    window = part.layer.window(part.bottom_blobs[0].shape)
    outputs = tuple(number(size) for size in part.tops[0][2:])
    pool = Pool(window.kernel, window.stride, window.pad, sizes, outputs)
    if method == "AVE" and not param.avg_include_pad and not pool.beyond:
        return [inner_average(graph, x.name, pool)]
    return _pooled(graph, part, method, pool, mask)


@converts("SPP")
def spp(graph: Graph, part: Part) -> str:
    param, x = part.param.spp_param, part.x
    method = schema.SPPParameter.PoolMethod.Name(param.pool)
    sizes = (number(x.shape[2]), number(x.shape[3]))
    levels = []
    for level in range(param.pyramid_height):
        bins = 2**level
        kernel = (-(-sizes[0] // bins), -(-sizes[1] // bins))
        pad = ((kernel[0] * bins - sizes[0] + 1) // 2, (kernel[1] * bins - sizes[1] + 1) // 2)
        outputs = (
            pooled_size(sizes[0], kernel[0], kernel[0], pad[0], any(pad)),
            pooled_size(sizes[1], kernel[1], kernel[1], pad[1], any(pad)),
        )
        pool = Pool(kernel, kernel, pad, sizes, outputs)
        y = _pooled(graph, part, method, pool, mask=False)[0]
        if param.pyramid_height == 1:
            return y
        shape = (*x.shape[:2], Dim(outputs[0]), Dim(outputs[1]))
        levels.append(graph.reshape(y, shape, (shape[0], merged(shape[1:]))))
    return graph.op("Concat", *levels, axis=1)
