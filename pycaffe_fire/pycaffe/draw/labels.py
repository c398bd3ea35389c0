"""The texts and styles of pycaffe's drawings, for scripts that build graphs of their own."""

from __future__ import annotations

from typing import Any

from ... import schema
from .boxes import COLOURS, family

LAYER_STYLE_DEFAULT = {"shape": "record", "fillcolor": "#6495ED", "style": "filled"}
NEURON_LAYER_STYLE = {"shape": "record", "fillcolor": "#90EE90", "style": "filled"}
BLOB_STYLE = {"shape": "octagon", "fillcolor": "#E0E0E0", "style": "filled"}
_WINDOWED = {"Convolution", "Deconvolution", "DepthwiseConvolution"}


def get_pooling_types_dict() -> dict[int, str]:
    """Names of pooling methods by their numbers."""
    return {number: name for name, number in schema.PoolingParameter.PoolMethod.items()}


def get_edge_label(layer: Any) -> str:
    """What an arrow to a layer's top says: how many channels, or the batch; else two quotes."""
    if layer.type in _WINDOWED:
        return str(layer.convolution_param.num_output)
    if layer.type == "InnerProduct":
        return str(layer.inner_product_param.num_output)
    return f"Batch {layer.data_param.batch_size}" if layer.type == "Data" else '""'


def get_layer_lr_mult(layer: Any) -> str:
    """The rates of a layer with weights, as "lr mult: 1.0, 2.0"; else nothing."""
    if layer.type not in (*_WINDOWED, "InnerProduct"):
        return ""
    rates = [spec.lr_mult for spec in layer.param] or [1.0]
    return f"lr mult: {', '.join(f'{rate:.1f}' for rate in rates)}"


def get_layer_label(layer: Any, rankdir: str, display_lrm: bool = False) -> str:
    """Name, type and window in quotes: on one line where ranks lie below each other."""
    kind = layer.type
    parts = [layer.name]
    if kind in _WINDOWED:
        parts += [f"({kind})", *_window(layer.convolution_param)]
    elif kind == "Pooling":
        method = get_pooling_types_dict()[layer.pooling_param.pool]
        parts += [f"({method} {kind})", *_window(layer.pooling_param)]
    else:
        parts.append(f"({kind})")
    rates = get_layer_lr_mult(layer) if display_lrm else ""
    separator = " " if rankdir in ("TB", "BT") else "\\n"
    return '"' + separator.join(parts + [rates] * bool(rates)) + '"'


def _window(param: Any) -> list[str]:
    """Kernel, stride and pad: one number, or one for each axis."""

    def sizes(field: str, usual: int) -> str:
        stem = field.removesuffix("_size")
        if param.HasField(f"{stem}_h") or param.HasField(f"{stem}_w"):
            return f"{getattr(param, f'{stem}_h')}x{getattr(param, f'{stem}_w')}"
        given = getattr(param, field)
        listed = [given] if isinstance(given, int) else list(given) or [usual]
        return "x".join(map(str, listed))

    return [
        f"kernel size: {sizes('kernel_size', 1)}",
        f"stride: {sizes('stride', 1)}",
        f"pad: {sizes('pad', 0)}",
    ]


def choose_color_by_layertype(layertype: str) -> str:
    """The colour of a layer's box."""
    return COLOURS[family(schema.LayerParameter(type=layertype))]
