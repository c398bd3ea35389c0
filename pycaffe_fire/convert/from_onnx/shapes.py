"""Ops that move, join, cut, reduce or resize."""

from __future__ import annotations

import numpy as np

from .source import Node, Shape
from .target import CannotError, Target, reads

DENSE = 1 << 22  # weights of a resize that is written as one matrix


def _reshaped(target: Target, node: Node, blob: str, shape: Shape, source: Shape) -> None:
    """A Reshape layer; the first axis is copied where it stays, so that batches may differ."""
    dims = list(shape)
    if source and dims and dims[0] == source[0]:
        dims[0] = 0
    if len(dims) == 2 and dims[0] == 0:
        target.onto("Flatten", node, blob)
        return
    target.onto("Reshape", node, blob).reshape_param.shape.dim.extend(dims)


@reads("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(target: Target, node: Node) -> None:
    source, shape = target.shape(node.inputs[0]), target.shape(node.outputs[0])
    if source == shape:
        target.name(node, target.blob(node.inputs[0]))
        return
    _reshaped(target, node, target.blob(node.inputs[0]), shape, source)


@reads("Transpose")
def transpose(target: Target, node: Node) -> None:
    shape = target.shape(node.inputs[0])
    order = list(node.get("perm", list(reversed(range(len(shape))))))
    moved = [axis for axis in order if shape[axis] != 1 or axis == 0]
    if order == sorted(order):
        target.name(node, target.blob(node.inputs[0]))
    elif moved == sorted(moved) and order[0] == 0:  # only axes of size 1 move
        new = tuple(shape[axis] for axis in order)
        _reshaped(target, node, target.blob(node.inputs[0]), new, shape)
    else:
        target.one("Permute", node).permute_param.order.extend(order)


@reads("Concat")
def concat(target: Target, node: Node) -> None:
    blobs = [target.blob(name) for name in node.inputs]
    layer = target.layer("Concat", node.name, blobs, [node.outputs[0]])
    layer.concat_param.axis = node.get("axis", 1) % len(target.shape(node.inputs[0]))
    target.blobs[node.outputs[0]] = node.outputs[0]


@reads("Split")
def split(target: Target, node: Node) -> None:
    shape = target.shape(node.inputs[0])
    axis = node.get("axis", 0) % len(shape)
    layer = target.layer("Slice", node.name, [target.blob(node.inputs[0])], list(node.outputs))
    layer.slice_param.axis = axis
    sizes = [target.shape(name)[axis] for name in node.outputs]
    layer.slice_param.slice_point.extend(int(n) for n in np.cumsum(sizes)[:-1])
    target.blobs.update((name, name) for name in node.outputs)


@reads("Slice")
def slices(target: Target, node: Node) -> None:
    shape = target.shape(node.inputs[0])
    given = [node.get(name, None) for name in ("starts", "ends", "axes")]
    for index in range(1, 4):
        if len(node.inputs) > index and node.inputs[index]:
            given[index - 1] = [int(v) for v in target.constant(node, index).reshape(-1)]
    starts, ends, axes = given
    axes = list(range(len(starts))) if axes is None else axes
    steps = target.constant(node, 4).reshape(-1) if len(node.inputs) > 4 else [1]
    if any(int(step) != 1 for step in steps):
        raise CannotError("steps other than 1 have no counterpart in Slice")
    blob = target.blob(node.inputs[0])
    for start, end, axis in zip(starts, ends, axes, strict=True):
        size = shape[axis]
        first, last = (min(max(n + size if n < 0 else n, 0), size) for n in (start, end))
        if last <= first:
            raise CannotError("nothing is left of an axis")
        blob = target.cut(node, blob, axis % len(shape), first, last, size)
    target.name(node, blob)


@reads("Pad")
def pad(target: Target, node: Node) -> None:
    shape = target.shape(node.inputs[0])
    if len(node.inputs) > 1:
        pads = [int(v) for v in target.constant(node, 1, "pads").reshape(-1)]
    else:
        pads = list(node.get("pads", []))
    value = float(node.get("value", 0.0))
    if len(node.inputs) > 2 and node.inputs[2]:
        value = float(target.constant(node, 2).reshape(-1)[0])
    if len(node.inputs) > 3 and node.inputs[3]:
        raise CannotError("pads of named axes are not converted")
    if node.get("mode", "constant") != "constant" or value:
        raise CannotError("only zeros can be put around an image")
    if len(shape) != 4 or any(pads[:2]) or any(pads[4:6]) or min(pads) < 0:
        raise CannotError(f"pads {pads} of {list(shape)} are not those of an image")
    if not any(pads):
        target.name(node, target.blob(node.inputs[0]))
        return
    target.pads[node.outputs[0]] = (node.inputs[0], [*pads[2:4], *pads[6:8]])
    if node.outputs[0] in target.source.outputs:
        target.blob(node.outputs[0])


def _interpolation(node: Node, into: int, out: int, scale: float) -> np.ndarray:
    """The matrix (out, into) of a resize along one axis."""
    mode = node.get("coordinate_transformation_mode", "half_pixel")
    at = np.arange(out, dtype=float)
    if mode == "align_corners":
        place = at * ((into - 1) / (out - 1) if out > 1 else 0.0)
    elif mode == "asymmetric":
        place = at / scale
    elif mode in ("half_pixel", "pytorch_half_pixel"):
        place = (at + 0.5) / scale - 0.5
        if mode == "pytorch_half_pixel" and out == 1:
            place = 0 * at
    else:
        raise CannotError(f"coordinates by {mode} are not converted")
    matrix = np.zeros((out, into), np.float32)
    rows = np.arange(out)
    if node.get("mode", "nearest") == "nearest":
        kind = node.get("nearest_mode", "round_prefer_floor")
        rounded = {
            "floor": np.floor(place), "ceil": np.ceil(place),
            "round_prefer_floor": np.ceil(place - 0.5), "round_prefer_ceil": np.floor(place + 0.5),
        }[kind]  # fmt: skip
        matrix[rows, np.clip(rounded, 0, into - 1).astype(int)] = 1
        return matrix
    if node.get("mode", "nearest") != "linear":
        raise CannotError(f"resizing by {node.get('mode', '')} is not converted")
    place = np.clip(place, 0, into - 1)
    left = np.minimum(place.astype(int), into - 1)
    share = (place - left).astype(np.float32)
    np.add.at(matrix, (rows, left), 1 - share)
    np.add.at(matrix, (rows, np.minimum(left + 1, into - 1)), share)
    return matrix


@reads("Resize", "Upsample")
def resize(target: Target, node: Node) -> None:
    source, shape = target.shape(node.inputs[0]), target.shape(node.outputs[0])
    if source == shape:
        target.name(node, target.blob(node.inputs[0]))
        return
    if len(source) != 4 or source[:2] != shape[:2]:
        raise CannotError(f"{list(source)} to {list(shape)} is no resize of an image")
    if node.op == "Upsample":
        node.attributes.setdefault("coordinate_transformation_mode", "asymmetric")
        node.attributes.setdefault("nearest_mode", "floor")
    factors = [out / size for out, size in zip(shape[2:], source[2:], strict=True)]
    rows, columns = (
        _interpolation(node, a, b, f)
        for a, b, f in zip(source[2:], shape[2:], factors, strict=True)
    )
    if all(f == int(f) for f in factors) and _repeats(rows) and _repeats(columns):
        _repeated(target, node, source[1], int(factors[0]), int(factors[1]))
        return
    dense = rows.size * columns.size
    if dense > DENSE:
        raise CannotError(f"{list(source)} to {list(shape)} would take {dense:,} weights")
    flat, layer = target.step("Reshape", node, [target.blob(node.inputs[0])])
    layer.reshape_param.shape.dim.extend([0, 0, source[2] * source[3]])
    values, layer = target.step("InnerProduct", node, [flat], np.kron(rows, columns))
    param = layer.inner_product_param
    param.num_output, param.bias_term, param.axis = shape[2] * shape[3], False, 2
    target.onto("Reshape", node, values).reshape_param.shape.dim.extend([0, 0, *shape[2:]])


def _repeats(matrix: np.ndarray) -> bool:
    """Is each row of the image repeated the same number of times?"""
    out, into = matrix.shape
    return bool((matrix == np.repeat(np.eye(into), out // into, axis=0)).all())


def _repeated(target: Target, node: Node, channels: int, height: int, width: int) -> None:
    """Pixels as blocks: an Upsample layer, or a Deconvolution with ones."""
    if target.dialect.knows("Upsample") and height == width:
        target.one("Upsample", node).upsample_param.scale = height
        return
    weights = np.ones((channels, 1, height, width), np.float32)
    param = target.one("Deconvolution", node, weights).convolution_param
    param.num_output = param.group = channels
    param.bias_term = False
    param.kernel_h, param.kernel_w = height, width
    param.stride_h, param.stride_w = height, width


def _ended(target: Target, node: Node, blob: str, fits: bool) -> None:
    """Let a step's top be the node's output, reshaped unless it fits."""
    if fits:
        target.name(node, blob)
        return
    dims = target.onto("Reshape", node, blob).reshape_param.shape.dim
    dims.extend([0, *target.shape(node.outputs[0])[1:]])


@reads("ReduceMean", "ReduceSum")
def reduce(target: Target, node: Node) -> None:
    shape = target.shape(node.inputs[0])
    axes = node.get("axes", None)
    if len(node.inputs) > 1 and node.inputs[1]:
        axes = [int(v) for v in target.constant(node, 1, "axes").reshape(-1)]
    whole = list(range(len(shape)))
    axes = sorted(axis % len(shape) for axis in axes) if axes is not None else whole
    blob, out = target.blob(node.inputs[0]), target.shape(node.outputs[0])
    kept = len(out) == len(shape)
    if axes == [1] and len(shape) == 4:
        _reduced_channels(target, node, blob, shape[1])
        return
    if axes != list(range(axes[0], len(shape))) or axes[0] == 0:
        raise CannotError(f"only the last axes can be reduced, not {axes} of {list(shape)}")
    if node.op == "ReduceMean" and len(shape) == 4 and axes == [2, 3] and kept:
        param = target.onto("Pooling", node, blob).pooling_param
        param.pool, param.global_pooling = 1, True
        return
    top, layer = target.step("Reduction", node, [blob])
    layer.reduction_param.axis = axes[0]
    layer.reduction_param.operation = 4 if node.op == "ReduceMean" else 1
    _ended(target, node, top, fits=not kept)


def _reduced_channels(target: Target, node: Node, blob: str, channels: int) -> None:
    """A convolution with ones, of which the mean has its share."""
    share = 1 / channels if node.op == "ReduceMean" else 1.0
    top, layer = target.step("Convolution", node, [blob], np.full((1, channels, 1, 1), share))
    param = layer.convolution_param
    param.num_output, param.bias_term = 1, False
    param.kernel_size.append(1)
    _ended(target, node, top, fits=len(target.shape(node.outputs[0])) == 4)


@reads("ArgMax")
def argmax(target: Target, node: Node) -> None:
    """Of equals Caffe takes the last, which differs where ONNX is to take the first."""
    shape = target.shape(node.inputs[0])
    axis = node.get("axis", 0) % len(shape)
    top, layer = target.step("ArgMax", node, [target.blob(node.inputs[0])])
    layer.argmax_param.axis = axis
    _ended(target, node, top, fits=bool(node.get("keepdims", 1)))
