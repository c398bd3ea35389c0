"""Nets of well-known papers build with the papers' shapes, and learn from a step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from tests.models import paper_nets, rpn_layers

Shapes = dict[str, tuple[int, ...]]


def parsed(text: str) -> Any:
    return schema.parse_text(text, schema.NetParameter())


def trained(text: str, folder: Path, feeds: dict[str, Any] | None = None) -> Any:
    """The net after a step of SGD, which must have changed every weight with a gradient."""
    (folder / "net.prototxt").write_text(text)
    solver = folder / "solver.prototxt"
    solver.write_text(
        f'net: "{folder / "net.prototxt"}" base_lr: 0.001 momentum: 0.9 lr_policy: "fixed" '
        "random_seed: 3 snapshot_after_train: false"
    )
    made = caffe.get_solver(str(solver))
    for name, value in (feeds or {}).items():
        made.net.blobs[name].data[...] = value
    before = {name: [b.data.copy() for b in blobs] for name, blobs in made.net.params.items()}
    made.step(1)
    losses = [float(made.net.blobs[n].data) for n in made.net.outputs if "loss" in n]
    assert losses and np.isfinite(losses).all() and max(losses) > 0
    moved = [
        any(not np.array_equal(old, blob.data) for old, blob in zip(olds, blobs, strict=True))
        for olds, blobs in zip(before.values(), made.net.params.values(), strict=True)
    ]
    assert np.mean(moved) > 0.95, [n for n, m in zip(before, moved, strict=True) if not m]
    return made.net


NETS: dict[str, tuple[Callable[[int, int], str], int, Shapes]] = {
    "deeplab": (paper_nets.deeplab_large_fov, 65,
                {"pool3": (9, 9), "pool5": (9, 9), "fc8": (9, 9), "label_shrink": (9, 9)}),
    "segnet": (paper_nets.segnet, 64, {"pool5": (2, 2), "upsample5": (4, 4), "score": (64, 64)}),
    "pspnet": (paper_nets.pspnet50, 89,
               {"pool1": (23, 23), "conv5_3": (12, 12), "conv5_3_pool6": (6, 6),
                "conv6_interp": (89, 89)}),
    "enet": (paper_nets.enet, 64, {"initial": (32, 32), "down2_add": (8, 8), "score": (64, 64)}),
    "crnn": (paper_nets.crnn, 100, {"pool6": (2, 25), "conv7": (1, 24)}),
    "densenet": (paper_nets.densenet121, 64,
                 {"pool1": (16, 16), "pool4": (2, 2), "fc6": (1, 1)}),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_a_narrow_one_learns(name: str, tmp_path: Path) -> None:
    make, size, shapes = NETS[name]
    net = trained(make(size, 8 if name != "densenet" else 4), tmp_path)
    assert {blob: net.blobs[blob].shape[2:] for blob in shapes} == shapes


def count(net: Any) -> int:
    """Learned numbers: all but the statistics of batches."""
    kinds = {layer.name: layer.type for layer in net.layers}
    return sum(
        blob.count
        for name, blobs in net.params.items()
        for blob in blobs
        if kinds[name] != "BatchNorm"
    )


def test_densenet_121_has_the_papers_size() -> None:
    net = caffe.Net(parsed(paper_nets.densenet121(64, 1)), caffe.TRAIN)
    assert count(net) == 7_978_856
    assert net.blobs["pool1"].shape == (1, 64, 16, 16)  # ceil_mode: false; else it were 17
    assert net.blobs["concat_5_16"].shape == (1, 1024, 2, 2)


def test_shapes_at_the_papers_sizes() -> None:
    """Where narrower nets have the same maps."""
    deeplab = caffe.Net(parsed(paper_nets.deeplab_large_fov(321, 32)), caffe.TRAIN)
    assert deeplab.blobs["fc8"].shape == deeplab.blobs["label_shrink"].shape[:1] + (21, 41, 41)
    psp = caffe.Net(parsed(paper_nets.pspnet50(473, 32)), caffe.TRAIN)
    assert psp.blobs["conv5_3"].shape[2:] == (60, 60)
    assert psp.blobs["conv6_interp"].shape == (1, 21, 473, 473)


@pytest.fixture
def python_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rpn_layers", rpn_layers)


def test_faster_r_cnn_end_to_end(python_layers: None, tmp_path: Path) -> None:
    feeds = {
        "data": np.random.default_rng(2).normal(size=(1, 3, 96, 96)),
        "im_info": [[96, 96, 1]],
        "gt_boxes": [[10, 20, 60, 70, 3], [40, 5, 90, 60, 12]],
    }
    net = trained(paper_nets.faster_rcnn_vgg16(96, 8), tmp_path, feeds)
    assert net.blobs["rpn_cls_score"].shape == (1, 18, 6, 6)
    assert net.blobs["rpn_cls_prob_reshape"].shape == (1, 18, 6, 6)
    rois = net.blobs["rois"].data
    assert 2 < len(rois) <= 16 and rois[0].tolist() == [0, 10, 20, 60, 70]
    assert net.blobs["pool5"].shape == (len(rois), 64, 7, 7)
    assert net.blobs["bbox_pred"].shape == (len(rois), 84)


@pytest.mark.parametrize(("phase", "most"), [(caffe.TRAIN, 16), (caffe.TEST, 4)])
def test_python_layers_ask_for_their_phase(python_layers: None, phase: int, most: int) -> None:
    """cfg[str(self.phase)], and int(self.phase) as well."""
    text = """
    layer { name: "in" type: "Input" top: "rois" top: "boxes"
      input_param { shape { dim: 30 dim: 5 } shape { dim: 1 dim: 5 } } }
    layer { name: "t" type: "Python" bottom: "rois" bottom: "boxes" top: "a" top: "b" top: "c"
      top: "d" top: "e" python_param { module: "rpn_layers" layer: "ProposalTargetLayer"
      param_str: "'num_classes': 3" } }"""
    net: Any = caffe.Net(parsed(text), phase)
    net.forward()
    assert net.blobs["a"].shape == (most, 5)
    asked = net.layers[-1].user.phase
    assert asked == phase and int(asked) == phase and str(asked) == ("TRAIN", "TEST")[phase]


def test_fcn_s_data_layer_changes_the_size_of_every_image(python_layers: None) -> None:
    text = """
    layer { name: "data" type: "Python" top: "data" top: "label"
      python_param { module: "rpn_layers" layer: "VOCSegDataLayer"
      param_str: "{\\'sizes\\': [(8, 9), (6, 12)], \\'randomize\\': False}" } }
    layer { name: "c" type: "Convolution" bottom: "data" top: "c"
      convolution_param { num_output: 2 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "c" bottom: "label" top: "loss"
      loss_param { ignore_label: 255 normalize: false } }"""
    net = caffe.Net(parsed(text), caffe.TRAIN)
    for size in ((8, 9), (6, 12), (8, 9)):
        net.forward()
        net.backward()
        assert net.blobs["c"].shape[2:] == size and net.params["c"][0].diff.shape == (2, 3, 3, 3)
