"""The detectors under models/ and MobileNet-SSD: the papers' boxes and shapes, and a step of
training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.data import shapes
from pycaffe_fire.pycaffe import NetSpec, model_libs
from pycaffe_fire.pycaffe import layers as L
from tests.models.model_shapes import MODELS


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shapes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "SPLITS", {"train": 4})
        shapes.make_shapes(folder)
    return str(folder / "shapes_train_lmdb")


def narrow(net: Any, factor: int) -> None:
    """The same net with fewer channels, where they are not predictions."""
    for layer in net.layer:
        param = layer.convolution_param
        if layer.type == "Convolution" and "mbox" not in layer.name:
            param.num_output = max(4, param.num_output // factor)
            param.group = 1 if param.group == 1 else param.num_output


def step(net: Any, database: str, batch: int) -> Any:
    """The solver after one step on the shapes."""
    for layer in net.layer:
        if layer.type == "AnnotatedData":
            layer.data_param.source, layer.data_param.batch_size = database, batch
    param = schema.SolverParameter(base_lr=0.001, lr_policy="fixed", random_seed=1, type="SGD")
    net.state.phase = schema.TRAIN
    param.train_net_param.CopyFrom(net)
    solver = caffe.get_solver(param)
    before = {name: blobs[0].data.copy() for name, blobs in solver.net.params.items()}
    solver.step(1)
    loss = float(solver.net.blobs["mbox_loss"].data)
    assert np.isfinite(loss) and loss > 0
    moved = [not np.array_equal(old, solver.net.params[n][0].data) for n, old in before.items()]
    assert np.mean(moved) > 0.9
    return solver


MAPS = {"conv4_3_norm": 38, "fc7": 19, "conv6_2": 10, "conv7_2": 5, "conv8_2": 3, "conv9_2": 1}


def test_ssd300_has_the_papers_boxes() -> None:
    net = schema.read_net(MODELS / "ssd300_vgg16" / "deploy.prototxt")
    wide = {layer.name: layer.convolution_param.num_output for layer in net.layer}
    assert (wide["fc6"], wide["fc7"], wide["conv6_2"], wide["conv9_2"]) == (1024, 1024, 512, 256)
    narrow(net, 64)
    made = caffe.Net(net, caffe.TEST)
    assert {name: made.blobs[name].shape[2] for name in MAPS} == MAPS
    assert made.blobs["mbox_priorbox"].shape == (1, 2, 4 * 8732)
    assert made.blobs["mbox_conf"].shape == (1, 8732 * 21)
    made.forward()
    sizes = made.blobs["mbox_priorbox"].data[0, 0].reshape(-1, 4)
    first = sizes[:4, 2:] - sizes[:4, :2]  # 30, sqrt(30 60), and ratios 2 and 1/2
    expected = np.array([[30, 30], [1800**0.5] * 2, [30 * 2**0.5, 30 / 2**0.5],
                         [30 / 2**0.5, 30 * 2**0.5]])  # fmt: skip
    assert np.allclose(first * 300, expected, atol=1e-3)


def test_ssd300_trains(database: str) -> None:
    net = schema.read_net(MODELS / "ssd300_vgg16" / "train_val.prototxt")
    narrow(net, 32)
    solver = step(net, database, 1)
    assert solver.net.blobs["data"].shape == (1, 3, 300, 300)


def test_the_small_ssd(database: str) -> None:
    solver = step(schema.read_net(MODELS / "ssd_mini" / "train_val.prototxt"), database, 4)
    assert solver.net.blobs["mbox_priorbox"].shape == (1, 2, 4 * 1512)
    deploy = caffe.Net(str(MODELS / "ssd_mini" / "deploy.prototxt"), caffe.TEST)
    deploy.share_with(solver.net)
    assert deploy.forward()["detection_out"].shape[3] == 7


def mobilenet_ssd() -> Any:
    """MobileNet v1 without its classifier, and SSD's boxes for 300x300 pixels."""
    net = NetSpec()
    net.data, net.label = model_libs.CreateAnnotatedDataLayer(
        "", transform_param={"resize_param": {"height": 300, "width": 300}, "scale": 0.007843,
                             "mean_value": [127.5]},
    )  # fmt: skip
    model_libs.ConvBNLayer(net, "data", "conv0", True, True, 32, 3, 1, 2)
    last, width = "conv0", 32
    for number, (wide, stride) in enumerate(
        ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2),
         (1024, 1)), 1,
    ):  # fmt: skip
        name = f"conv{number}"
        model_libs.ConvBNLayer(net, last, f"{name}/dw", True, True, width, 3, 1, stride)
        net.update(f"{name}/dw", {"group": width})
        model_libs.ConvBNLayer(net, f"{name}/dw", name, True, True, wide, 1, 0, 1)
        last, width = name, wide
    for number, wide in ((14, 512), (15, 256), (16, 256), (17, 128)):
        model_libs.ConvBNLayer(net, last, f"conv{number}_1", True, True, wide // 2, 1, 0, 1)
        last = f"conv{number}_2"
        model_libs.ConvBNLayer(net, f"conv{number}_1", last, True, True, wide, 3, 1, 2)
    boxes = model_libs.CreateMultiBoxHead(
        net, num_classes=21, use_batchnorm=False, clip=False,
        from_layers=["conv11", "conv13", "conv14_2", "conv15_2", "conv16_2", "conv17_2"],
        min_sizes=[60.0, 105.0, 150.0, 195.0, 240.0, 285.0],
        max_sizes=[[], 150.0, 195.0, 240.0, 285.0, 300.0],
        aspect_ratios=[[2.0], *[[2.0, 3.0]] * 5], prior_variance=[0.1, 0.1, 0.2, 0.2],
    )  # fmt: skip
    net.mbox_loss = L.MultiBoxLoss(*boxes, net.label, num_classes=21, code_type=2)
    return net.to_proto()


def test_mobilenet_ssd(database: str) -> None:
    net = mobilenet_ssd()
    narrow(net, 8)
    made = step(net, database, 2).net
    sides = [made.blobs[f"conv{n}"].shape[2] for n in ("0", "11", "13", "14_2", "15_2", "16_2")]
    assert sides == [150, 19, 10, 5, 3, 2] and made.blobs["conv17_2"].shape[2:] == (1, 1)
    assert made.blobs["mbox_priorbox"].shape == (1, 2, 4 * 1917)
