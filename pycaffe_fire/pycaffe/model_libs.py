"""SSD's building blocks for NetSpecs, under the names by which its scripts call them.

A body (VGGNetBody, ResNet101Body, ...) adds its layers to a NetSpec after a given one;
CreateMultiBoxHead adds the predictions and default boxes of SSD on top of some of them. Scripts
take L, P and caffe_pb2 from here, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .. import schema
from .net_spec import NetSpec, Top
from .net_spec import layers as L
from .net_spec import params as P  # noqa: F401 (scripts import all names from here)
from .proto import caffe_pb2 as caffe_pb2

_MAX, _AVE = schema.PoolingParameter.MAX, schema.PoolingParameter.AVE
_FIXED = {"lr_mult": 0, "decay_mult": 0}
Sizes = int | list[int]
Tower = list[dict[str, Any]]


def check_if_exist(path: str) -> bool:
    return os.path.exists(path)


def make_if_not_exist(path: str) -> None:
    os.makedirs(path, exist_ok=True)


def UnpackVariable(var: Any, num: int) -> list[Any]:
    """`num` values: `var` itself if it is a list of as many, else its one value repeated."""
    values = var if isinstance(var, list) else [var]
    if len(values) not in (1, num):
        raise ValueError(f"expected 1 or {num} values, got {len(values)}: {values}")
    return values if len(values) == num else values * num


def _plain(lr_mult: float = 1) -> dict[str, Any]:
    """Of a convolution with a bias."""
    return {
        "param": [
            {"lr_mult": lr_mult, "decay_mult": 1},
            {"lr_mult": 2 * lr_mult, "decay_mult": 0},
        ],
        "weight_filler": {"type": "xavier"},
        "bias_filler": {"type": "constant", "value": 0},
    }


def _window(kernel_size: Sizes, pad: Sizes, stride: Sizes) -> dict[str, int]:
    """Fields of a convolution; height and width apart only where they differ."""
    found = {}
    kernel = UnpackVariable(kernel_size, 2)
    for name, value in (("kernel_size", kernel_size), ("pad", pad), ("stride", stride)):
        height, width = UnpackVariable(value, 2)
        if kernel[0] == kernel[1]:
            found[name] = height
        else:
            stem = name.removesuffix("_size")
            found |= {f"{stem}_h": height, f"{stem}_w": width}
    return found


def ConvBNLayer(
    net: NetSpec, from_layer: str, out_layer: str, use_bn: bool, use_relu: bool, num_output: int,
    kernel_size: Sizes, pad: Sizes, stride: Sizes, dilation: int = 1, use_scale: bool = True,
    lr_mult: float = 1, conv_prefix: str = "", conv_postfix: str = "", bn_prefix: str = "",
    bn_postfix: str = "_bn", scale_prefix: str = "", scale_postfix: str = "_scale",
    bias_prefix: str = "", bias_postfix: str = "_bias", **bn_params: Any,
) -> None:  # fmt: skip
    """A convolution with a bias, or with BatchNorm and Scale (or Bias) in place; and a ReLU."""
    params = _plain(lr_mult)
    if use_bn:
        params = {
            "param": [{"lr_mult": lr_mult, "decay_mult": 1}],
            "weight_filler": {"type": "gaussian", "std": 0.01},
            "bias_term": False,
        }
    name = f"{conv_prefix}{out_layer}{conv_postfix}"
    params |= {"num_output": num_output, **_window(kernel_size, pad, stride)}
    if dilation > 1:
        params["dilation"] = dilation
    net[name] = L.Convolution(net[from_layer], **params)
    if use_bn:
        bn_name = f"{bn_prefix}{out_layer}{bn_postfix}"
        scaled = use_scale, f"{scale_prefix}{out_layer}{scale_postfix}"
        biased = f"{bias_prefix}{out_layer}{bias_postfix}"
        _add_batch_norm(net, name, bn_name, *scaled, biased, lr_mult, bn_params)
    if use_relu:
        net[f"{name}_relu"] = L.ReLU(net[name], in_place=True)


def _add_batch_norm(
    net: NetSpec, conv: str, bn: str, use_scale: bool, scale: str, bias: str, lr_mult: float,
    given: dict[str, Any],
) -> None:  # fmt: skip
    params: dict[str, Any] = {"param": [dict(_FIXED) for _ in range(3)]}
    params["eps"] = given.get("eps", 0.001)
    if given.get("use_global_stats", False):
        params["use_global_stats"], lr_mult = True, 0
    else:
        params["moving_average_fraction"] = given.get("moving_average_fraction", 0.999)
    net[bn] = L.BatchNorm(net[conv], in_place=True, **params)
    learned = {"lr_mult": lr_mult, "decay_mult": 0}
    zero = {"type": "constant", "value": 0}
    if use_scale:
        net[scale] = L.Scale(
            net[bn], in_place=True, bias_term=True, param=[learned, dict(learned)],
            filler={"type": "constant", "value": 1}, bias_filler=zero,
        )  # fmt: skip
    else:
        net[bias] = L.Bias(net[bn], in_place=True, param=[learned], filler=zero)


def ResBody(
    net: NetSpec, from_layer: str, block_name: str, out2a: int, out2b: int, out2c: int,
    stride: int, use_branch1: bool, dilation: int = 1, **bn_param: Any,
) -> None:  # fmt: skip
    """A bottleneck of ResNet: 1x1, 3x3 and 1x1, added to its input or to a 1x1 of it."""
    names = {
        "conv_prefix": f"res{block_name}_", "bn_prefix": f"bn{block_name}_", "bn_postfix": "",
        "scale_prefix": f"scale{block_name}_", "scale_postfix": "", **bn_param,
    }  # fmt: skip

    def add(source: str, branch: str, outputs: int, kernel: int, relu: bool, **more: Any) -> str:
        more = {"pad": 0, "stride": 1, **more}
        ConvBNLayer(net, source, branch, True, relu, outputs, kernel, **more, **names)
        return f"res{block_name}_{branch}"

    straight = from_layer
    if use_branch1:
        straight = add(from_layer, "branch1", out2c, 1, False, stride=stride)
    last = add(from_layer, "branch2a", out2a, 1, True, stride=stride)
    last = add(last, "branch2b", out2b, 3, True, pad=dilation, dilation=dilation)
    last = add(last, "branch2c", out2c, 1, False)
    name = f"res{block_name}"
    net[name] = L.Eltwise(net[straight], net[last])
    net[f"{name}_relu"] = L.ReLU(net[name], in_place=True)


def _resnet_body(
    net: NetSpec, from_layer: str, third: int, fourth: int, use_pool5: bool, dilated: bool,
    bn_param: dict[str, Any],
) -> NetSpec:  # fmt: skip
    """ResNet's five stages with so many blocks in the third and fourth."""
    ConvBNLayer(
        net, from_layer, "conv1", True, True, 64, 7, 3, 2,
        bn_prefix="bn_", bn_postfix="", scale_prefix="scale_", scale_postfix="", **bn_param,
    )  # fmt: skip
    net.pool1 = L.Pooling(net.conv1, pool=_MAX, kernel_size=3, stride=2)
    last = "pool1"
    lettered = {2: "abc", 5: "abc"}
    for stage, blocks in ((2, 3), (3, third), (4, fourth), (5, 3)):
        width = 64 << (stage - 2)
        held = dilated and stage == 5
        for block in range(blocks):
            ending = lettered[stage][block] if stage in lettered else f"b{block}" if block else "a"
            stride = 1 if block or stage == 2 or held else 2
            ResBody(
                net, last, f"{stage}{ending}", width, width, 4 * width, stride, not block,
                dilation=2 if held else 1, **bn_param,
            )  # fmt: skip
            last = f"res{stage}{ending}"
    if use_pool5:
        net.pool5 = L.Pooling(net[last], pool=_AVE, global_pooling=True)
    return net


def ResNet101Body(
    net: NetSpec, from_layer: str, use_pool5: bool = True, use_dilation_conv5: bool = False,
    **bn_param: Any,
) -> NetSpec:  # fmt: skip
    return _resnet_body(net, from_layer, 4, 23, use_pool5, use_dilation_conv5, bn_param)


def ResNet152Body(
    net: NetSpec, from_layer: str, use_pool5: bool = True, use_dilation_conv5: bool = False,
    **bn_param: Any,
) -> NetSpec:  # fmt: skip
    return _resnet_body(net, from_layer, 8, 36, use_pool5, use_dilation_conv5, bn_param)


def _add_relu(net: NetSpec, source: str, name: str) -> None:
    net[name] = L.ReLU(net[source], in_place=True)


def _add_dense(
    net: NetSpec, from_layer: str, fully_conv: bool, outputs: int, kernel: dict[str, int],
    dropout: bool,
) -> None:  # fmt: skip
    """fc6 and fc7, as convolutions or inner products."""
    for number, window in ((6, kernel), (7, {"kernel_size": 1})):
        name = f"fc{number}"
        if fully_conv:
            net[name] = L.Convolution(net[from_layer], num_output=outputs, **window, **_plain())
        else:
            net[name] = L.InnerProduct(net[from_layer], num_output=4096)
        _add_relu(net, name, f"relu{number}")
        if dropout:
            net[f"drop{number}"] = L.Dropout(net[f"relu{number}"], dropout_ratio=0.5, in_place=True)
        from_layer = f"relu{number}"


def _freeze(net: NetSpec, names: Sequence[str]) -> NetSpec:
    for name in names:
        if name in net:
            net.update(name, {**_plain(), "param": [dict(_FIXED), dict(_FIXED)]})
    return net


def _kernel(size: int, dilation: int) -> dict[str, int]:
    """A window that keeps the size of the image."""
    found = {"kernel_size": size, "pad": (size - 1) * dilation // 2}
    return found | {"dilation": dilation} if dilation > 1 else found


def VGGNetBody(
    net: NetSpec, from_layer: str, need_fc: bool = True, fully_conv: bool = False,
    reduced: bool = False, dilated: bool = False, nopool: bool = False, dropout: bool = True,
    freeze_layers: Sequence[str] = (), dilate_pool4: bool = False,
) -> NetSpec:  # fmt: skip
    """VGG-16; `fully_conv` and `reduced` give SSD's: fc6 and fc7 as convolutions of 1,024."""
    last, dilation = net[from_layer], 1
    for stage, (width, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for i in range(1, count + 1):
            window = _kernel(3, dilation)
            net[f"conv{stage}_{i}"] = L.Convolution(last, num_output=width, **window, **_plain())
            _add_relu(net, f"conv{stage}_{i}", f"relu{stage}_{i}")
            last = net[f"relu{stage}_{i}"]
        if stage == 5 and not need_fc:
            break
        held = dilated if stage == 5 else stage == 4 and dilate_pool4
        if nopool:
            name = f"conv{stage}_{count + 1}"
            stride = 1 if stage == 5 and dilated else 2
            window = {"kernel_size": 3, "pad": 1, "stride": stride}
            net[name] = L.Convolution(last, num_output=width, **window, **_plain())
        else:
            name = f"pool{stage}"
            window = {"kernel_size": 2, "stride": 2}
            if held:
                window = {"kernel_size": 3, "stride": 1, "pad": 1}
            net[name] = L.Pooling(last, pool=_MAX, **window)
            if held and stage == 4:
                dilation = 2
        last = net[name]
    if need_fc:
        outputs, size = (1024, 3) if reduced else (4096, 7)
        if dilated:
            dilation *= 6 if reduced else 2
        elif reduced:
            dilation *= 3
        _add_dense(net, name, fully_conv, outputs, _kernel(size, dilation), dropout)
    return _freeze(net, freeze_layers)


def ZFNetBody(
    net: NetSpec, from_layer: str, need_fc: bool = True, fully_conv: bool = False,
    reduced: bool = False, dilated: bool = False, dropout: bool = True, need_fc8: bool = False,
    freeze_layers: Sequence[str] = (),
) -> NetSpec:  # fmt: skip
    """Zeiler and Fergus's net."""
    last = net[from_layer]
    norm = {"local_size": 3, "alpha": 0.00005, "beta": 0.75,
            "norm_region": schema.LRNParameter.WITHIN_CHANNEL}  # fmt: skip
    for i, (width, size, pad, stride) in enumerate(
        ((96, 7, 3, 2), (256, 5, 2, 2), (384, 3, 1, 1), (384, 3, 1, 1), (256, 3, 1, 1)), 1
    ):
        window = {"kernel_size": size, "pad": pad, **({"stride": stride} if stride > 1 else {})}
        net[f"conv{i}"] = L.Convolution(last, num_output=width, **window, **_plain())
        _add_relu(net, f"conv{i}", f"relu{i}")
        last = net[f"relu{i}"]
        if i < 3:
            net[f"norm{i}"] = L.LRN(last, **norm)
            net[f"pool{i}"] = L.Pooling(net[f"norm{i}"], pool=_MAX, pad=1, kernel_size=3, stride=2)
            last = net[f"pool{i}"]
    if need_fc:
        stride = 1 if dilated else 2
        net.pool5 = L.Pooling(last, pool=_MAX, pad=1, kernel_size=3, stride=stride)
        outputs, size = (1024, 3) if reduced else (4096, 6)
        dilation = (5 if reduced else 2) if dilated else 2 if reduced else 1
        window = _kernel(size, dilation) | {"pad": 5 if dilated else 2}
        _add_dense(net, "pool5", fully_conv, outputs, window, dropout)
    if need_fc8:
        source = net[net.keys()[-1]]
        if fully_conv:
            net.fc8 = L.Convolution(source, num_output=1000, kernel_size=1, **_plain())
        else:
            net.fc8 = L.InnerProduct(source, num_output=1000)
        net.prob = L.Softmax(net.fc8)
    return _freeze(net, freeze_layers)


def InceptionTower(
    net: NetSpec, from_layer: str, tower_name: str, layer_params: Tower, **bn_param: Any
) -> Top:
    """A row of convolutions with BatchNorm, and poolings (by their name); returns its last top."""
    for given in layer_params:
        params = dict(given)
        name = f"{tower_name}/{params.pop('name')}"
        if "pool" in name:
            net[name] = L.Pooling(net[from_layer], **params)
        else:
            ConvBNLayer(
                net, from_layer, name, use_bn=True, use_relu=True, use_scale=False,
                **params, **bn_param,
            )  # fmt: skip
        from_layer = name
    last: Top = net[from_layer]
    return last


_ROW, _COLUMN = [1, 7], [7, 1]


def _pool(pool: int, stride: int) -> dict[str, Any]:
    return {"name": "pool", "pool": pool, "kernel_size": 3, "stride": stride, "pad": 2 - stride}


def _conv(outputs: int, kernel: Sizes, stride: int = 1) -> dict[str, Any]:
    """One that keeps the size of its input, or with a stride one that does not pad."""
    found: dict[str, Any] = {"num_output": outputs, "kernel_size": kernel}
    if isinstance(kernel, list):
        return found | {"stride": [1, 1], "pad": [(side - 1) // 2 for side in kernel]}
    return found | {"stride": stride, "pad": (kernel - 1) // 2 if stride == 1 else 0}


def _tower(*units: dict[str, Any]) -> Tower:
    """Convolutions are called conv, conv_1, conv_2 and so on."""
    convolutions = [unit for unit in units if "name" not in unit]
    for i, unit in enumerate(convolutions):
        unit["name"] = f"conv_{i}" if i else "conv"
    return list(units)


def _inception(
    net: NetSpec, from_layer: str, name: str, bn_param: dict[str, Any],
    *towers: tuple[str, Tower], crossed: Sequence[str] = (),
) -> str:  # fmt: skip
    """Towers side by side, by the ends of their names; returns the name of what joins them.

    Those that are `crossed` end in a 1x3 and a 3x1 convolution side by side.
    """
    tops = []
    for ending, units in towers:
        tower = f"{name}{ending}"
        top = InceptionTower(net, from_layer, tower, units, **bn_param)
        if ending in crossed:
            last, mixed = f"{tower}/{units[-1]['name']}", f"{tower}/mixed"
            arms = _tower(_conv(384, [1, 3]), _conv(384, [3, 1]))
            joined = [InceptionTower(net, last, mixed, [arm], **bn_param) for arm in arms]
            top = net[mixed] = L.Concat(*joined, axis=1)
        tops.append(top)
    net[f"{name}/join"] = L.Concat(*tops, axis=1)
    return f"{name}/join"


def InceptionV3Body(
    net: NetSpec, from_layer: str, output_pred: bool = False, **bn_param: Any
) -> NetSpec:
    """Szegedy et al., 2015, under the names of TensorFlow's graph; `output_pred` classifies."""

    def add(source: str, name: str, outputs: int, kernel: int, pad: int, stride: int = 1) -> str:
        ConvBNLayer(
            net, source, name, True, True, outputs, kernel, pad, stride, use_scale=False, **bn_param
        )
        return name

    last = add(from_layer, "conv", 32, 3, 0, 2)
    last = add(add(last, "conv_1", 32, 3, 0), "conv_2", 64, 3, 1)
    net.pool = L.Pooling(net[last], pool=_MAX, kernel_size=3, stride=2, pad=0)
    last = add(add("pool", "conv_3", 80, 1, 0), "conv_4", 192, 3, 0)
    net.pool_1 = L.Pooling(net[last], pool=_MAX, kernel_size=3, stride=2, pad=0)
    last = "pool_1"
    for i, pooled in enumerate((32, 64, 64)):
        last = _inception(
            net, last, f"mixed_{i}" if i else "mixed", bn_param,
            ("", _tower(_conv(64, 1))),
            ("/tower", _tower(_conv(48, 1), _conv(64, 5))),
            ("/tower_1", _tower(_conv(64, 1), _conv(96, 3), _conv(96, 3))),
            ("/tower_2", _tower(_pool(_AVE, 1), _conv(pooled, 1))),
        )  # fmt: skip
    last = _inception(
        net, last, "mixed_3", bn_param,
        ("", _tower(_conv(384, 3, 2))),
        ("/tower", _tower(_conv(64, 1), _conv(96, 3), _conv(96, 3, 2))),
        ("", _tower(_pool(_MAX, 2))),
    )  # fmt: skip
    for i, n in enumerate((128, 160, 160, 192), 4):
        last = _inception(
            net, last, f"mixed_{i}", bn_param,
            ("", _tower(_conv(192, 1))),
            ("/tower", _tower(_conv(n, 1), _conv(n, _ROW), _conv(192, _COLUMN))),
            ("/tower_1", _tower(_conv(n, 1), _conv(n, _COLUMN), _conv(n, _ROW), _conv(n, _COLUMN),
                                _conv(192, _ROW))),
            ("/tower_2", _tower(_pool(_AVE, 1), _conv(192, 1))),
        )  # fmt: skip
    last = _inception(
        net, last, "mixed_8", bn_param,
        ("/tower", _tower(_conv(192, 1), _conv(320, 3, 2))),
        ("/tower_1", _tower(_conv(192, 1), _conv(192, _ROW), _conv(192, _COLUMN),
                            _conv(192, 3, 2))),
        ("", _tower(_pool(_MAX, 2))),
    )  # fmt: skip
    for name, pool in (("mixed_9", _AVE), ("mixed_10", _MAX)):
        last = _inception(
            net, last, name, bn_param,
            ("", _tower(_conv(320, 1))),
            ("/tower", _tower(_conv(384, 1))),
            ("/tower_1", _tower(_conv(448, 1), _conv(384, 3))),
            ("/tower_2", _tower(_pool(pool, 1), _conv(192, 1))),
            crossed=("/tower", "/tower_1"),
        )  # fmt: skip
    if output_pred:
        net.pool_3 = L.Pooling(net[last], pool=_AVE, kernel_size=8, pad=0, stride=1)
        net.softmax = L.InnerProduct(net.pool_3, num_output=1008)
        net.softmax_prob = L.Softmax(net.softmax)
    return net


def CreateAnnotatedDataLayer(
    source: str, batch_size: int = 32, backend: int = schema.DataParameter.LMDB,
    output_label: bool = True, train: bool = True, label_map_file: str = "",
    anno_type: int | None = None, transform_param: dict[str, Any] | None = None,
    batch_sampler: Sequence[dict[str, Any]] = ({},),
) -> Any:  # fmt: skip
    """The data layer of a phase; returns its tops (data and label)."""
    own: dict[str, Any] = {"label_map_file": label_map_file, "batch_sampler": list(batch_sampler)}
    if anno_type is not None:
        own["anno_type"] = anno_type
    return L.AnnotatedData(
        name="data",
        include={"phase": schema.TRAIN if train else schema.TEST},
        transform_param=transform_param or {},
        annotated_data_param=own,
        data_param={"batch_size": batch_size, "backend": backend, "source": source},
        ntop=2 if output_label else 1,
    )


def CreateMultiBoxHead(
    net: NetSpec, data_layer: str = "data", num_classes: int = 0,
    from_layers: Sequence[str] = (), use_objectness: bool = False,
    normalizations: Sequence[float] = (), use_batchnorm: bool = True, lr_mult: float = 1,
    use_scale: bool = True, min_sizes: Sequence[Any] = (), max_sizes: Sequence[Any] = (),
    prior_variance: Sequence[float] = (0.1,), aspect_ratios: Sequence[Any] = (),
    steps: Sequence[Any] = (), img_height: int = 0, img_width: int = 0,
    share_location: bool = True, flip: bool = True, clip: bool = True, offset: float = 0.5,
    inter_layer_depth: Sequence[int] = (), kernel_size: Sizes = 1, pad: Sizes = 0,
    conf_postfix: str = "", loc_postfix: str = "", **bn_param: Any,
) -> list[Top]:  # fmt: skip
    """Locations, confidences and default boxes for every one of `from_layers`, joined to mbox_loc,
    mbox_conf and mbox_priorbox (and mbox_objectness), which are returned."""
    if num_classes < 1:
        raise ValueError("CreateMultiBoxHead needs num_classes, at least 1")
    if data_layer not in net:
        raise ValueError(f'the net has no data layer "{data_layer}"')
    lists = {"min_sizes": min_sizes, "max_sizes": max_sizes, "aspect_ratios": aspect_ratios,
             "steps": steps, "normalizations": normalizations,
             "inter_layer_depth": inter_layer_depth}  # fmt: skip
    for name, given in lists.items():
        if (given or name == "min_sizes") and len(given) != len(from_layers):
            raise ValueError(
                f"{name} has {len(given)} entries for {len(from_layers)} from_layers; give one each"
            )
    head = _Head(net, use_batchnorm, lr_mult, kernel_size, pad, bn_param)
    kinds: dict[str, list[Top]] = {"loc": [], "conf": [], "priorbox": []}
    for i, source in enumerate(from_layers):
        if normalizations and normalizations[i] != -1:
            source = head.normalize(source, normalizations[i])
        if inter_layer_depth and inter_layer_depth[i] > 0:
            source = head.intermediate(source, inter_layer_depth[i])
        least, most, ratios = (_listed(given, i) for given in (min_sizes, max_sizes, aspect_ratios))
        if most and len(most) != len(least):
            raise ValueError(f"max_sizes[{i}] and min_sizes[{i}] differ in length")
        priors = (1 + bool(most) + len(ratios) * (2 if flip else 1)) * len(least)
        coordinates = priors * 4 * (1 if share_location else num_classes)
        kinds["loc"].append(head.predict(source, f"loc{loc_postfix}", coordinates))
        kinds["conf"].append(head.predict(source, f"conf{conf_postfix}", priors * num_classes))
        boxes: dict[str, Any] = {"min_size": least, "clip": clip, "offset": offset}
        boxes["variance"] = list(prior_variance)
        if most:
            boxes["max_size"] = most
        if ratios:
            boxes |= {"aspect_ratio": ratios, "flip": flip}
        if steps and steps[i]:
            boxes["step"] = steps[i]
        if img_height and img_width:
            square = img_height == img_width
            boxes |= {"img_size": img_height} if square else {
                "img_h": img_height, "img_w": img_width}  # fmt: skip
        name = f"{source}_mbox_priorbox"
        net[name] = L.PriorBox(net[source], net[data_layer], **boxes)
        kinds["priorbox"].append(net[name])
        if use_objectness:
            kinds.setdefault("objectness", []).append(
                head.predict(source, "objectness", priors * 2)
            )
    for kind, tops in kinds.items():
        net[f"mbox_{kind}"] = L.Concat(*tops, axis=2 if kind == "priorbox" else 1)
    return [net[f"mbox_{kind}"] for kind in kinds]


def _listed(given: Sequence[Any], index: int) -> list[Any]:
    if not given:
        return []
    return list(given[index]) if isinstance(given[index], list | tuple) else [given[index]]


class _Head:
    """Adds the layers on top of one feature map."""

    def __init__(
        self, net: NetSpec, batch_norm: bool, lr_mult: float, kernel: Sizes, pad: Sizes,
        bn_param: dict[str, Any],
    ) -> None:  # fmt: skip
        self.net = net
        self.common: dict[str, Any] = {
            "use_bn": batch_norm,
            "lr_mult": lr_mult,
            "stride": 1,
            **bn_param,
        }
        self.window: dict[str, Any] = {"kernel_size": kernel, "pad": pad}

    def normalize(self, source: str, value: float) -> str:
        name = f"{source}_norm"
        self.net[name] = L.Normalize(
            self.net[source], scale_filler={"type": "constant", "value": value},
            across_spatial=False, channel_shared=False,
        )  # fmt: skip
        return name

    def intermediate(self, source: str, depth: int) -> str:
        name = f"{source}_inter"
        ConvBNLayer(
            self.net, source, name, use_relu=True, num_output=depth, kernel_size=3, pad=1,
            **self.common,
        )  # fmt: skip
        return name

    def predict(self, source: str, kind: str, outputs: int) -> Top:
        """A convolution whose channels come last, flattened."""
        net, name = self.net, f"{source}_mbox_{kind}"
        ConvBNLayer(
            net, source, name, use_relu=False, num_output=outputs, **self.window, **self.common
        )
        net[f"{name}_perm"] = L.Permute(net[name], order=[0, 2, 3, 1])
        net[f"{name}_flat"] = L.Flatten(net[f"{name}_perm"], axis=1)
        flat: Top = net[f"{name}_flat"]
        return flat
