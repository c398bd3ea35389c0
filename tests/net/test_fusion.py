"""Layers that do the work of those behind them give what the layers give one by one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.onednn import OneDNNBackend

BLOCK = """
name: "block" force_backward: true
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 3 dim: 5 dim: 9 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 16 kernel_size: 3 pad: 1 weight_filler { type: "msra" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" %(stats)s }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: %(bias)s
  filler { type: "uniform" min: 0.5 max: 1.5 } bias_filler { type: "gaussian" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "side" type: "Convolution" bottom: "data" top: "side"
  convolution_param { num_output: 16 kernel_size: 1 weight_filler { type: "msra" } } }
layer { name: "sum" type: "Eltwise" bottom: "conv" bottom: "side" top: "sum" }
layer { name: "relu2" type: "ReLU" bottom: "sum" top: "sum" relu_param { negative_slope: 0.1 } }
layer { name: "ip" type: "InnerProduct" bottom: "sum" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "relu3" type: "ReLU" bottom: "ip" top: "ip" }
"""
BACKENDS = [OneDNNBackend, NumPyBackend]


def make(text: str, backend: Backend, fused: bool, phase: int) -> caffe.Net:
    caffe.set_random_seed(3)
    param = schema.parse_text(text, schema.NetParameter())
    param.debug_info = not fused
    return caffe.Net(param, phase, backend=backend)


def run(net: caffe.Net, passes: int = 2) -> dict[str, Any]:
    """Two passes, because buffers swap and gradients add up."""
    rng = np.random.default_rng(5)
    found: dict[str, Any] = {}
    for i in range(passes):
        net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape)
        net.forward()
        net.blobs["ip"].diff[...] = rng.standard_normal(net.blobs["ip"].shape)
        net.backward()
        found |= {f"{i} {name}": b.data.copy() for name, b in net.blobs.items()}
        found[f"{i} dx"] = net.blobs["data"].diff.copy()
    for name, blobs in net.params.items():
        found |= {f"{name} {i}": np.stack([b.data, b.diff]) for i, b in enumerate(blobs)}
    return found


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("bias", ["true", "false"])
@pytest.mark.parametrize("phase", [caffe.TRAIN, caffe.TEST])
def test_fused_equals_one_by_one(kind: type[Backend], bias: str, phase: int) -> None:
    text = BLOCK % {"bias": bias, "stats": "batch_norm_param { use_global_stats: false }"}
    fused, plain = (make(text, kind(1), f, phase) for f in (True, False))
    assert len(fused.groups) == 3 and not plain.groups
    expected = run(plain)
    for name, value in run(fused).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("kind", BACKENDS)
def test_global_statistics(kind: type[Backend]) -> None:
    text = BLOCK % {"bias": "true", "stats": "batch_norm_param { use_global_stats: true }"}
    fused, plain = (make(text, kind(1), f, caffe.TEST) for f in (True, False))
    for net in (fused, plain):
        for blob, value in zip(net.params["bn"], (2.0, 3.0, 2.0), strict=True):
            blob.data[...] = value
    expected = run(plain)
    for name, value in run(fused).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("end", ["conv", "bn", "scale", "relu", "sum"])
def test_a_range_that_cuts_a_group_runs_its_layers_one_by_one(end: str) -> None:
    text = BLOCK % {"bias": "true", "stats": ""}
    fused, plain = (make(text, OneDNNBackend(1), f, caffe.TRAIN) for f in (True, False))
    values = np.random.default_rng(1).standard_normal(fused.blobs["data"].shape)
    (name,) = fused.tops_of(end)
    for net in (fused, plain):
        net.blobs["data"].data[...] = values
        net.forward(end=end)
    np.testing.assert_allclose(fused.blobs[name].data, plain.blobs[name].data, rtol=1e-4, atol=1e-5)
    for net in (fused, plain):
        after = net.layers[net._index(end) + 1].name
        net.forward(start=after)
    np.testing.assert_allclose(fused.blobs["ip"].data, plain.blobs["ip"].data, rtol=1e-4, atol=1e-5)


def test_a_scale_over_a_frozen_normalisation_still_learns() -> None:
    text = (BLOCK % {"bias": "true", "stats": ""}).replace("force_backward: true", "")
    text = text.replace('layer { name: "conv" type: "Conv', 'layer { name: "unused" type: "Conv')
    text = text.replace('bottom: "data" top: "conv"\n', 'bottom: "data" top: "unused"\n')
    text = text.replace(
        'type: "BatchNorm" bottom: "conv"', 'type: "BatchNorm" bottom: "data"'
    ).replace("num_output: 16 kernel_size: 1", "num_output: 5 kernel_size: 1")
    text += 'layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }'
    net = make(text, OneDNNBackend(1), True, caffe.TRAIN)
    net.blobs["data"].data[...] = np.random.default_rng(1).standard_normal((3, 5, 9, 8))
    net.forward()
    net.backward()
    assert np.abs(net.params["scale"][0].diff).max() > 0


BEHIND = BLOCK.replace('bottom: "conv" top: "conv" %(stats)s', 'bottom: "conv" top: "bn" %(stats)s')
for _name in ("scale", "relu"):
    BEHIND = re.sub(
        rf'(name: "{_name}" type: "\w+") bottom: "conv" top: "conv"',
        r'\1 bottom: "bn" top: "bn"',
        BEHIND,
    )
BEHIND = BEHIND.replace('"Eltwise" bottom: "conv"', '"Eltwise" bottom: "bn"')
CUTS = [("relu", "scale"), ("scale", "bn"), ("bn", "conv"), ("sum", "relu"), ("relu2", "sum")]


def pair(text: str, kind: type[Backend]) -> tuple[caffe.Net, caffe.Net]:
    """The same net with and without groups, after the same forward pass."""
    made = []
    for fused in (True, False):
        net = make(text % {"bias": "true", "stats": ""}, kind(1), fused, caffe.TRAIN)
        rng = np.random.default_rng(5)
        net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape)
        net.forward()
        net.blobs["ip"].diff[...] = rng.standard_normal(net.blobs["ip"].shape)
        made.append(net)
    assert made[0].groups and not made[1].groups
    return made[0], made[1]


def everything(net: caffe.Net) -> dict[str, Any]:
    """All that a user can look at."""
    found = {f"blob {n}": np.stack([b.data, b.diff]) for n, b in net.blobs.items()}
    for name, blobs in net.params.items():
        found |= {f"{name} {i}": np.stack([b.data, b.diff]) for i, b in enumerate(blobs)}
    return found


def assert_same(fused: caffe.Net, plain: caffe.Net) -> None:
    expected = everything(plain)
    for name, value in everything(fused).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-4, atol=5e-5, err_msg=name)


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("text", [BLOCK, BEHIND], ids=["in place", "behind"])
@pytest.mark.parametrize("cut", CUTS)
def test_backward_may_be_cut_anywhere(kind: type[Backend], text: str, cut: tuple[str, str]) -> None:
    """Twice, because what was taken apart in one pass is one op again in the next."""
    fused, plain = pair(text, kind)
    for _ in range(2):
        for net in (fused, plain):
            net.backward(end=cut[0])
        assert_same(fused, plain)
        for net in (fused, plain):
            net.backward(start=cut[1])
        assert_same(fused, plain)
        for net in (fused, plain):
            net.forward()
            net.blobs["ip"].diff[...] = 1
            net.backward()
        assert_same(fused, plain)


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("text", [BLOCK, BEHIND], ids=["in place", "behind"])
def test_a_single_layer_of_a_group(kind: type[Backend], text: str) -> None:
    fused, plain = pair(text, kind)
    top = "conv" if text is BLOCK else "bn"
    for layer in ("scale", "bn", "relu"):
        for net in (fused, plain):
            net.blobs[top].diff[...] = 0.5
            net.backward(start=layer, end=layer)
        assert_same(fused, plain)


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("text", [BLOCK, BEHIND], ids=["in place", "behind"])
def test_blobs_of_a_group_show_what_caffe_s_would(kind: type[Backend], text: str) -> None:
    fused, plain = pair(text, kind)
    for net in (fused, plain):
        net.backward()
    assert_same(fused, plain)
    assert_same(fused, plain)  # looking twice changes nothing
    for net in (fused, plain):
        net.run_forward()
        net.run_backward()
        net.run_backward(0, 0)  # a pass below the group leaves it as it is
    assert_same(fused, plain)


def test_two_normalisations_in_place_on_one_blob() -> None:
    """Both set their input aside by swapping buffers, which must not meet."""
    again = (
        'layer { name: "bn2" type: "BatchNorm" bottom: "conv" top: "conv" }\nlayer { name: "side"'
    )
    text = (BLOCK % {"bias": "true", "stats": ""}).replace('layer { name: "side"', again)
    nets = make(text, OneDNNBackend(1), True, caffe.TRAIN), make(text, NumPyBackend(), True, 0)
    expected = run(nets[1], 4)
    for name, value in run(nets[0], 4).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=2e-4, err_msg=name)
