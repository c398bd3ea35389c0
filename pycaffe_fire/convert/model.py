"""A Caffe model in memory: a net's parameters with the arrays of every layer, and running it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..backend import available_cores
from ..backend.numpy import NumPyBackend
from ..errors import ConvertError, FireError
from ..layers import Context
from ..net.net import Net
from ..net.weights import copy_layer_weights

Floats = NDArray[np.float32]
PathLike = str | os.PathLike[str]


@dataclass
class Model:
    """A NetParameter of the newest form without blobs, and the weights by layer name.

    `notes` says, a line each, what conversions folded, dropped or changed.
    """

    param: Any
    weights: dict[str, list[Floats]]
    source: str = ""
    weights_source: str = ""
    notes: list[str] = field(default_factory=list)

    def layer_weights(self) -> list[schema.LayerWeights]:
        """The weights of the layers that the net has, in its order, for writing."""
        return [
            schema.LayerWeights(layer.name, layer.type, self.weights[layer.name])
            for layer in self.param.layer
            if layer.name in self.weights
        ]


def read_model(prototxt: PathLike, weights: PathLike | None = None) -> Model:
    """The model in a prototxt of any age, with the weights of a .caffemodel or .h5."""
    param = schema.read_net(prototxt)
    found: dict[str, list[Floats]] = {}
    if weights is not None:
        found = {layer.name: layer.blobs for layer in schema.read_weights(weights) if layer.blobs}
    for layer in param.layer:  # a net may carry its weights with it
        if layer.blobs and layer.name not in found:
            raise ConvertError(
                f'{os.fspath(prototxt)}: layer "{layer.name}" has blobs in the prototxt itself; '
                f"give them as a .caffemodel"
            )
    name = os.fspath(weights) if weights is not None else ""
    return Model(param, found, os.fspath(prototxt), name)


def write_model(model: Model, prototxt: PathLike, weights: PathLike, float16: bool = False) -> None:
    """Both files of a model, or neither; with `float16` weights in 16 bits."""
    schema.write_text(model.param, prototxt)
    try:
        schema.write_weights(weights, model.param, model.layer_weights(), half=float16)
    except FireError:
        os.unlink(prototxt)
        raise


def build(model: Model, separate: bool = False, need_weights: bool = True) -> Net:
    """The model as a net that runs; with `separate` no layer does another's work.

    Its ops are NumPy's, which have no second copy of weights in a layout of their own.

    Weights that do not fit are an error, and so are layers without any.
    """
    param = schema.NetParameter()
    param.CopyFrom(model.param)
    param.debug_info = separate
    if need_weights:
        _without_fillers(param)
    net = Net(param, NumPyBackend(available_cores()), Context(), source=model.source)
    net.debug_info = False
    if need_weights:
        _refuse_missing(net, model)
    source = model.weights_source or "the weights"
    if model.weights:
        copy_layer_weights(net, [(source, model.layer_weights())])
    return net


def _without_fillers(message: Any) -> None:
    """Weights begin as zeros: random ones would be overwritten at once."""
    for kind, value in message.ListFields():
        if kind.message_type is None:
            continue
        if kind.message_type.name == "FillerParameter":
            message.ClearField(kind.name)
        else:
            for each in value if hasattr(value, "add") else (value,):
                _without_fillers(each)


def _refuse_missing(net: Net, model: Model) -> None:
    """Layers whose weights are neither in the file nor shared with a layer that has them."""
    given = {
        id(blob.value)
        for layer in net.layers
        if layer.name in model.weights
        for blob in layer.blobs
    }
    missing = [
        layer.name
        for layer in net.layers
        if any(id(blob.value) not in given for blob in layer.blobs)
    ]
    if missing:
        where = f"{model.weights_source} has" if model.weights_source else "there are"
        raise ConvertError(
            f"{where} no weights for {counted(missing, 'layer')}; give a file that belongs to "
            f"{model.source or 'the net'}"
        )


def counted(names: Iterable[str], what: str) -> str:
    """'layer "a"', 'layers "a" and "b"', 'layers "a", "b" and 7 more'."""
    quoted = [f'"{name}"' for name in names]
    shown = quoted if len(quoted) <= 4 else [*quoted[:3], f"{len(quoted) - 3} more"]
    if len(shown) == 1:
        return f"{what} {shown[0]}"
    return f"{what}s {', '.join(shown[:-1])} and {shown[-1]}"
