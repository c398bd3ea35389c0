"""Forks' dialects of Caffe in BVLC's own terms."""

from __future__ import annotations

from typing import Any

from .. import schema
from ..errors import ConvertError
from ..schema.bvlc import BVLC_TYPES
from ..schema.messages import fields_of
from .dialects import FORK_FIELDS
from .model import Model
from .prune import with_layers

_WITH_RELU = {
    "Convolution": "convolution_param",
    "DepthwiseConvolution": "convolution_param",
    "ConvolutionDepthwise": "convolution_param",
    "Deconvolution": "convolution_param",
    "InnerProduct": "inner_product_param",
    "BatchNorm": "batch_norm_param",
}
_INTEL = 3  # Engine numbers from here on are Intel's


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
    param = getattr(layer, _WITH_RELU.get(layer.type, ""), None)
    if param is None or not param.relu:
        return []
    slope = float(getattr(param, "negative_slope", 0.0))
    for field in ("relu", "negative_slope"):
        if field in fields_of(param):
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


def to_bvlc(model: Model) -> Model:
    """The model in the layers and fields of Caffe 1.0; what cannot be is named all at once."""
    model = plain_enough(model)
    weights = {name: list(blobs) for name, blobs in model.weights.items()}
    notes: list[str] = []
    layers: list[Any] = []
    for original in model.param.layer:
        layer = schema.LayerParameter()
        layer.CopyFrom(original)
        made = _PLAIN[layer.type](layer, weights) if layer.type in _PLAIN else [layer]
        if made != [original]:
            kinds = " and ".join(each.type for each in made)
            notes.append(f'{original.type} "{original.name}" became {kinds}')
        layers += made
    strange = [layer for layer in layers if layer.type not in BVLC_TYPES]
    if strange:
        names = ", ".join(f'"{layer.name}" ({layer.type})' for layer in strange)
        raise ConvertError(f"Caffe 1.0 has no layers for {names}")
    for layer in layers:
        _drop_fields(layer, f'layer "{layer.name}"', notes)
    made_model = with_layers(
        Model(model.param, weights, model.source, model.weights_source), layers
    )  # fmt: skip
    _drop_fields(made_model.param, "the net", notes, deep=False)
    made_model.notes = [*model.notes, *notes]
    return made_model


def _depthwise(layer: Any, weights: dict[str, list[Any]]) -> list[Any]:
    layer.type = "Convolution"
    return [layer]


def _relu6(layer: Any, weights: dict[str, list[Any]]) -> list[Any]:
    layer.type = "Clip"
    layer.clip_param.min, layer.clip_param.max = 0, 6
    return [layer]


def _bn(layer: Any, weights: dict[str, list[Any]]) -> list[Any]:
    """PSPNet's BN: its statistics in a BatchNorm, its scale and shift in a Scale."""
    blobs = weights.get(layer.name, [])
    if len(blobs) != 4:
        return [layer]
    norm = schema.LayerParameter(
        name=layer.name, type="BatchNorm", bottom=layer.bottom, top=layer.top
    )
    norm.batch_norm_param.eps = layer.bn_param.eps
    scale = schema.LayerParameter(
        name=f"{layer.name}_scale", type="Scale", bottom=layer.top, top=layer.top
    )
    scale.scale_param.bias_term = True
    mean, variance = (blob.reshape(-1) for blob in blobs[2:])
    weights[layer.name] = [mean, variance, 0 * mean[:1] + 1]
    weights[scale.name] = [blob.reshape(-1) for blob in blobs[:2]]
    return [norm, scale]


def _axpy(layer: Any, weights: dict[str, list[Any]]) -> list[Any]:
    """a x + y: x flattened factors by a Scale with two bottoms, then a sum."""
    flat, product = f"{layer.name}_factors", f"{layer.name}_product"
    factors = schema.LayerParameter(name=flat, type="Flatten", bottom=layer.bottom[:1], top=[flat])
    scale = schema.LayerParameter(
        name=product, type="Scale", bottom=[layer.bottom[1], flat], top=[product]
    )
    scale.scale_param.axis = 0
    total = schema.LayerParameter(
        name=layer.name, type="Eltwise", bottom=[product, layer.bottom[2]], top=layer.top
    )
    return [factors, scale, total]


_PLAIN = {
    "ConvolutionDepthwise": _depthwise,
    "DepthwiseConvolution": _depthwise,
    "ReLU6": _relu6,
    "BN": _bn,
    "Axpy": _axpy,
}


def _drop_fields(message: Any, where: str, notes: list[str], deep: bool = True) -> None:
    """Clear what only forks read, with a line for each field."""
    name = message.DESCRIPTOR.name
    for field in FORK_FIELDS.get(name, ()):
        known = fields_of(message)[field]
        given = len(getattr(message, field)) if known.repeated else message.HasField(field)
        if given:
            message.ClearField(field)
            notes.append(f"{where}: {field} dropped: only forks know it")
    engine = fields_of(message).get("engine")
    if engine is not None and engine.kind == "enum" and message.engine >= _INTEL:
        message.ClearField("engine")
        notes.append(f"{where}: engine dropped: only Intel Caffe knows it")
    for field, value in message.ListFields() if deep else ():
        kind = fields_of(message)[field.name]
        if kind.kind == "message":
            for each in value if kind.repeated else [value]:
                _drop_fields(each, where, notes)
