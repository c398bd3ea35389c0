"""Layers that are a function of each element."""

from __future__ import annotations

from math import log

import numpy as np

from .graph import Graph
from .registry import Part, converts

E = -1  # how the schema writes the base of the natural logarithm


@converts("AbsVal")
def absval(graph: Graph, part: Part) -> str:
    return graph.op("Abs", part.x.name)


@converts("BNLL")
def bnll(graph: Graph, part: Part) -> str:
    return graph.op("Softplus", part.x.name)


@converts("Clip")
def clip(graph: Graph, part: Part) -> str:
    param = part.param.clip_param
    return graph.op("Clip", part.x.name, graph.constant(param.min), graph.constant(param.max))


@converts("ReLU6")
def relu6(graph: Graph, part: Part) -> str:
    return graph.op("Clip", part.x.name, graph.constant(0), graph.constant(6))


@converts("HSigmoid")
def hard_sigmoid(graph: Graph, part: Part) -> str:
    return graph.op("HardSigmoid", part.x.name, alpha=1 / 6, beta=0.5)


@converts("HSwish")
def hard_swish(graph: Graph, part: Part) -> str:
    gate = graph.op("HardSigmoid", part.x.name, alpha=1 / 6, beta=0.5)
    return graph.op("Mul", part.x.name, gate)


@converts("Mish")
def mish(graph: Graph, part: Part) -> str:
    gate = graph.op("Tanh", graph.op("Softplus", part.x.name))
    return graph.op("Mul", part.x.name, gate)


@converts("SpatialDropout")
def spatial_dropout(graph: Graph, part: Part) -> str:
    return graph.op("Identity", part.x.name)


@converts("Dropout")
def dropout(graph: Graph, part: Part) -> str:
    """In use all numbers are kept; those that training did not enlarge are made smaller."""
    param = part.param.dropout_param
    if param.sample_weights_test and param.dropout_ratio > 0:
        part.fail("sample_weights_test draws numbers in use, which no graph can")
    return graph.scaled(part.x.name, 1 if param.scale_train else 1 - param.dropout_ratio)


@converts("Split")
def unchanged(graph: Graph, part: Part) -> list[str]:
    return [part.x.name] * len(part.tops)


@converts("ELU")
def elu(graph: Graph, part: Part) -> str:
    param = part.param.elu_param
    return graph.scaled(
        graph.op("Elu", part.x.name, alpha=float(param.alpha)), getattr(param, "lambda")
    )


@converts("Exp")
def exp(graph: Graph, part: Part) -> str:
    param = part.param.exp_param
    power = 1.0 if param.base == E else log(param.base)
    return graph.op("Exp", graph.scaled(part.x.name, power * param.scale, power * param.shift))


@converts("Log")
def logarithm(graph: Graph, part: Part) -> str:
    param = part.param.log_param
    y = graph.op("Log", graph.scaled(part.x.name, param.scale, param.shift))
    return graph.scaled(y, 1.0 if param.base == E else 1 / log(param.base))


@converts("Power")
def power(graph: Graph, part: Part) -> str:
    param = part.param.power_param
    y = graph.scaled(part.x.name, param.scale, param.shift)
    if param.power == 1:
        return y if y != part.x.name else graph.op("Identity", y)
    return graph.op("Pow", y, graph.constant(param.power))


@converts("PReLU")
def prelu(graph: Graph, part: Part) -> str:
    ones = [1] * (len(part.x.shape) - 2)
    slopes = part.weight(graph, 0, part.array(0).size, *ones)
    return graph.op("PRelu", part.x.name, slopes)


@converts("ReLU")
def relu(graph: Graph, part: Part) -> str:
    slope = float(part.param.relu_param.negative_slope)
    if slope:
        return graph.op("LeakyRelu", part.x.name, alpha=slope)
    return graph.op("Relu", part.x.name)


@converts("Sigmoid")
def sigmoid(graph: Graph, part: Part) -> str:
    return graph.op("Sigmoid", part.x.name)


@converts("Swish")
def swish(graph: Graph, part: Part) -> str:
    gate = graph.op("Sigmoid", graph.scaled(part.x.name, part.param.swish_param.beta))
    return graph.op("Mul", part.x.name, gate)


@converts("TanH")
def tanh(graph: Graph, part: Part) -> str:
    return graph.op("Tanh", part.x.name)


@converts("Threshold")
def threshold(graph: Graph, part: Part) -> str:
    limit = graph.constant(part.param.threshold_param.threshold)
    return graph.cast(graph.op("Greater", part.x.name, limit), np.float32)


@converts("Softmax")
def softmax(graph: Graph, part: Part) -> str:
    axis = part.layer.axis(part.bottom_blobs[0], part.param.softmax_param.axis)
    return graph.op("Softmax", part.x.name, axis=axis)
