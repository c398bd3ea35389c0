"""Conv, ConvTranspose, Gemm, MatMul and what scales channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from .source import Node
from .target import CannotError, Target, even_pads, reads


def _pads(node: Node, size: tuple[int, ...], kernel: tuple[int, ...]) -> list[int]:
    """Explicit pads of a node over two axes, before and after."""
    kind = node.get("auto_pad", "NOTSET")
    given = list(node.get("pads", [0] * (2 * len(kernel))))
    if kind in ("NOTSET", "VALID"):
        return given if kind == "NOTSET" else [0] * len(given)
    strides = node.get("strides", [1] * len(kernel))
    dilations = node.get("dilations", [1] * len(kernel))
    before, after = [], []
    for n, k, s, d in zip(size, kernel, strides, dilations, strict=True):
        total = max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
        small = total // 2
        lower = kind == "SAME_LOWER"
        before.append(total - small if lower else small)
        after.append(small if lower else total - small)
    return [*before, *after]


def _fill(param: Any, node: Node, kernel: Any, pad: tuple[int, int], group: int) -> None:
    strides, dilations = node.get("strides", [1, 1]), node.get("dilations", [1, 1])
    param.group = group
    param.kernel_h, param.kernel_w = kernel
    param.pad_h, param.pad_w = pad
    param.stride_h, param.stride_w = strides
    if list(dilations) != [1, 1]:
        param.dilation.extend(dilations)


@reads("Conv")
def conv(target: Target, node: Node) -> None:
    weights = target.constant(node, 1, "weights")
    if weights.ndim == 3:  # along one axis
        return _conv_1d(target, node, weights)
    if weights.ndim != 4:
        raise CannotError("only convolutions over one or two axes are converted")
    size = target.shape(node.inputs[0])[2:]
    bottom, outer = target.unpadded(node.inputs[0])
    pads = [a + b for a, b in zip(_pads(node, size, weights.shape[2:]), outer, strict=True)]
    dilations = node.get("dilations", [1, 1])
    weights, pad = even_pads(weights, pads, (dilations[0], dilations[1]))
    bias = [target.constant(node, 2, "bias")] if len(node.inputs) > 2 and node.inputs[2] else []
    layer = target.onto("Convolution", node, bottom, weights, *bias)
    param = layer.convolution_param
    param.num_output, param.bias_term = weights.shape[0], bool(bias)
    _fill(param, node, weights.shape[2:], pad, int(node.get("group", 1)))
    return None


def _conv_1d(target: Target, node: Node, weights: Any) -> None:
    pads = list(node.get("pads", [0, 0]))
    if pads[0] != pads[1] or node.get("auto_pad", "NOTSET") != "NOTSET":
        raise CannotError("uneven pads along one axis are not converted")
    bias = [target.constant(node, 2, "bias")] if len(node.inputs) > 2 and node.inputs[2] else []
    param = target.one("Convolution", node, weights, *bias).convolution_param
    param.num_output, param.bias_term = weights.shape[0], bool(bias)
    param.group = int(node.get("group", 1))
    param.kernel_size.append(weights.shape[2])
    param.pad.append(pads[0])
    param.stride.extend(node.get("strides", [1]))
    param.dilation.extend(node.get("dilations", [1]))


@reads("ConvTranspose")
def conv_transpose(target: Target, node: Node) -> None:
    weights = target.constant(node, 1, "weights")
    pads = list(node.get("pads", [0, 0, 0, 0]))
    if weights.ndim != 4 or node.get("auto_pad", "NOTSET") != "NOTSET":
        raise CannotError("only with explicit pads over two axes")
    if (
        pads[:2] != pads[2:]
        or any(node.get("output_padding", [0]))
        or "output_shape" in (node.attributes)
    ):
        raise CannotError("uneven pads and output_padding have no counterpart in Deconvolution")
    bias = [target.constant(node, 2, "bias")] if len(node.inputs) > 2 and node.inputs[2] else []
    param = target.one("Deconvolution", node, weights, *bias).convolution_param
    group = int(node.get("group", 1))
    param.num_output, param.bias_term = weights.shape[1] * group, bool(bias)
    _fill(param, node, weights.shape[2:], (pads[0], pads[1]), group)


@reads("Gemm")
def gemm(target: Target, node: Node) -> None:
    weights = target.constant(node, 1, "weights")
    if node.get("transA", 0):
        raise CannotError("transA has no counterpart in InnerProduct")
    weights = (weights if node.get("transB", 0) else weights.T) * node.get("alpha", 1.0)
    bias = []
    if len(node.inputs) > 2 and node.inputs[2]:
        shift = target.constant(node, 2, "bias") * node.get("beta", 1.0)
        bias = [np.broadcast_to(shift.reshape(-1), weights.shape[:1])]
    param = target.one("InnerProduct", node, weights, *bias).inner_product_param
    param.num_output, param.bias_term = weights.shape[0], bool(bias)


@reads("MatMul")
def matmul(target: Target, node: Node) -> None:
    weights = target.constant(node, 1, "second factor")
    if weights.ndim != 2:
        raise CannotError("its second factor is no matrix")
    param = target.one("InnerProduct", node, weights.T).inner_product_param
    param.num_output, param.bias_term = weights.shape[1], False
    param.axis = len(target.shape(node.inputs[0])) - 1


@reads("BatchNormalization")
def batch_normalization(target: Target, node: Node) -> None:
    if node.get("training_mode", 0):
        raise CannotError("it is in training mode")
    scale, shift, mean, variance = (target.constant(node, i) for i in range(1, 5))
    top, layer = target.step(
        "BatchNorm", node, [target.blob(node.inputs[0])], mean, variance, np.ones(1)
    )
    layer.batch_norm_param.eps = node.get("epsilon", 1e-5)
    layer.batch_norm_param.use_global_stats = True
    made = target.layer("Scale", node.name, [top], [node.outputs[0]], scale, shift)
    made.scale_param.bias_term = True
    target.blobs[node.outputs[0]] = node.outputs[0]


@reads("LRN")
def lrn(target: Target, node: Node) -> None:
    param = target.one("LRN", node).lrn_param
    param.local_size = node.get("size", 1)
    param.alpha, param.beta = node.get("alpha", 1e-4), node.get("beta", 0.75)
    param.k = node.get("bias", 1.0)
