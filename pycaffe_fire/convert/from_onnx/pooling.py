"""Pooling: Caffe's sizes round up and its means count zeros, so both are made to agree."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...layers.pooling import pooled_size
from .convolutions import _pads
from .source import Node
from .target import CannotError, Target, reads

MAX, AVE = 0, 1  # PoolingParameter.PoolMethod
FLOOR = 1  # PoolingParameter.RoundMode


@reads("GlobalAveragePool", "GlobalMaxPool")
def global_pool(target: Target, node: Node) -> None:
    param = target.one("Pooling", node).pooling_param
    param.pool, param.global_pooling = AVE if node.op == "GlobalAveragePool" else MAX, True


class _Window:
    """A pooling node's geometry; `outer` are zeros put around the image before it."""

    def __init__(self, target: Target, node: Node, outer: list[int]) -> None:
        padded = target.shape(node.inputs[0])[2:]
        self.kernel = list(node.get("kernel_shape", []))
        self.stride = list(node.get("strides", [1] * len(self.kernel)))
        if len(self.kernel) != 2 or list(node.get("dilations", [1, 1])) != [1, 1]:
            raise CannotError("only pooling over two axes without dilation is converted")
        self.pads = _pads(node, padded, tuple(self.kernel))
        self.outer, self.padded = outer, padded
        self.size = [padded[i] - outer[i] - outer[i + 2] for i in range(2)]
        self.before = [self.pads[i] + outer[i] for i in range(2)]
        self.outputs = list(target.shape(node.outputs[0])[2:])
        if any(pad >= k for pad, k in zip(self.before, self.kernel, strict=True)):
            raise CannotError("its pads are not smaller than its kernel")

    def caffe_size(self, floor: bool) -> list[int]:
        return [
            pooled_size(
                self.size[i], self.kernel[i], self.stride[i], self.before[i], any(self.before),
                floor,
            )
            for i in range(2)
        ]  # fmt: skip

    def divisors(self, axis: int, counts_pads: bool) -> tuple[Any, Any]:
        """How many cells a mean divides by along an axis: in ONNX, in Caffe."""
        k, s = self.kernel[axis], self.stride[axis]
        first = np.arange(self.outputs[axis]) * s - self.pads[axis]
        low = -self.pads[axis] if counts_pads else 0
        high = self.padded[axis] + (self.pads[axis + 2] if counts_pads else 0)
        theirs = np.minimum(first + k, high) - np.maximum(first, low)
        begin = np.arange(self.outputs[axis]) * s - self.before[axis]
        ours = np.minimum(begin + k, self.size[axis] + self.before[axis]) - begin
        return theirs, ours


def _pooled(target: Target, node: Node, window: _Window, blob: str, method: int) -> str:
    """A Pooling layer whose top has the node's size."""
    top, layer = target.step("Pooling", node, [blob])
    param = layer.pooling_param
    param.pool = method
    param.kernel_h, param.kernel_w = window.kernel
    param.stride_h, param.stride_w = window.stride
    if any(window.before):
        param.pad_h, param.pad_w = window.before
    up, down = window.caffe_size(floor=False), window.caffe_size(floor=True)
    if up == window.outputs:
        return top
    if down == window.outputs and target.dialect.floor_pooling:
        param.round_mode = FLOOR
        return top
    if any(have < want for have, want in zip(up, window.outputs, strict=True)):
        raise CannotError(f"Caffe's pooling gives {up} where {window.outputs} are wanted")
    for axis in range(2):
        top = target.cut(node, top, axis + 2, 0, window.outputs[axis], up[axis])
    return top


@reads("MaxPool")
def max_pool(target: Target, node: Node) -> None:
    if len(node.outputs) > 1 and node.outputs[1]:
        raise CannotError("its second output (places) is not converted")
    window = _Window(target, node, [0, 0, 0, 0])
    top = _pooled(target, node, window, target.blob(node.inputs[0]), MAX)
    target.name(node, top)


@reads("AveragePool")
def average_pool(target: Target, node: Node) -> None:
    blob, outer = target.unpadded(node.inputs[0])
    window = _Window(target, node, outer)
    top = _pooled(target, node, window, blob, AVE)
    counts = bool(node.get("count_include_pad", 0))
    (theirs_h, ours_h), (theirs_w, ours_w) = (window.divisors(axis, counts) for axis in range(2))
    factor = np.outer(ours_h / theirs_h, ours_w / theirs_w)
    if (factor != 1).any():
        fixed, layer = target.step("Scale", node, [top], factor)
        layer.scale_param.axis, layer.scale_param.num_axes = 2, 2
        top = fixed
    target.name(node, top)
