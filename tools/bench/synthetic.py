"""A train_val net on made-up data, and the same net as plain steps that need no protobuf.

Only messages are handled here; the contenders build their nets from what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from timing import BenchError

from pycaffe_fire import schema
from pycaffe_fire.layers import DataLayer, layer_class
from pycaffe_fire.net.graph import filter_net

# In-place ReLU is open to PyTorch where the layer before does not keep its output for backward.
FREE_OUTPUT = {"convolution", "deconvolution", "inner_product", "batch_norm"}


# Made-up data.


def synthetic_net(path: str, batch: int | None, shape: Sequence[int] | None) -> Any:
    """The TRAIN net of a prototxt with Input layers in place of its data layers."""
    net = schema.read_net(path)
    net.state.phase = schema.TRAIN
    net = filter_net(net)
    for layer in net.layer:
        kind = layer_class(layer.type)
        if issubclass(kind, DataLayer):
            _replace(layer, kind, path, batch, shape)
        elif layer.type == "DummyData" and layer.dummy_data_param.shape:
            shapes = [list(each.dim) for each in layer.dummy_data_param.shape]
            _become_input(layer, shapes, batch)
        elif layer.type == "Input":
            _become_input(layer, [list(each.dim) for each in layer.input_param.shape], batch)
    return net


def batch_of(net: Any) -> int:
    """The batch size of a synthetic net."""
    for layer in net.layer:
        if layer.type == "Input" and layer.input_param.shape:
            return int(layer.input_param.shape[0].dim[0])
    raise BenchError("the net has no data layer and no Input layer with a shape to feed")


def without_dropout(net: Any) -> Any:
    """The net with its Dropout layers cut out, so that two libraries can agree on the loss."""
    result = schema.NetParameter()
    result.CopyFrom(net)
    del result.layer[:]
    stands_for: dict[str, str] = {}
    for layer in net.layer:
        if layer.type == "Dropout":
            source = layer.bottom[0]
            stands_for[layer.top[0]] = stands_for.get(source, source)
            continue
        kept = result.layer.add()
        kept.CopyFrom(layer)
        for i, name in enumerate(kept.bottom):
            kept.bottom[i] = stands_for.get(name, name)
        for name in kept.top:
            if name not in kept.bottom:
                stands_for.pop(name, None)
    return result


def _replace(
    layer: Any, kind: type[DataLayer], path: str, batch: int | None, shape: Sequence[int] | None
) -> None:
    size = batch or kind.batch_size(layer)
    if not size:
        raise BenchError(f'{path}: layer "{layer.name}" names no batch_size; give --batch')
    image = shape or kind.image_shape(layer)
    if not image:
        raise BenchError(
            f'{path}: layer "{layer.name}" ({layer.type}) has no crop_size, so the size of its '
            f"images is unknown; give --shape, for example --shape 1,28,28"
        )
    _become_input(layer, [[size, *image], *[[size]] * (len(layer.top) - 1)], None)


def _become_input(layer: Any, shapes: list[list[int]], batch: int | None) -> None:
    made = schema.LayerParameter(name=layer.name, type="Input", top=layer.top)
    for first, *rest in shapes:
        made.input_param.shape.add(dim=[batch or first, *rest])
    layer.CopyFrom(made)


# The net as steps for PyTorch.


def steps(net: Any, weights: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """What PyTorch has to do, in order: kind, bottoms, top, options and where the weights lie."""
    result: list[dict[str, Any]] = []
    makers: dict[str, str] = {}
    for layer in net.layer:
        if layer.type in ("Accuracy", "Silence", "Input"):
            continue
        if layer.type not in _READERS:
            raise BenchError(
                f'layer "{layer.name}" ({layer.type}): the PyTorch side does not know this type; '
                f"it knows {', '.join(sorted(_READERS))}"
            )
        for made in _read(layer, weights.get(layer.name, [])):
            if _joins_batch_norm(made, result, net):
                result[-1]["weights"], result[-1]["top"] = made["weights"], made["top"]
            else:
                made["in_place"] &= makers.get(made["bottoms"][0]) in FREE_OUTPUT
                result.append(made)
            makers[made["top"]] = result[-1]["kind"]
    return result


def _read(layer: Any, weights: list[Any]) -> list[dict[str, Any]]:
    """Steps of a layer; a layer that maps several bottoms to as many tops makes several."""
    kind, options = _READERS[layer.type](layer)
    pairs: list[tuple[list[str], str]] = [(list(layer.bottom), layer.top[0] if layer.top else "")]
    if layer.type in ("Convolution", "Deconvolution"):
        pairs = [([b], t) for b, t in zip(layer.bottom, layer.top, strict=True)]
    if kind == "batch_norm":
        weights = []  # Caffe's blobs there are running statistics
    return [
        {
            "kind": kind, "name": layer.name, "bottoms": bottoms, "top": top,
            "options": options, "weights": weights, "in_place": bottoms == [top],
        }
        for bottoms, top in pairs
    ]  # fmt: skip


def _joins_batch_norm(made: dict[str, Any], before: list[dict[str, Any]], net: Any) -> bool:
    """PyTorch's batch norm does Caffe's BatchNorm and the Scale behind it in one go."""
    if made["kind"] != "scale" or not before or before[-1]["kind"] != "batch_norm":
        return False
    blob = before[-1]["top"]
    readers = sum(blob in layer.bottom for layer in net.layer)
    return made["bottoms"] == [blob] and (made["top"] == blob or readers == 1)


Options = tuple[str, dict[str, Any]]


def _pair(param: Any, field: str, default: int) -> list[int]:
    """A size per axis, from the field or from its _h and _w forms."""
    stem = field.removesuffix("_size")
    if field != "dilation" and (param.HasField(f"{stem}_h") or param.HasField(f"{stem}_w")):
        return [getattr(param, f"{stem}_h"), getattr(param, f"{stem}_w")]
    value = getattr(param, field)
    if isinstance(value, int):  # Pooling's fields are single
        return [value if param.HasField(field) else default] * 2
    values = [int(v) for v in value] or [default]
    return values if len(values) == 2 else values * 2


def _window(param: Any) -> dict[str, Any]:
    return {
        "stride": _pair(param, "stride", 1),
        "padding": _pair(param, "pad", 0),
        "dilation": _pair(param, "dilation", 1),
        "groups": param.group,
    }


def _convolution(layer: Any) -> Options:
    return "convolution", _window(layer.convolution_param)


def _deconvolution(layer: Any) -> Options:
    return "deconvolution", _window(layer.convolution_param)


def _inner_product(layer: Any) -> Options:
    param = layer.inner_product_param
    return "inner_product", {"axis": param.axis, "transpose": param.transpose}


def _pooling(layer: Any) -> Options:
    param = layer.pooling_param
    if param.pool not in (param.MAX, param.AVE):
        raise BenchError(f'layer "{layer.name}": PyTorch has no STOCHASTIC pooling to compare with')
    kind = "max_pool" if param.pool == param.MAX else "average_pool"
    if param.global_pooling:
        return f"global_{kind}", {}
    return kind, {
        "kernel_size": _pair(param, "kernel_size", 1),
        "stride": _pair(param, "stride", 1),
        "padding": _pair(param, "pad", 0),
        "ceil_mode": param.round_mode != param.FLOOR,
    }


def _lrn(layer: Any) -> Options:
    param = layer.lrn_param
    kind = "lrn_across" if param.norm_region == param.ACROSS_CHANNELS else "lrn_within"
    return kind, {
        "size": param.local_size, "alpha": param.alpha, "beta": param.beta, "k": param.k
    }  # fmt: skip


def _loss(layer: Any) -> Options:
    param = layer.loss_param
    mode = param.normalization
    if param.HasField("normalize") and not param.HasField("normalization"):  # the old form
        mode = param.VALID if param.normalize else param.BATCH_SIZE
    if mode == param.PRE_FIXED:
        raise BenchError(f'layer "{layer.name}": the PyTorch side has no PRE_FIXED normalization')
    return "softmax_loss", {
        "axis": layer.softmax_param.axis,
        "ignore": param.ignore_label if param.HasField("ignore_label") else None,
        "normalization": schema.LossParameter.NormalizationMode.Name(mode),
        "weight": layer.loss_weight[0] if layer.loss_weight else 1.0,
    }


def _eltwise(layer: Any) -> Options:
    param = layer.eltwise_param
    return "eltwise", {
        "operation": {param.PROD: "prod", param.SUM: "sum", param.MAX: "max"}[param.operation],
        "coefficients": list(param.coeff),
    }


_READERS: dict[str, Callable[[Any], Options]] = {
    "Convolution": _convolution,
    "Deconvolution": _deconvolution,
    "InnerProduct": _inner_product,
    "Pooling": _pooling,
    "ReLU": lambda layer: ("relu", {"slope": layer.relu_param.negative_slope}),
    "LRN": _lrn,
    "Dropout": lambda layer: ("dropout", {"ratio": layer.dropout_param.dropout_ratio}),
    "Concat": lambda layer: ("concat", {"axis": layer.concat_param.axis}),
    "BatchNorm": lambda layer: ("batch_norm", {"eps": layer.batch_norm_param.eps}),
    "Scale": lambda layer: ("scale", {"axis": layer.scale_param.axis}),
    "Eltwise": _eltwise,
    "SoftmaxWithLoss": _loss,
}
