"""caffe.model_libs: nets as SSD's scripts build them, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.pycaffe import NetSpec, model_libs
from pycaffe_fire.pycaffe import layers as L


def spec(side: int = 64) -> NetSpec:
    net = NetSpec()
    net.data = L.Input(shape={"dim": [1, 3, side, side]})
    return net


def layers_of(net: NetSpec) -> dict[str, Any]:
    return {layer.name: layer for layer in net.to_proto().layer}


def test_unpacking() -> None:
    assert model_libs.UnpackVariable(3, 2) == model_libs.UnpackVariable([3], 2) == [3, 3]
    assert model_libs.UnpackVariable([1, 7], 2) == [1, 7]
    with pytest.raises(ValueError, match="expected 1 or 2 values, got 3"):
        model_libs.UnpackVariable([1, 2, 3], 2)


def test_folders(tmp_path: Path) -> None:
    folder = str(tmp_path / "a" / "b")
    assert not model_libs.check_if_exist(folder)
    model_libs.make_if_not_exist(folder)
    assert model_libs.check_if_exist(folder)


def test_convolutions_with_and_without_batch_norm() -> None:
    net = spec()
    model_libs.ConvBNLayer(net, "data", "a", True, True, 8, [1, 7], [0, 3], 1, lr_mult=2)
    model_libs.ConvBNLayer(net, "a", "b", False, False, 4, 3, 1, 2, dilation=2)
    model_libs.ConvBNLayer(
        net, "b", "c", True, False, 4, 1, 0, 1, use_scale=False, use_global_stats=True
    )
    made = layers_of(net)
    assert list(made) == ["data", "a", "a_bn", "a_scale", "a_relu", "b", "c", "c_bn", "c_bias"]
    a, b = made["a"].convolution_param, made["b"].convolution_param
    assert (a.kernel_h, a.kernel_w, a.pad_h, a.pad_w, a.bias_term) == (1, 7, 0, 3, False)
    assert [made["a"].param[0].lr_mult, made["a_scale"].param[0].lr_mult] == [2, 2]
    assert list(b.dilation) == [2] and made["b"].param[1].lr_mult == 2
    assert made["c_bn"].batch_norm_param.use_global_stats and made["c_bias"].param[0].lr_mult == 0
    assert all(made[name].top == ["a"] for name in ("a_bn", "a_scale", "a_relu"))
    caffe.Net(net.to_proto(), caffe.TRAIN)


def thin(net: NetSpec) -> Any:
    """The net with a few channels, built."""
    param = net.to_proto()
    for layer in param.layer:
        if layer.type in ("Convolution", "InnerProduct"):
            own = layer.convolution_param if layer.type == "Convolution" else (
                layer.inner_product_param)  # fmt: skip
            own.num_output = max(1, own.num_output // 64)
    return caffe.Net(param, caffe.TEST)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, {"pool5": 2, "fc7": None}),
        ({"fully_conv": True, "reduced": True, "dilated": True}, {"pool5": 4, "fc7": 4}),
        ({"fully_conv": True, "dilated": True, "dilate_pool4": True}, {"pool5": 8, "fc7": 8}),
        ({"need_fc": False, "nopool": True}, {"conv4_4": 4, "conv5_3": 4}),
    ],
)
def test_vgg(options: Any, expected: Any) -> None:
    net = model_libs.VGGNetBody(spec(), "data", freeze_layers=["conv1_1"], **options)
    made = thin(net)
    for name, side in expected.items():
        assert (made.blobs[name].shape[2:] or (None,))[0] == side
    assert [p.lr_mult for p in layers_of(net)["conv1_1"].param] == [0, 0]
    assert [p.lr_mult for p in layers_of(net)["conv1_2"].param] == [1, 2]


def test_zfnet_and_towers() -> None:
    net = model_libs.ZFNetBody(
        spec(96), "data", fully_conv=True, reduced=True, dilated=True, need_fc8=True
    )
    assert thin(net).blobs["fc7"].shape[2:] == (7, 7)
    net = spec()
    tower: list[dict[str, Any]] = [
        {"name": "pool", "pool": 0, "kernel_size": 3, "stride": 2},
        {"name": "conv", "num_output": 8, "kernel_size": 1, "pad": 0, "stride": 1},
    ]
    model_libs.InceptionTower(net, "data", "mixed", tower)
    assert thin(net).blobs["mixed/conv"].shape[2:] == (32, 32)
    assert tower[0]["name"] == "pool"  # what was given stays as it was


def test_inception_v3() -> None:
    """Sizes and channels of the paper's table for images of 299 x 299, TensorFlow's names."""
    net = model_libs.InceptionV3Body(spec(299), "data", output_pred=True, use_global_stats=True)
    layers = layers_of(net)
    wide: dict[str, int] = {}
    for name, layer in layers.items():
        if layer.type == "Convolution":
            wide[name] = layer.convolution_param.num_output
        elif layer.type == "Concat":
            wide[name] = sum(wide[top] for top in layer.bottom)
        elif layer.type == "Pooling":
            wide[name] = wide[layer.bottom[0]]
    joins = [wide[f"{name}/join"] for name in ("mixed", "mixed_1", "mixed_2")]
    assert joins == [256, 288, 288]
    assert [wide[f"mixed_{i}/join"] for i in range(3, 11)] == [768] * 5 + [1280, 2048, 2048]
    assert sum(layer.type == "Convolution" for layer in layers.values()) == 94
    assert "mixed_9/tower_1/mixed/conv_1" in layers and "mixed_6/tower_1/conv_4_bias" in layers
    high = layers["mixed_4/tower/conv_2"].convolution_param
    assert (high.kernel_h, high.kernel_w, high.pad_h, high.pad_w) == (7, 1, 3, 0)
    assert layers["mixed_9/tower_2/pool"].pooling_param.pool == schema.PoolingParameter.AVE
    assert layers["mixed_10/tower_2/pool"].pooling_param.pool == schema.PoolingParameter.MAX
    assert layers["conv_bn"].batch_norm_param.use_global_stats
    made = thin(net)
    for name, side in (("conv_2", 147), ("mixed_2", 35), ("mixed_7", 17), ("mixed_10", 8)):
        assert made.blobs[name if "conv" in name else f"{name}/join"].shape[2:] == (side, side)
    assert made.blobs["pool_3"].shape[2:] == (1, 1)


@pytest.mark.parametrize("body, blocks", [("ResNet101Body", 33), ("ResNet152Body", 50)])
@pytest.mark.parametrize("dilated", [True, False])
def test_resnets(body: str, blocks: int, dilated: bool) -> None:
    net = getattr(model_libs, body)(spec(), "data", use_dilation_conv5=dilated)
    made = layers_of(net)
    sums = [name for name, layer in made.items() if layer.type == "Eltwise"]
    assert len(sums) == blocks and sums[:4] == ["res2a", "res2b", "res2c", "res3a"]
    assert sums[-4] == f"res4b{22 if blocks == 33 else 35}" and sums[-1] == "res5c"
    wide = {name: made[f"{name}_branch2c"].convolution_param.num_output for name in sums}
    assert (wide["res2a"], wide["res5c"]) == (256, 2048)
    stride = made["res5a_branch2a"].convolution_param.stride
    assert list(stride) == ([1] if dilated else [2])
    dilation = made["res5a_branch2b"].convolution_param.dilation
    assert list(dilation) == ([2] if dilated else [])


def test_a_head_with_everything() -> None:
    net = spec()
    model_libs.ConvBNLayer(net, "data", "a", False, True, 8, 3, 1, 8)
    model_libs.ConvBNLayer(net, "a", "b", False, True, 8, 3, 1, 2)
    tops = model_libs.CreateMultiBoxHead(
        net, num_classes=3, from_layers=["a", "b"], normalizations=[20, -1], use_objectness=True,
        min_sizes=[8.0, [16.0, 20.0]], max_sizes=[[], [24.0, 30.0]], aspect_ratios=[[2.0], []],
        steps=[8.0, 16.0], img_height=64, img_width=64, share_location=False,
        inter_layer_depth=[0, 4], kernel_size=3, pad=1, prior_variance=[0.1],
    )  # fmt: skip
    assert len(tops) == 4
    made = caffe.Net(net.to_proto(), caffe.TEST)
    priors = 8 * 8 * 3 + 4 * 4 * 4
    assert made.blobs["mbox_priorbox"].shape == (1, 2, 4 * priors)
    assert made.blobs["mbox_loc"].shape == (1, priors * 4 * 3)
    assert made.blobs["mbox_conf"].shape == (1, priors * 3)
    assert made.blobs["mbox_objectness"].shape == (1, priors * 2)
    names = layers_of(net)
    assert names["a_norm"].norm_param.scale_filler.value == 20 and "b_inter_mbox_conf_flat" in names
    assert names["a_norm_mbox_priorbox"].prior_box_param.img_size == 64


@pytest.mark.parametrize(
    "given, message",
    [
        ({"num_classes": 0}, "needs num_classes"),
        ({"data_layer": "dta"}, 'no data layer "dta"'),
        ({"min_sizes": [1.0, 2.0]}, "min_sizes has 2 entries for 1 from_layers"),
        ({"steps": [1.0, 2.0]}, "steps has 2 entries"),
        ({"max_sizes": [[9.0, 10.0]]}, r"max_sizes\[0\] and min_sizes\[0\] differ in length"),
    ],
)
def test_what_does_not_fit(given: dict[str, Any], message: str) -> None:
    arguments = {"num_classes": 2, "from_layers": ["data"], "min_sizes": [8.0], **given}
    with pytest.raises(ValueError, match=message):
        model_libs.CreateMultiBoxHead(spec(), **arguments)


def test_data_layers_of_both_phases() -> None:
    for train in (True, False):
        net = NetSpec()
        net.data, net.label = model_libs.CreateAnnotatedDataLayer(
            "db", 8, train=train, label_map_file="map", anno_type=0,
            transform_param={"mirror": True}, batch_sampler=[{"max_sample": 1}],
        )  # fmt: skip
        (layer,) = net.to_proto().layer
        assert layer.include[0].phase == (schema.TRAIN if train else schema.TEST)
        assert list(layer.top) == ["data", "label"] and layer.data_param.batch_size == 8
        assert layer.annotated_data_param.HasField("anno_type") and layer.transform_param.mirror
        assert layer.annotated_data_param.batch_sampler[0].max_sample == 1
