"""Nets of well-known papers, written down from their definitions with NetSpec.

`size` is the side of the input images; `divide` makes every layer that many times narrower, so
that a step takes no time. With divide=1 the nets are the papers' own.
"""

from __future__ import annotations

from typing import Any

import pycaffe_fire as caffe
from pycaffe_fire.pycaffe.net_spec import layers as L
from pycaffe_fire.pycaffe.net_spec import params as P

XAVIER = {"type": "xavier"}
GAUSS = {"type": "gaussian", "std": 0.01}
VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def data(n: Any, size: int, label: tuple[int, ...], channels: int = 3, wide: int = 0) -> None:
    n.data, n.label = L.DummyData(
        shape=[{"dim": [1, channels, size, wide or size]}, {"dim": list(label)}],
        data_filler=[{"type": "gaussian", "std": 1}, {"type": "constant", "value": 1}], ntop=2,
    )  # fmt: skip


def conv(bottom: Any, filters: int, kernel: int = 3, **more: Any) -> Any:
    pad = more.pop("pad", kernel // 2)
    return L.Convolution(
        bottom, num_output=filters, kernel_size=kernel, pad=pad, weight_filler=XAVIER, **more
    )


def max_pool(bottom: Any, kernel: int = 2, stride: int = 2, **more: Any) -> Any:
    return L.Pooling(bottom, pool=P.Pooling.MAX, kernel_size=kernel, stride=stride, **more)


def deeplab_large_fov(size: int, divide: int) -> str:
    """Chen et al., 2015: VGG16 whose last pools do not stride and whose filters have holes."""
    n = caffe.NetSpec()
    data(n, size, (1, 1, size, size))
    x = n.data
    for block, widths in enumerate(VGG16, 1):
        for i, width in enumerate(widths, 1):
            holes = {"hole": 2, "pad": 2} if block == 5 else {}
            x = n[f"conv{block}_{i}"] = conv(x, width // divide, **holes)
            x = n[f"relu{block}_{i}"] = L.ReLU(x, in_place=True)
        x = n[f"pool{block}"] = max_pool(x, 3, 2 if block < 4 else 1, pad=1)
    x = n.pool5a = L.Pooling(x, pool=P.Pooling.AVE, kernel_size=3, stride=1, pad=1)
    x = n.fc6 = conv(x, 1024 // divide, hole=12, pad=12)
    x = n.drop6 = L.Dropout(L.ReLU(x, in_place=True), dropout_ratio=0.5, in_place=True)
    x = n.fc7 = conv(x, 1024 // divide, 1)
    x = n.drop7 = L.Dropout(L.ReLU(x, in_place=True), dropout_ratio=0.5, in_place=True)
    n.fc8 = conv(x, 21, 1)
    n.label_shrink = L.Interp(n.label, shrink_factor=8)
    n.loss = L.SoftmaxWithLoss(n.fc8, n.label_shrink, loss_param={"ignore_label": 255})
    return str(n.to_proto())


def segnet(size: int, divide: int) -> str:
    """Badrinarayanan et al., 2015: VGG16 and its mirror image, which unpools by masks."""
    n = caffe.NetSpec()
    data(n, size, (1, 1, size, size))

    def step(x: Any, name: str, width: int) -> Any:
        x = n[f"conv{name}"] = conv(x, width)
        fillers = {"scale_filler": {"value": 1}, "shift_filler": {"value": 0.001}}
        x = n[f"conv{name}_bn"] = L.BN(x, bn_param=fillers, in_place=True)
        return L.ReLU(x, in_place=True)

    x, masks = n.data, []
    for block, widths in enumerate(VGG16, 1):
        for i, width in enumerate(widths, 1):
            x = step(x, f"{block}_{i}", width // divide)
        n[f"pool{block}"], n[f"pool{block}_mask"] = max_pool(x, ntop=2)
        x = n[f"pool{block}"]
        masks.append(n[f"pool{block}_mask"])
    for block in range(5, 0, -1):
        x = n[f"upsample{block}"] = L.Upsample(x, masks[block - 1], scale=2)
        widths = VGG16[block - 1]
        for i in range(len(widths), 0, -1):
            after = widths[i - 2] if i > 1 else VGG16[block - 2][-1]
            if (block, i) == (1, 1):
                n.score = conv(x, 11)
                break
            x = step(x, f"{block}_{i}_d", after // divide)
    n.loss = L.SoftmaxWithLoss(n.score, n.label, loss_param={
        "weight_by_label_freqs": True, "ignore_label": 11,
        "class_weighting": [0.2595, 0.1826, 4.564, 0.1417, 0.9051, 0.3826, 9.6446, 1.8418, 0.6823,
                            6.2478, 7.3614],
    })  # fmt: skip
    return str(n.to_proto())


def pspnet50(size: int, divide: int) -> str:
    """Zhao et al., 2017: a dilated ResNet-50 and averages over a pyramid of regions."""
    n = caffe.NetSpec()
    data(n, size, (1, 1, size, size))

    def unit(x: Any, name: str, width: int, kernel: int = 1, relu: bool = True, **more: Any) -> Any:
        x = n[name] = conv(x, width // divide, kernel, bias_term=False, **more)
        x = n[f"{name}/bn"] = L.BN(x, bn_param={"slope_filler": {"value": 1}}, in_place=True)
        return L.ReLU(x, in_place=True) if relu else x

    x = unit(n.data, "conv1_1_3x3_s2", 64, 3, stride=2)
    x = unit(unit(x, "conv1_2_3x3", 64, 3), "conv1_3_3x3", 128, 3)
    x = n.pool1 = max_pool(x, 3, 2, pad=1, ceil_mode=False)
    blocks = ((3, 64, 1, 1), (4, 128, 2, 1), (6, 256, 1, 2), (3, 512, 1, 4))
    for stage, (count, width, stride, dilation) in enumerate(blocks, 2):
        for i in range(1, count + 1):
            name, first = f"conv{stage}_{i}", stride if i == 1 else 1
            y = unit(x, f"{name}_1x1_reduce", width, stride=first)
            y = unit(y, f"{name}_3x3", width, 3, pad=dilation, dilation=dilation)
            y = unit(y, f"{name}_1x1_increase", 4 * width, relu=False)
            if i == 1:
                x = unit(x, f"{name}_1x1_proj", 4 * width, relu=False, stride=first)
            x = n[name] = L.Eltwise(x, y)
            x = L.ReLU(x, in_place=True)
    side = (size - 1) // 8 + 1
    parts = [x]
    for bins in (1, 2, 3, 6):
        kernel = side // bins
        y = n[f"conv5_3_pool{bins}"] = L.Pooling(
            x, pool=P.Pooling.AVE, kernel_size=kernel, stride=kernel
        )
        y = unit(y, f"conv5_3_pool{bins}_conv", 512)
        parts.append(L.Interp(y, height=side, width=side))
        n[f"conv5_3_pool{bins}_interp"] = parts[-1]
    n.conv5_3_concat = L.Concat(*parts)
    x = unit(n.conv5_3_concat, "conv5_4", 512, 3)
    x = L.Dropout(x, dropout_ratio=0.1, in_place=True)
    n.conv6 = conv(x, 21, 1)
    n.conv6_interp = L.Interp(n.conv6, zoom_factor=8)
    n.loss = L.SoftmaxWithLoss(n.conv6_interp, n.label, loss_param={"ignore_label": 255})
    return str(n.to_proto())


def enet(size: int, divide: int) -> str:
    """Paszke et al., 2016: bottlenecks that are dilated or asymmetric, and unpooling by masks."""
    n = caffe.NetSpec()
    data(n, size, (1, 1, size, size))

    def normed(x: Any, name: str) -> Any:
        x = n[f"{name}_bn"] = L.BatchNorm(x)
        x = n[f"{name}_scale"] = L.Scale(x, bias_term=True, in_place=True)
        return x

    def unit(x: Any, name: str, width: int, kernel: int = 1, **more: Any) -> Any:
        x = n[name] = conv(x, width, kernel, **more)
        return L.PReLU(normed(x, name), in_place=True)

    def bottleneck(
        x: Any, name: str, width: int, ratio: float, kind: str = "", dilation: int = 1
    ) -> Any:
        y = unit(x, f"{name}_reduce", width // 4)
        if kind == "asymmetric":
            for side, (h, w) in (("a", (5, 1)), ("b", (1, 5))):
                y = n[f"{name}_{side}"] = L.Convolution(
                    y, num_output=width // 4, kernel_h=h, kernel_w=w, pad_h=h // 2, pad_w=w // 2,
                    weight_filler=XAVIER,
                )  # fmt: skip
            y = L.PReLU(normed(y, name), in_place=True)
        else:
            y = unit(y, name, width // 4, 3, pad=dilation, dilation=dilation)
        y = n[f"{name}_expand"] = conv(y, width, 1)
        y = n[f"{name}_drop"] = L.SpatialDropout(
            normed(y, f"{name}_expand"), spatial_dropout_param={"dropout_ratio": ratio}
        )
        x = n[f"{name}_add"] = L.Eltwise(x, y)
        return L.PReLU(x, in_place=True)

    def down(x: Any, name: str, width: int) -> tuple[Any, Any]:
        y = unit(x, f"{name}_reduce", width // 4, 2, stride=2, pad=0)
        y = unit(y, name, width // 4, 3)
        y = n[f"{name}_expand"] = conv(y, width, 1)
        y = normed(y, f"{name}_expand")
        n[f"{name}_pool"], n[f"{name}_mask"] = max_pool(x, ntop=2)
        wide = n[f"{name}_wide"] = conv(n[f"{name}_pool"], width, 1)
        x = n[f"{name}_add"] = L.Eltwise(wide, y)
        return L.PReLU(x, in_place=True), n[f"{name}_mask"]

    def up(x: Any, name: str, mask: Any, before: int, width: int) -> Any:
        y = unit(x, f"{name}_reduce", width // 4)
        y = n[f"{name}_deconv"] = L.Deconvolution(y, convolution_param={
            "num_output": width // 4, "kernel_size": 2, "stride": 2, "weight_filler": XAVIER,
        })  # fmt: skip
        y = n[f"{name}_expand"] = conv(y, width, 1)
        narrow = n[f"{name}_narrow"] = conv(x, before, 1)
        big = n[f"{name}_up"] = L.Upsample(narrow, mask, scale=2)
        wide = n[f"{name}_wide"] = conv(big, width, 1)
        x = n[f"{name}_add"] = L.Eltwise(wide, y)
        return L.PReLU(x, in_place=True)

    n.conv0 = conv(n.data, 13, stride=2)
    n.pool0 = max_pool(n.data)
    x = n.initial = L.Concat(n.conv0, n.pool0)
    x, mask1 = down(x, "down1", 64 // divide)
    for i in range(4):
        x = bottleneck(x, f"stage1_{i}", 64 // divide, 0.01)
    x, mask2 = down(x, "down2", 128 // divide)
    for stage in (2, 3):
        for i, (kind, dilation) in enumerate(
            [
                ("", 1),
                ("", 2),
                ("asymmetric", 1),
                ("", 4),
                ("", 1),
                ("", 8),
                ("asymmetric", 1),
                ("", 16),
            ]
        ):
            x = bottleneck(x, f"stage{stage}_{i}", 128 // divide, 0.1, kind, dilation)
    x = up(x, "up4", mask2, 64 // divide, 64 // divide)
    for i in range(2):
        x = bottleneck(x, f"stage4_{i}", 64 // divide, 0.1)
    x = up(x, "up5", mask1, 16, 16)
    x = bottleneck(x, "stage5", 16, 0.1)
    n.score = L.Deconvolution(x, convolution_param={
        "num_output": 12, "kernel_size": 2, "stride": 2, "weight_filler": XAVIER,
    })  # fmt: skip
    n.loss = L.SoftmaxWithLoss(n.score, n.label, loss_param={"ignore_label": 11})
    return str(n.to_proto())


def crnn(size: int, divide: int) -> str:
    """Shi et al., 2015: convolutions, two bidirectional LSTMs over the columns, CTC."""
    n = caffe.NetSpec()
    data(n, 32, (1, 5), channels=1, wide=size)
    x = n.data
    widths = (64, 128, 256, 256, 512, 512)
    for i, width in enumerate(widths, 1):
        x = n[f"conv{i}"] = conv(x, width // divide)
        if i in (5, 6):
            x = n[f"bn{i}"] = L.BatchNorm(x)
            x = n[f"scale{i}"] = L.Scale(x, bias_term=True, in_place=True)
        x = L.ReLU(x, in_place=True)
        if i in (1, 2):
            x = n[f"pool{i}"] = max_pool(x)
        elif i in (4, 6):
            x = n[f"pool{i}"] = L.Pooling(
                x, pool=P.Pooling.MAX, kernel_h=2, kernel_w=1, stride_h=2, stride_w=1
            )
    n.conv7 = conv(x, 512 // divide, 2, pad=0)
    x = n.relu7 = L.ReLU(n.conv7, in_place=True)

    def in_time(x: Any, name: str) -> Any:
        """(N, C, 1, W) to (W, N, C)."""
        moved = n[f"{name}_moved"] = L.Permute(x, permute_param={"order": [3, 0, 1, 2]})
        n[name] = L.Reshape(moved, shape={"dim": [0, 0, -1]})
        return n[name]

    def in_space(x: Any, name: str) -> Any:
        """And back."""
        flat = n[f"{name}_flat"] = L.Reshape(x, shape={"dim": [0, 0, -1, 1]})
        n[name] = L.Permute(flat, permute_param={"order": [1, 2, 3, 0]})
        return n[name]

    for layer in (1, 2):
        ways = []
        for way in ("forth", "back"):
            turned = x if way == "forth" else L.Flip(x)
            time = in_time(turned, f"{way}{layer}_in")
            cont = n[f"{way}{layer}_cont"] = L.ContinuationIndicator(time)
            lstm = n[f"{way}{layer}"] = L.LSTM(time, cont, recurrent_param={
                "num_output": 256 // divide, "weight_filler": GAUSS, "bias_filler": {"value": 0},
            })  # fmt: skip
            y = in_space(lstm, f"{way}{layer}_out")
            ways.append(y if way == "forth" else L.Flip(y))
        x = n[f"both{layer}"] = L.Concat(*ways)
    time = in_time(x, "time")
    n.score = L.InnerProduct(time, axis=2, num_output=37, weight_filler=XAVIER)
    n.loss = L.WarpCTC(n.score, n.label, warp_ctc_param={"blank_label": 0})
    return str(n.to_proto())


def densenet121(size: int, divide: int) -> str:
    """Huang et al., 2017: every layer reads all layers of its block before it."""
    n = caffe.NetSpec()
    data(n, size, (1,))
    growth = 32 // divide

    def active(x: Any, name: str) -> Any:
        x = n[f"{name}/bn"] = L.BatchNorm(x, eps=1e-5)
        x = n[f"{name}/scale"] = L.Scale(x, bias_term=True, in_place=True)
        return L.ReLU(x, in_place=True)

    def bare(x: Any, name: str, width: int, kernel: int = 1, **more: Any) -> Any:
        n[name] = conv(x, width, kernel, bias_term=False, **more)
        return n[name]

    x = active(bare(n.data, "conv1", 2 * growth, 7, stride=2), "conv1")
    x = n.pool1 = max_pool(x, 3, 2, pad=1, ceil_mode=False)
    width = 2 * growth
    for block, count in enumerate((6, 12, 24, 16), 2):
        for i in range(1, count + 1):
            name = f"conv{block}_{i}"
            y = bare(active(x, f"{name}/x1"), f"{name}/x1", 4 * growth)
            y = bare(active(y, f"{name}/x2"), f"{name}/x2", growth, 3)
            x = n[f"concat_{block}_{i}"] = L.Concat(x, y)
            width += growth
        x = active(x, f"conv{block}_blk")
        if block < 5:
            width //= 2
            x = bare(x, f"conv{block}_blk", width)
            x = n[f"pool{block}"] = L.Pooling(x, pool=P.Pooling.AVE, kernel_size=2, stride=2)
    x = n.pool5 = L.Pooling(x, pool=P.Pooling.AVE, global_pooling=True)
    n.fc6 = conv(x, 1000, 1)
    n.flat = L.Flatten(n.fc6)
    n.loss = L.SoftmaxWithLoss(n.flat, n.label)
    return str(n.to_proto())


def faster_rcnn_vgg16(size: int, divide: int, classes: int = 21) -> str:
    """Ren et al., 2015, end to end: proposals and classification share VGG16's convolutions.

    AnchorTarget and ProposalTarget are Python layers, as in py-faster-rcnn.
    """
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 3, size, size]})
    n.im_info = L.Input(shape={"dim": [1, 3]})
    n.gt_boxes = L.Input(shape={"dim": [2, 5]})
    x = n.data
    for block, widths in enumerate(VGG16, 1):
        for i, width in enumerate(widths, 1):
            x = n[f"conv{block}_{i}"] = conv(x, width // divide)
            x = L.ReLU(x, in_place=True)
        if block < 5:
            x = n[f"pool{block}"] = max_pool(x)
    shared = n.relu5_3 = x
    rpn = n.rpn_output = L.ReLU(conv(shared, 512 // divide), in_place=True)
    n.rpn_cls_score, n.rpn_bbox_pred = conv(rpn, 18, 1), conv(rpn, 36, 1)
    n.rpn_cls_score_reshape = L.Reshape(n.rpn_cls_score, shape={"dim": [0, 2, -1, 0]})
    n.rpn_labels, n.rpn_targets, n.rpn_inside, n.rpn_outside = L.Python(
        n.rpn_cls_score, n.gt_boxes, n.im_info, n.data, ntop=4,
        python_param={"module": "rpn_layers", "layer": "AnchorTargetLayer",
                      "param_str": "'feat_stride': 16"},
    )  # fmt: skip
    n.rpn_loss_cls = L.SoftmaxWithLoss(
        n.rpn_cls_score_reshape, n.rpn_labels, propagate_down=[True, False],
        loss_param={"ignore_label": -1, "normalize": True},
    )  # fmt: skip
    n.rpn_loss_bbox = L.SmoothL1Loss(
        n.rpn_bbox_pred, n.rpn_targets, n.rpn_inside, n.rpn_outside,
        smooth_l1_loss_param={"sigma": 3},
    )  # fmt: skip
    n.rpn_cls_prob = L.Softmax(n.rpn_cls_score_reshape)
    n.rpn_cls_prob_reshape = L.Reshape(n.rpn_cls_prob, shape={"dim": [0, 18, -1, 0]})
    n.rpn_rois = L.Proposal(
        n.rpn_cls_prob_reshape, n.rpn_bbox_pred, n.im_info,
        proposal_param={"feat_stride": 16, "post_nms_topn": 32, "ratio": [0.5, 1, 2],
                        "scale": [8, 16, 32]},
    )  # fmt: skip
    n.rois, n.labels, n.bbox_targets, n.bbox_inside, n.bbox_outside = L.Python(
        n.rpn_rois, n.gt_boxes, ntop=5,
        python_param={"module": "rpn_layers", "layer": "ProposalTargetLayer",
                      "param_str": f"'num_classes': {classes}"},
    )  # fmt: skip
    x = n.pool5 = L.ROIPooling(shared, n.rois, roi_pooling_param={
        "pooled_w": 7, "pooled_h": 7, "spatial_scale": 0.0625,
    })  # fmt: skip
    for name in ("fc6", "fc7"):
        x = n[name] = L.InnerProduct(x, num_output=4096 // divide, weight_filler=GAUSS)
        x = L.Dropout(
            L.ReLU(x, in_place=True),
            dropout_param={"dropout_ratio": 0.5, "scale_train": False}, in_place=True,
        )  # fmt: skip
    n.cls_score = L.InnerProduct(x, num_output=classes, weight_filler=GAUSS)
    n.bbox_pred = L.InnerProduct(x, num_output=4 * classes, weight_filler=GAUSS)
    n.loss_cls = L.SoftmaxWithLoss(n.cls_score, n.labels, propagate_down=[True, False])
    n.loss_bbox = L.SmoothL1Loss(n.bbox_pred, n.bbox_targets, n.bbox_inside, n.bbox_outside)
    return str(n.to_proto())
