"""Fields of other Caffes that say what Caffe says otherwise: written as Caffe's own layers and
fields, so that nothing beyond this file has to know them.

    convolution_param, inner_product_param, batch_norm_param { relu: true }   a ReLU layer after it
    convolution_param { fusion_type: SUM_FUSION }    an Eltwise layer after it, over both bottoms
    convolution_param { hole, filter_stride }        dilation
    bn_stats_batch_size of a net                     batch_norm_param { stats_batch_size }
    pooling_param { ceil_mode, torch_pooling }       round_mode
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import PrototxtError
from .messages import CLASSES
from .proto import LayerParameter, NetParameter

_DILATIONS = ("hole", "filter_stride")


def translate(net: NetParameter, where: str) -> None:
    """Rewrite the net in place; nothing changes in a net that has no such field."""
    if net.bn_stats_batch_size:
        _spread_stats_batch_size(net)
    written: list[LayerParameter] = []
    for layer in net.layer:
        if layer.HasField("convolution_param"):
            _rename_dilation(layer, where)
        if layer.HasField("pooling_param"):
            _set_rounding(layer, where)
        tops = list(layer.top)
        written += [layer, *_sum_after(layer, where), *_relus_after(layer, tops)]
    if len(written) > len(net.layer):
        copies = [_copy(layer) for layer in written]
        del net.layer[:]
        net.layer.extend(copies)


def _spread_stats_batch_size(net: NetParameter) -> None:
    for layer in net.layer:
        if layer.type == "BatchNorm" and not layer.batch_norm_param.HasField("stats_batch_size"):
            layer.batch_norm_param.stats_batch_size = net.bn_stats_batch_size
    net.ClearField("bn_stats_batch_size")


def _copy(layer: LayerParameter) -> LayerParameter:
    copy: LayerParameter = CLASSES["LayerParameter"]()
    copy.CopyFrom(layer)
    return copy


def _fail(layer: LayerParameter, where: str, what: str) -> PrototxtError:
    return PrototxtError(f'{where}: layer "{layer.name}" ({layer.type}): {what}')


def _rename_dilation(layer: LayerParameter, where: str) -> None:
    param: Any = layer.convolution_param
    given = [name for name in ("dilation", *_DILATIONS) if getattr(param, name)]
    by_axis = param.HasField("hole_h") or param.HasField("hole_w")
    given += ["hole_h and hole_w"] * by_axis
    if len(given) > 1:
        raise _fail(layer, where, f"{' and '.join(given)} mean the same; keep dilation alone")
    for name in _DILATIONS:
        param.dilation.extend(getattr(param, name))
    if by_axis:
        param.dilation.extend([param.hole_h or 1, param.hole_w or 1])
    for name in (*_DILATIONS, "hole_h", "hole_w"):
        param.ClearField(name)


def _set_rounding(layer: LayerParameter, where: str) -> None:
    param: Any = layer.pooling_param
    floor = {
        "ceil_mode": param.HasField("ceil_mode") and not param.ceil_mode,
        "torch_pooling": param.torch_pooling,
        "round_mode": param.round_mode == type(param).FLOOR,
    }
    given = [name for name in floor if param.HasField(name)]
    if len({floor[name] for name in given}) > 1:
        raise _fail(layer, where, f"{' and '.join(given)} contradict each other; keep round_mode")
    if any(floor.values()):
        param.round_mode = type(param).FLOOR
    param.ClearField("ceil_mode")
    param.ClearField("torch_pooling")


def _sum_after(layer: LayerParameter, where: str) -> list[LayerParameter]:
    param: Any = layer.convolution_param
    if param.fusion_type != type(param).SUM_FUSION:
        if param.coeff:
            raise _fail(layer, where, "convolution_param.coeff goes with fusion_type: SUM_FUSION")
        return []
    if len(layer.bottom) != 2 or len(layer.top) != 1 or len(set(param.coeff)) > 1:
        raise _fail(
            layer, where,
            "fusion_type: SUM_FUSION needs two bottoms, one top and equal coeff; write an Eltwise "
            "layer after it instead",
        )  # fmt: skip
    other = layer.bottom.pop()
    made = _after(layer, "Eltwise", "_sum")
    made.top.append(layer.top[0])
    layer.top[0] = f"{layer.name}_unsummed"
    made.bottom.extend([layer.top[0], other])
    made.eltwise_param.coeff.extend(param.coeff)
    param.ClearField("fusion_type")
    param.ClearField("coeff")
    return [made]


def _relus_after(layer: LayerParameter, tops: Sequence[str]) -> list[LayerParameter]:
    """One in-place ReLU for each top of a layer that is to rectify."""
    params: list[Any] = [layer.convolution_param, layer.inner_product_param, layer.batch_norm_param]
    asking = next((param for param in params if param.relu), None)
    if asking is None:
        return []
    made = []
    for top in tops:
        relu = _after(layer, "ReLU", "_relu" if len(tops) == 1 else f"_relu_{top}")
        relu.bottom.append(top)
        relu.top.append(top)
        slope = getattr(asking, "negative_slope", 0.0)
        if slope:
            relu.relu_param.negative_slope = slope
        made.append(relu)
    for name in ("relu", "negative_slope"):
        if hasattr(asking, name):
            asking.ClearField(name)
    return made


def _after(layer: LayerParameter, kind: str, suffix: str) -> LayerParameter:
    """A new layer that is there when `layer` is."""
    made: LayerParameter = CLASSES["LayerParameter"](name=f"{layer.name}{suffix}", type=kind)
    made.include.extend(layer.include)
    made.exclude.extend(layer.exclude)
    return made
