"""Forks' dialects of Caffe in BVLC's own terms."""

from __future__ import annotations

from typing import Any

from .. import schema
from .model import Model
from .prune import with_layers


def plain_enough(model: Model) -> Model:
    """The model without what only forks' layers compute in one: NVIDIA's scale_bias of BatchNorm,
    Intel's relu within other layers."""
    weights = {name: list(blobs) for name, blobs in model.weights.items()}
    layers: list[Any] = []
    notes: list[str] = []
    for original in model.param.layer:
        layer = schema.LayerParameter()
        layer.CopyFrom(original)
        layers.append(layer)
        if layer.type == "BatchNorm":
            layers += _split_batch_norm(layer, weights, notes)
        layers += _split_relu(layer, layers[-1].top, notes)
    made = with_layers(Model(model.param, weights, model.source, model.weights_source), layers)
    made.notes = [*model.notes, *notes]
    return made


def _split_batch_norm(layer: Any, weights: dict[str, list[Any]], notes: list[str]) -> list[Any]:
    """A Scale layer with the last two of NVIDIA's five blobs."""
    param, blobs = layer.batch_norm_param, weights.get(layer.name, [])
    if not param.scale_bias:
        return []
    param.ClearField("scale_bias")
    scale = schema.LayerParameter(
        name=f"{layer.name}_scale", type="Scale", bottom=layer.top, top=layer.top
    )
    scale.include.extend(layer.include)
    scale.exclude.extend(layer.exclude)
    scale.scale_param.bias_term = True
    if param.HasField("scale_filler"):
        scale.scale_param.filler.CopyFrom(param.scale_filler)
    if param.HasField("bias_filler"):
        scale.scale_param.bias_filler.CopyFrom(param.bias_filler)
    for field in ("scale_filler", "bias_filler"):
        param.ClearField(field)
    specs = list(layer.param)
    if len(specs) > 3:
        scale.param.extend(specs[3:])
        del layer.param[3:]
    if len(blobs) == 5:
        weights[layer.name] = blobs[:3]
        weights[scale.name] = [blob.reshape(-1) for blob in blobs[3:]]
    notes.append(f'BatchNorm "{layer.name}": scale_bias became Scale "{scale.name}"')
    return [scale]


def _split_relu(layer: Any, tops: Any, notes: list[str]) -> list[Any]:
    """A ReLU layer in place of Intel's relu: true."""
    fields = {"Convolution": "convolution_param", "BatchNorm": "batch_norm_param"}
    param = getattr(layer, fields.get(layer.type, ""), None)
    if param is None or not param.relu:
        return []
    slope = float(getattr(param, "negative_slope", 0.0))
    for field in ("relu", "negative_slope"):
        if field in schema_fields(param):
            param.ClearField(field)
    made = []
    for number, top in enumerate(tops):
        name = f"{layer.name}_relu" if number == 0 else f"{layer.name}_relu{number + 1}"
        relu = schema.LayerParameter(name=name, type="ReLU", bottom=[top], top=[top])
        relu.include.extend(layer.include)
        relu.exclude.extend(layer.exclude)
        if slope:
            relu.relu_param.negative_slope = slope
        made.append(relu)
    notes.append(f'{layer.type} "{layer.name}": relu became ReLU "{made[0].name}"')
    return made


def schema_fields(message: Any) -> set[str]:
    """The names of a message's fields."""
    return {field.name for field in message.DESCRIPTOR.fields}
