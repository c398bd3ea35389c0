"""The texts and styles of pycaffe's drawings, for scripts that build their graphs."""

from __future__ import annotations

from typing import Any

from ... import schema
from ...layers import DataLayer, layer_class
from .boxes import COLOURS, family

LAYER_STYLE_DEFAULT = {"shape": "record", "fillcolor": "#6495ED", "style": "filled"}
NEURON_LAYER_STYLE = {"shape": "record", "fillcolor": "#90EE90", "style": "filled"}
BLOB_STYLE = {"shape": "octagon", "fillcolor": "#E0E0E0", "style": "filled"}


def get_pooling_types_dict() -> dict[int, str]:
    """Names of pooling methods by their numbers."""
    return {number: name for name, number in schema.PoolingParameter.PoolMethod.items()}


def get_edge_label(layer: Any) -> str:
    """What an arrow to a layer's top says: how many channels, or the batch; else two quotes."""
    kind = layer_class(layer.type)
    if issubclass(kind, DataLayer):
        return f"Batch {kind.batch_size(layer) or 0}"
    return str(kind.outputs(layer) or '""')


def get_layer_lr_mult(layer: Any) -> str:
    """The rates of a layer with weights, as "lr mult: 1.0, 2.0"; else nothing."""
    if not layer_class(layer.type).outputs(layer):
        return ""
    rates = [spec.lr_mult for spec in layer.param] or [1.0]
    return f"lr mult: {', '.join(f'{rate:.1f}' for rate in rates)}"


def get_layer_label(layer: Any, rankdir: str, display_lrm: bool = False) -> str:
    """Name, type and window in quotes: on one line where ranks lie below each other."""
    own = layer_class(layer.type).own_param(layer)
    pools = isinstance(own, schema.PoolingParameter)
    method = f"{get_pooling_types_dict()[own.pool]} " if pools else ""
    parts = [layer.name, f"({method}{layer.type})"]
    if pools or isinstance(own, schema.ConvolutionParameter):
        parts += _window(own)
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
    return COLOURS[family(schema.LayerParameter(type=layertype, bottom=["any"]))]
