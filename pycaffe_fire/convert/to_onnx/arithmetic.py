"""Layers that combine blobs, or a blob with weights: Eltwise, Scale, Bias, Axpy, MatMul,
Reduction."""

from __future__ import annotations

from functools import reduce

from ... import schema
from ..dims import Dim
from .graph import Graph
from .registry import Part, converts


@converts("Eltwise")
def eltwise(graph: Graph, part: Part) -> str:
    param = part.param.eltwise_param
    operation = schema.EltwiseParameter.EltwiseOp.Name(param.operation)
    names = [x.name for x in part.bottoms]
    if operation == "SUM" and param.coeff:
        names = [graph.scaled(n, c) for n, c in zip(names, param.coeff, strict=True)]
    kind = {"PROD": "Mul", "SUM": "Add", "MAX": "Max"}[operation]
    return reduce(lambda a, b: graph.op(kind, a, b), names)


def _operand(graph: Graph, part: Part, axis: int, index: int) -> str:
    """The second bottom, or a weight, so shaped that it spans the bottom's axes from `axis` on."""
    axes = len(part.x.shape)
    learned = len(part.bottoms) == 1
    shape = part.array(index).shape if learned else part.bottoms[1].shape
    if not shape:
        return part.weight(graph, index) if learned else part.bottoms[1].name
    axis = part.layer.axis(part.bottom_blobs[0], axis)
    after = axes - axis - len(shape)
    if learned:
        return part.weight(graph, index, *shape, *(1 for _ in range(after)))
    other = part.bottoms[1]
    spread = (*other.shape, *(Dim(1) for _ in range(after)))
    return graph.reshape(other.name, other.shape, spread)


@converts("Scale")
def scale(graph: Graph, part: Part) -> str:
    param = part.param.scale_param
    y = graph.op("Mul", part.x.name, _operand(graph, part, param.axis, 0))
    if not param.bias_term:
        return y
    bias = part.array(len(part.blobs) - 1).shape
    after = 0
    if bias:
        after = len(part.x.shape) - part.layer.axis(part.bottom_blobs[0], param.axis) - len(bias)
    shift = part.weight(graph, len(part.blobs) - 1, *bias, *(1 for _ in range(after)))
    return graph.op("Add", y, shift)


@converts("Bias")
def bias(graph: Graph, part: Part) -> str:
    operand = _operand(graph, part, part.param.bias_param.axis, 0)
    return graph.op("Add", part.x.name, operand)


@converts("MatMul")
def matmul(graph: Graph, part: Part) -> str:
    param, axes = part.param.matmul_param, len(part.x.shape)
    turn = [*range(axes - 2), axes - 1, axes - 2]
    names = [
        graph.op("Transpose", x.name, perm=turn) if transposed else x.name
        for x, transposed in zip(part.bottoms, (param.transpose_a, param.transpose_b), strict=True)
    ]
    return graph.op("MatMul", *names)


@converts("Axpy")
def axpy(graph: Graph, part: Part) -> str:
    a, x, y = part.bottoms
    ones = (Dim(1) for _ in x.shape[2:])
    factors = graph.reshape(a.name, a.shape, (*a.shape[:2], *ones))
    return graph.op("Add", graph.op("Mul", factors, x.name), y.name)


@converts("Reduction")
def reduction(graph: Graph, part: Part) -> str:
    param = part.param.reduction_param
    axis = part.layer.axis(part.bottom_blobs[0], param.axis)
    operation = schema.ReductionParameter.ReductionOp.Name(param.operation)
    kinds = {"SUM": "Sum", "MEAN": "Mean", "ASUM": "L1", "SUMSQ": "SumSquare"}
    axes = list(range(axis, len(part.x.shape)))
    y = graph.reduce(f"Reduce{kinds[operation]}", part.x.name, axes, keepdims=False)
    return graph.scaled(y, param.coeff)
