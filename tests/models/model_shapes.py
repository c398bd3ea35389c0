"""Caffe's shape rules in miniature: what every layer of models/ makes of one image."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

MODELS = Path(__file__).parents[2] / "models"
TRAIN, TEST = 0, 1

Shape = tuple[int, ...]


class Op(NamedTuple):
    """One layer that has blobs: counts for one image; multiply-adds of matrix products only."""

    name: str
    weights: int
    inputs: int
    multiply_adds: int
    statistics: int = 0


def layers_in(net: Any, phase: int) -> list[Any]:
    return [
        layer
        for layer in net.layer
        if not layer.include or any(rule.phase == phase for rule in layer.include)
    ]


def convolution(layer: Any, shape: Shape) -> tuple[Shape, Op]:
    p = layer.convolution_param
    kernel = p.kernel_size[0]
    stride = p.stride[0] if p.stride else 1
    pad = p.pad[0] if p.pad else 0
    side = (shape[1] + 2 * pad - kernel) // stride + 1
    weights = p.num_output * (shape[0] // p.group) * kernel**2
    biases = p.num_output if p.bias_term else 0
    op = Op(layer.name, weights + biases, math.prod(shape), weights * side**2)
    return (p.num_output, side, side), op


def inner_product(layer: Any, shape: Shape) -> tuple[Shape, Op]:
    outputs, inputs = layer.inner_product_param.num_output, math.prod(shape)
    return (outputs,), Op(layer.name, (inputs + 1) * outputs, inputs, inputs * outputs)


def batch_norm(layer: Any, shape: Shape) -> tuple[Shape, Op]:
    """Sums of means and variances, and the number to divide them by; nothing to learn."""
    return shape, Op(layer.name, 0, math.prod(shape), 0, statistics=2 * shape[0] + 1)


def scale(layer: Any, shape: Shape) -> tuple[Shape, Op]:
    weights = shape[0] * (2 if layer.scale_param.bias_term else 1)
    return shape, Op(layer.name, weights, math.prod(shape), 0)


WEIGHTED = {
    "Convolution": convolution,
    "InnerProduct": inner_product,
    "BatchNorm": batch_norm,
    "Scale": scale,
}


def pooling(layer: Any, shape: Shape) -> Shape:
    p = layer.pooling_param
    if p.global_pooling:
        return (shape[0], 1, 1)
    side = math.ceil((shape[1] + 2 * p.pad - p.kernel_size) / p.stride) + 1
    # Caffe drops a last window that would start beyond the image and its left padding.
    if p.pad and (side - 1) * p.stride >= shape[1] + p.pad:
        side -= 1
    return (shape[0], side, side)


def trace(net: Any, phase: int, data: Shape) -> tuple[dict[str, Shape], list[Op]]:
    """The shapes of all blobs without the batch axis, and the layers that have blobs."""
    blobs: dict[str, Shape] = {}
    ops: list[Op] = []
    for layer in layers_in(net, phase):
        bottoms = [blobs[name] for name in layer.bottom]
        if layer.type in ("Data", "Input"):
            shape = data
        elif layer.type in WEIGHTED:
            shape, op = WEIGHTED[layer.type](layer, bottoms[0])
            ops.append(op)
        elif layer.type == "Pooling":
            shape = pooling(layer, bottoms[0])
        elif layer.type == "Concat":
            assert len({bottom[1:] for bottom in bottoms}) == 1, layer.name
            shape = (sum(bottom[0] for bottom in bottoms), *bottoms[0][1:])
        elif layer.type == "Eltwise":
            assert len(set(bottoms)) == 1, layer.name
            shape = bottoms[0]
        else:
            shape = bottoms[0]
        blobs.update(dict.fromkeys(layer.top, shape))
    return blobs, ops
