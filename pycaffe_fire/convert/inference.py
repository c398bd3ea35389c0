"""What a net computes in use: its TEST phase without losses, fed by inputs instead of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import schema
from ..errors import ConvertError, NetError
from ..layers import DataLayer, layer_class
from ..net.deploy import OUTPUT, ends, prediction
from ..net.graph import filter_net
from ..net.net import Net
from .model import Model, build

Shapes = Mapping[str, Sequence[int]]


def for_inference(model: Model, shapes: Shapes | None = None) -> Model:
    """The model as it is used; `shapes` are those of inputs that the prototxt does not tell."""
    param = schema.NetParameter()
    param.CopyFrom(model.param)
    param.state.phase = schema.TEST
    param.force_backward = False
    param = filter_net(param)
    notes = list(model.notes)
    layers = list(param.layer)
    for layer in layers:
        layer.ClearField("include")
        layer.ClearField("exclude")
        layer.ClearField("loss_weight")
        layer.ClearField("propagate_down")
    layers = _without_losses(layers, notes)
    read = {name for layer in layers for name in layer.bottom}
    layers = [made for layer in layers for made in _as_inputs(layer, read, shapes or {}, notes)]
    del param.layer[:]
    for layer in layers:
        param.layer.add().CopyFrom(layer)
    names = {layer.name for layer in layers}
    weights = {name: blobs for name, blobs in model.weights.items() if name in names}
    return Model(param, weights, model.source, model.weights_source, notes)


def _without_losses(layers: list[Any], notes: list[str]) -> list[Any]:
    """Losses become what they compute of their scores, or go; so do layers that judge."""
    predictions = {layer.name: prediction(layer) for layer in layers}
    alone = sum(made is not None for made in predictions.values()) == 1
    alone &= not any(OUTPUT in layer.top for layer in layers)
    kept = []
    for layer in layers:
        made = predictions[layer.name]
        if made is not None:
            top = OUTPUT if alone else f"{layer.bottom[0]}_{OUTPUT}"
            made.name = layer.name
            made.bottom.append(layer.bottom[0])
            made.top.append(layer.top[1] if len(layer.top) > 1 else top)
            notes.append(f'{layer.type} "{layer.name}" became {made.type}, top "{made.top[0]}"')
            kept.append(made)
        elif ends(layer):
            notes.append(f'{layer.type} "{layer.name}" dropped: nothing is learned or scored')
        else:
            kept.append(layer)
    return kept


def _as_inputs(layer: Any, read: set[str], shapes: Shapes, notes: list[str]) -> list[Any]:
    """A data layer as an Input layer of those of its tops that are read."""
    if layer.type == "Input":
        return [_reshaped(layer, shapes)]
    if not feeds(layer.type):
        return [layer]
    made = schema.LayerParameter(name=layer.name, type="Input")
    for number, top in enumerate(layer.top):
        if top in read:
            made.top.append(top)
            made.input_param.shape.add(dim=shapes.get(top) or _shape(layer, number, top))
    notes.append(f'{layer.type} "{layer.name}" became the input {", ".join(made.top) or "of none"}')
    return [made] if made.top else []


def build_small(model: Model) -> Net:
    """The model's net, with a batch of 1 where it can do with any, which takes less memory."""
    shapes = [shape for layer in model.param.layer for shape in layer.input_param.shape]
    sizes = {shape.dim[0] for shape in shapes if shape.dim}
    if len(sizes) != 1 or sizes == {1}:
        return build(model, separate=True)
    param = schema.NetParameter()
    param.CopyFrom(model.param)
    for layer in param.layer:
        for shape in layer.input_param.shape:
            shape.dim[:1] = [1]
    single = Model(param, model.weights, model.source, model.weights_source, model.notes)
    try:
        return build(single, separate=True)
    except NetError:
        return build(model, separate=True)


def feeds(kind: str) -> bool:
    """Does a layer of this type bring data into a net?"""
    return kind == "DummyData" or issubclass(layer_class(kind), DataLayer)


def _reshaped(layer: Any, shapes: Shapes) -> Any:
    if not any(top in shapes for top in layer.top):
        return layer
    made = schema.LayerParameter()
    made.CopyFrom(layer)
    given = list(layer.input_param.shape)
    made.ClearField("input_param")
    for number, top in enumerate(layer.top):
        own = given[number if len(given) > 1 else 0].dim if given else ()
        made.input_param.shape.add(dim=shapes.get(top) or own)
    return made


def _shape(layer: Any, number: int, top: str) -> list[int]:
    if layer.type == "DummyData":
        param = layer.dummy_data_param
        if param.shape:
            return list(param.shape[number if len(param.shape) > 1 else 0].dim)
        legacy = (param.num, param.channels, param.height, param.width)
        return [dims[number if len(dims) > 1 else 0] for dims in legacy]
    kind = layer_class(layer.type)
    shape = None
    if number == 0 and layer.type != "HDF5Data" and issubclass(kind, DataLayer):
        shape = kind.image_shape(layer)
    if shape is None and number == 1:
        return [1]
    if shape is None:
        raise ConvertError(
            f'layer "{layer.name}" ({layer.type}): the prototxt does not tell the shape of its top '
            f'"{top}"; give it: --input-shape {top}=1,3,224,224'
        )
    return [1, *shape]
