"""Functions of each element, and sums and products of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .source import Array, Node
from .target import CannotError, Target, reads


@reads("Relu")
def relu(target: Target, node: Node) -> None:
    target.one("ReLU", node)


@reads("LeakyRelu")
def leaky_relu(target: Target, node: Node) -> None:
    target.one("ReLU", node).relu_param.negative_slope = node.get("alpha", 0.01)


@reads("PRelu")
def prelu(target: Target, node: Node) -> None:
    slopes = target.constant(node, 1, "slope").reshape(-1)
    if slopes.size not in (1, target.shape(node.inputs[0])[1]):
        raise CannotError("its slopes are neither one nor one per channel")
    shared = slopes.size == 1
    layer = target.one("PReLU", node, slopes.reshape(()) if shared else slopes)
    layer.prelu_param.channel_shared = shared


@reads("Elu")
def elu(target: Target, node: Node) -> None:
    target.one("ELU", node).elu_param.alpha = node.get("alpha", 1.0)


@reads("Sigmoid", "Tanh", "Softplus", "Abs", "Exp", "Log")
def simple(target: Target, node: Node) -> None:
    kinds = {"Tanh": "TanH", "Softplus": "BNLL", "Abs": "AbsVal"}
    target.one(kinds.get(node.op, node.op), node)


@reads("Identity", "Dropout", "Cast")
def unchanged(target: Target, node: Node) -> None:
    target.name(node, target.blob(node.inputs[0]))


@reads("Neg", "Sqrt", "Reciprocal", "Pow")
def powers(target: Target, node: Node) -> None:
    powers = {"Neg": 1.0, "Sqrt": 0.5, "Reciprocal": -1.0}
    power = powers.get(node.op) or float(target.constant(node, 1, "exponent").reshape(-1)[0])
    if node.op == "Pow" and target.constant(node, 1).size != 1:
        raise CannotError("its exponent is no single number")
    param = target.one("Power", node).power_param
    param.power, param.scale = power, -1.0 if node.op == "Neg" else 1.0


def _clipped(target: Target, node: Node, blob: str, low: float, high: float) -> str:
    """min(max(x, low), high) in what the dialect knows."""
    if target.dialect.clip:
        top, layer = target.step("Clip", node, [blob])
        layer.clip_param.min, layer.clip_param.max = low, high
        return top
    if not np.isfinite(low) or abs(low) > 1e30:
        raise CannotError("a clip without a lower end needs a Clip layer")
    lower = target.power(node, blob, 1, 1, -low) if low else blob
    lower, _ = target.step("ReLU", node, [lower])
    if abs(high) > 1e30:
        return target.power(node, lower, 1, 1, low) if low else lower
    above, _ = target.step("ReLU", node, [target.power(node, blob, 1, 1, -high)])
    top, layer = target.step("Eltwise", node, [lower, above])
    layer.eltwise_param.coeff.extend([1, -1])
    return target.power(node, top, 1, 1, low) if low else top


@reads("Clip")
def clip(target: Target, node: Node) -> None:
    ends = []
    for index, name, default in ((1, "min", -3e38), (2, "max", 3e38)):
        given = len(node.inputs) > index and node.inputs[index]
        value = target.constant(node, index).reshape(-1)[0] if given else node.get(name, default)
        ends.append(float(value))
    target.name(node, _clipped(target, node, target.blob(node.inputs[0]), *ends))


def _hard_sigmoid(target: Target, node: Node, blob: str, alpha: float, beta: float) -> str:
    return _clipped(target, node, target.power(node, blob, 1, alpha, beta), 0, 1)


@reads("HardSigmoid")
def hard_sigmoid(target: Target, node: Node) -> None:
    alpha, beta = node.get("alpha", 0.2), node.get("beta", 0.5)
    target.name(node, _hard_sigmoid(target, node, target.blob(node.inputs[0]), alpha, beta))


@reads("HardSwish")
def hard_swish(target: Target, node: Node) -> None:
    """x relu6(x + 3) / 6."""
    blob = target.blob(node.inputs[0])
    gate = _hard_sigmoid(target, node, blob, 1 / 6, 0.5)
    layer = target.layer("Eltwise", node.name, [blob, gate], [node.outputs[0]])
    layer.eltwise_param.operation = 0  # PROD
    target.blobs[node.outputs[0]] = node.outputs[0]


@reads("Softmax")
def softmax(target: Target, node: Node) -> None:
    axes = len(target.shape(node.inputs[0]))
    axis = node.get("axis", -1 if target.opset >= 13 else 1)
    if target.opset < 13 and axis % axes != axes - 1:
        size = int(np.prod(target.shape(node.inputs[0])[axis % axes + 1 :]))
        if size != 1:
            raise CannotError("before opset 13 it normalises over several axes at once")
    target.one("Softmax", node).softmax_param.axis = axis % axes


# Two operands.


def _spread(target: Target, node: Node, tensor: str, array: Array) -> tuple[int, Array]:
    """(axis, array): where a constant lies in a tensor that it is broadcast over."""
    shape = target.shape(tensor)
    if array.ndim > len(shape):
        raise CannotError(f"its constant {list(array.shape)} has more axes than {list(shape)}")
    full = (1,) * (len(shape) - array.ndim) + array.shape
    spanned = [i for i, size in enumerate(full) if size != 1]
    axis, end = (spanned[0], spanned[-1] + 1) if spanned else (0, 0)
    if tuple(full[axis:end]) != tuple(shape[axis:end]):
        raise CannotError(f"its constant {list(array.shape)} does not fit {list(shape)}")
    return axis, array.reshape(full[axis:end])


def _with_constant(target: Target, node: Node, tensor: str, array: Array, first: bool) -> None:
    """x op constant, or constant op x."""
    blob, op = target.blob(tensor), node.op
    if op in ("Sub", "Div") and first:
        blob = target.power(node, blob, -1 if op == "Div" else 1, -1 if op == "Sub" else 1, 0)
        op = {"Sub": "Add", "Div": "Mul"}[op]
    if op in ("Sub", "Div"):
        array = -array if op == "Sub" else 1 / array
        op = {"Sub": "Add", "Div": "Mul"}[op]
    if array.size == 1:
        value = float(array.reshape(-1)[0])
        param = target.onto("Power", node, blob).power_param
        param.scale, param.shift = (value, 0) if op == "Mul" else (1, value)
        return
    axis, values = _spread(target, node, tensor, array)
    layer = target.onto("Scale" if op == "Mul" else "Bias", node, blob, values)
    param = layer.scale_param if op == "Mul" else layer.bias_param
    param.axis, param.num_axes = axis, values.ndim


@reads("Add", "Sub", "Mul", "Div", "Sum", "Max")
def arithmetic(target: Target, node: Node) -> None:
    fixed = [name for name in node.inputs if target.is_constant(name)]
    if fixed:
        if len(node.inputs) != 2 or node.op == "Max":
            raise CannotError("a constant among its operands")
        first = target.is_constant(node.inputs[0])
        array = np.asarray(target.constant(node, 0 if first else 1), np.float32)
        _with_constant(target, node, node.inputs[1 if first else 0], array, first)
        return
    shapes = [target.shape(name) for name in node.inputs]
    blobs = [target.blob(name) for name in node.inputs]
    if node.op == "Div":
        blobs[1] = target.power(node, blobs[1], -1, 1, 0)
    if len(set(shapes)) > 1:
        _broadcast(target, node, blobs, shapes)
        return
    layer = target.layer("Eltwise", node.name, blobs, [node.outputs[0]])
    kinds = {"Mul": "PROD", "Div": "PROD", "Max": "MAX"}
    layer.eltwise_param.operation = _operation(kinds.get(node.op, "SUM"))
    if node.op == "Sub":
        layer.eltwise_param.coeff.extend([1, -1])
    target.blobs[node.outputs[0]] = node.outputs[0]


def _operation(name: str) -> int:
    return {"PROD": 0, "SUM": 1, "MAX": 2}[name]


def _broadcast(target: Target, node: Node, blobs: list[str], shapes: list[Any]) -> None:
    """One operand is repeated along axes of which it has one element; a divisor is a factor now."""
    if len(blobs) != 2 or node.op not in ("Add", "Sub", "Mul", "Div"):
        raise CannotError(f"operands of shapes {[list(s) for s in shapes]}")
    if node.op == "Sub":
        blobs[1] = target.power(node, blobs[1], 1, -1, 0)
    small = 0 if np.prod(shapes[0]) < np.prod(shapes[1]) else 1
    factor, whole = shapes[small], shapes[1 - small]
    if len(factor) != len(whole) or any(
        size not in (1, full) for size, full in zip(factor, whole, strict=True)
    ):
        raise CannotError(f"operands of shapes {[list(s) for s in shapes]}")
    product = node.op in ("Mul", "Div")
    while factor[-1] == 1 and len(factor) > 1:
        factor = factor[:-1]
    if factor == whole[: len(factor)]:  # one for each sample, or each sample and channel
        flat, layer = target.step("Reshape", node, [blobs[small]])
        layer.reshape_param.shape.dim.extend([0, *factor[1:]])
        made = target.layer(
            "Scale" if product else "Bias", node.name, [blobs[1 - small], flat], [node.outputs[0]]
        )
        (made.scale_param if product else made.bias_param).axis = 0
    else:
        for axis, (size, full) in enumerate(zip(shapes[small], whole, strict=True)):
            if size != full:
                blobs[small], layer = target.step("Tile", node, [blobs[small]])
                layer.tile_param.axis, layer.tile_param.tiles = axis, full
        made = target.layer("Eltwise", node.name, blobs, [node.outputs[0]])
        made.eltwise_param.operation = _operation("PROD" if product else "SUM")
    target.blobs[node.outputs[0]] = node.outputs[0]
