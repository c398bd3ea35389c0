"""SSD nets, put together from caffe.model_libs as SSD's own scripts do."""

from __future__ import annotations

from typing import Any

from modelgen.prototxt import comment
from pycaffe_fire import schema
from pycaffe_fire.pycaffe import NetSpec, model_libs
from pycaffe_fire.pycaffe import layers as L

SHAPES_CLASSES = 5
VOC_CLASSES = 21
VARIANCE = [0.1, 0.1, 0.2, 0.2]
_LOSS, _PRIOR = schema.MultiBoxLossParameter, schema.PriorBoxParameter
_RESIZE = schema.ResizeParameter


def _sampler(overlap: float | None = None, **scale: float) -> dict[str, Any]:
    """A random window that overlaps an object by so much; without an overlap the whole image."""
    if overlap is None:
        return {"max_sample": 1, "max_trials": 1}
    shape = {"min_scale": 0.3, "max_scale": 1.0, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
    return {
        "sampler": shape | scale,
        "sample_constraint": {"min_jaccard_overlap": overlap},
        "max_sample": 1,
        "max_trials": 50,
    }


def _loss(net: NetSpec, boxes: list[Any], classes: int) -> None:
    net.mbox_loss = L.MultiBoxLoss(
        *boxes, net.label,
        multibox_loss_param={
            "loc_loss_type": _LOSS.SMOOTH_L1, "conf_loss_type": _LOSS.SOFTMAX, "loc_weight": 1.0,
            "num_classes": classes, "share_location": True, "match_type": _LOSS.PER_PREDICTION,
            "overlap_threshold": 0.5, "use_prior_for_matching": True, "background_label_id": 0,
            "use_difficult_gt": True, "neg_pos_ratio": 3.0, "neg_overlap": 0.5,
            "code_type": _PRIOR.CENTER_SIZE, "ignore_cross_boundary_bbox": False,
            "mining_type": _LOSS.MAX_NEGATIVE,
        },
        loss_param={"normalization": schema.LossParameter.VALID},
        propagate_down=[True, True, False, False],
        include={"phase": schema.TRAIN},
    )  # fmt: skip


def _detect(net: NetSpec, boxes: list[Any], classes: int, **rule: Any) -> None:
    """Detections of the test phase (or, without rules, of a net that only detects)."""
    loc, conf, priors = boxes
    net.mbox_conf_reshape = L.Reshape(conf, shape={"dim": [0, -1, classes]}, **rule)
    net.mbox_conf_softmax = L.Softmax(net.mbox_conf_reshape, axis=2, **rule)
    net.mbox_conf_flatten = L.Flatten(net.mbox_conf_softmax, axis=1, **rule)
    net.detection_out = L.DetectionOutput(
        loc, net.mbox_conf_flatten, priors,
        detection_output_param={
            "num_classes": classes, "share_location": True, "background_label_id": 0,
            "nms_param": {"nms_threshold": 0.45, "top_k": 400}, "keep_top_k": 200,
            "code_type": _PRIOR.CENTER_SIZE, "confidence_threshold": 0.01,
        },
        **rule,
    )  # fmt: skip


def _finish(net: NetSpec, boxes: list[Any], classes: int, **evaluate: Any) -> None:
    """Loss and evaluation of a net for training and testing."""
    test = {"include": {"phase": schema.TEST}}
    _loss(net, boxes, classes)
    _detect(net, boxes, classes, **test)
    param = {"num_classes": classes, "background_label_id": 0, "overlap_threshold": 0.5}
    net.detection_eval = L.DetectionEvaluate(
        net.detection_out, net.label, detection_evaluate_param=param | evaluate, **test
    )


def _text(about: str, name: str, data: Any, net: NetSpec) -> str:
    """The net's prototxt, the data layer of the training phase first."""
    made = schema.NetParameter(name=name)
    training = NetSpec()
    training.data, training.label = data
    made.layer.extend([*training.to_proto().layer, *net.to_proto().layer])
    return comment(about) + schema.to_text(made)


def _deploy_text(about: str, name: str, net: NetSpec) -> str:
    made = net.to_proto()
    made.name = name
    return comment(about) + schema.to_text(made)


# The small SSD on the shapes.

_MINI_SIDE = 96
_MINI_TRANSFORM = {"mean_value": [128.0], "scale": 0.015625}


def _mini_data(split: str, batch: int, train: bool) -> Any:
    transform: dict[str, Any] = dict(_MINI_TRANSFORM)
    more: dict[str, Any] = {}
    if train:
        transform |= {
            "mirror": True,
            "resize_param": {"resize_mode": _RESIZE.WARP, "height": 96, "width": 96},
            "emit_constraint": {"emit_type": schema.EmitConstraint.CENTER},
            "distort_param": {"brightness_prob": 0.5, "brightness_delta": 32.0},
            "expand_param": {"prob": 0.3, "max_expand_ratio": 1.5},
        }
        more["batch_sampler"] = [_sampler(), _sampler(0.3, min_scale=0.6)]
    return model_libs.CreateAnnotatedDataLayer(
        f"data/shapes_{split}_lmdb", batch, train=train,
        label_map_file="data/labelmap_shapes.prototxt", transform_param=transform, **more,
    )  # fmt: skip


def _mini_body(net: NetSpec) -> list[Any]:
    """Five convolutions; boxes are predicted at strides 4, 8 and 16."""
    last = "data"
    for name, outputs, size, stride in (
        ("conv1", 16, 5, 2), ("conv2", 32, 3, 1), ("conv3", 64, 3, 1), ("conv4", 96, 3, 2),
        ("conv5", 128, 3, 2),
    ):  # fmt: skip
        window: dict[str, Any] = {"kernel_size": size, "pad": size // 2, "stride": stride}
        model_libs.ConvBNLayer(net, last, name, False, True, outputs, **window)
        net.update(name, {"weight_filler": {"type": "msra"}})
        last = name
        if name == "conv1":
            pool = {"pool": schema.PoolingParameter.MAX, "kernel_size": 2, "stride": 2}
            net.pool1 = L.Pooling(net.conv1, **pool)
            last = "pool1"
    return model_libs.CreateMultiBoxHead(
        net, num_classes=SHAPES_CLASSES, from_layers=["conv3", "conv4", "conv5"],
        use_batchnorm=False, min_sizes=[12.0, 20.0, 34.0], max_sizes=[20.0, 34.0, 50.0],
        prior_variance=VARIANCE, kernel_size=3, pad=1, clip=False,
    )  # fmt: skip


def mini_train_val() -> str:
    net = NetSpec()
    net.data, net.label = _mini_data("test", 20, False)
    boxes = _mini_body(net)
    _finish(net, boxes, SHAPES_CLASSES)
    about = "A small SSD on the shapes that fire_data shapes draws: 96x96 pixels, four classes."
    return _text(about, "SSD_mini", _mini_data("train", 16, True), net)


def mini_deploy() -> str:
    net = NetSpec()
    net.data = L.Input(shape={"dim": [1, 3, _MINI_SIDE, _MINI_SIDE]})
    _detect(net, _mini_body(net), SHAPES_CLASSES)
    return _deploy_text("A small SSD that detects shapes.", "SSD_mini", net)


# SSD300 on VOC.

_MEANS = {"mean_value": [104.0, 117.0, 123.0]}


def _ssd300_data(part: str, batch: int, train: bool) -> Any:
    size: dict[str, Any] = {"prob": 1.0, "resize_mode": _RESIZE.WARP, "height": 300, "width": 300}
    transform: dict[str, Any] = {**_MEANS, "resize_param": size}
    more: dict[str, Any] = {}
    if train:
        ways = ("LINEAR", "AREA", "NEAREST", "CUBIC", "LANCZOS4")
        size["interp_mode"] = [getattr(_RESIZE, way) for way in ways]
        transform |= {
            "mirror": True,
            "emit_constraint": {"emit_type": schema.EmitConstraint.CENTER},
            "distort_param": {
                "brightness_prob": 0.5, "brightness_delta": 32.0,
                "contrast_prob": 0.5, "contrast_lower": 0.5, "contrast_upper": 1.5,
                "hue_prob": 0.5, "hue_delta": 18.0,
                "saturation_prob": 0.5, "saturation_lower": 0.5, "saturation_upper": 1.5,
                "random_order_prob": 0.0,
            },
            "expand_param": {"prob": 0.5, "max_expand_ratio": 4.0},
        }  # fmt: skip
        samplers = [_sampler(), *(_sampler(overlap) for overlap in (0.1, 0.3, 0.5, 0.7, 0.9))]
        anything = _sampler(0.0)
        anything["sample_constraint"] = {"max_jaccard_overlap": 1.0}
        more["batch_sampler"] = [*samplers, anything]
    return model_libs.CreateAnnotatedDataLayer(
        f"data/VOC0712/{part}_lmdb", batch, train=train,
        label_map_file="data/VOC0712/labelmap_voc.prototxt", transform_param=transform, **more,
    )  # fmt: skip


def _ssd300_body(net: NetSpec) -> list[Any]:
    """VGG-16 without its classifier, four more pairs of convolutions, and six maps of boxes."""
    model_libs.VGGNetBody(net, "data", fully_conv=True, reduced=True, dilated=True, dropout=False)
    last = "fc7"
    for number, (narrow, wide, pad, stride) in enumerate(
        ((256, 512, 1, 2), (128, 256, 1, 2), (128, 256, 0, 1), (128, 256, 0, 1)), 6
    ):
        first, second = f"conv{number}_1", f"conv{number}_2"
        model_libs.ConvBNLayer(net, last, first, False, True, narrow, 1, 0, 1)
        model_libs.ConvBNLayer(net, first, second, False, True, wide, 3, pad, stride)
        last = second
    return model_libs.CreateMultiBoxHead(
        net, num_classes=VOC_CLASSES, use_batchnorm=False,
        from_layers=["conv4_3", "fc7", "conv6_2", "conv7_2", "conv8_2", "conv9_2"],
        min_sizes=[30.0, 60.0, 111.0, 162.0, 213.0, 264.0],
        max_sizes=[60.0, 111.0, 162.0, 213.0, 264.0, 315.0],
        aspect_ratios=[[2.0], [2.0, 3.0], [2.0, 3.0], [2.0, 3.0], [2.0], [2.0]],
        steps=[8.0, 16.0, 32.0, 64.0, 100.0, 300.0], normalizations=[20, -1, -1, -1, -1, -1],
        prior_variance=VARIANCE, kernel_size=3, pad=1, clip=False,
    )  # fmt: skip


def ssd300_train_val() -> str:
    net = NetSpec()
    net.data, net.label = _ssd300_data("test", 8, False)
    boxes = _ssd300_body(net)
    _finish(net, boxes, VOC_CLASSES, evaluate_difficult_gt=False)
    about = "SSD300 on PASCAL VOC 2007 and 2012 (Liu et al. 2016)."
    return _text(about, "VGG_VOC0712_SSD_300x300", _ssd300_data("trainval", 32, True), net)


def ssd300_deploy() -> str:
    net = NetSpec()
    net.data = L.Input(shape={"dim": [1, 3, 300, 300]})
    _detect(net, _ssd300_body(net), VOC_CLASSES)
    return _deploy_text("SSD300 on PASCAL VOC.", "VGG_VOC0712_SSD_300x300_deploy", net)
