"""Values that lie where gradients will be: training is the same, and who looks finds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.cpu import library
from pycaffe_fire.backend.onednn import OneDNNBackend

from .join_cases import CONV, run

pytestmark = pytest.mark.skipif(not library.available(), reason="the CPU kernels are not compiled")

NORM = """layer { name: "norm_%(x)s" type: "BatchNorm" bottom: "%(x)s" top: "%(x)s" }
layer { name: "scale_%(x)s" type: "Scale" bottom: "%(x)s" top: "%(x)s" scale_param { bias_term: true
  filler { type: "uniform" min: 0.5 max: 1.5 } bias_filler { type: "gaussian" } } }
"""
RELU = 'layer { name: "relu_%(x)s" type: "ReLU" bottom: "%(x)s" top: "%(x)s" }\n'
NET = (
    'force_backward: true layer { name: "in" type: "Input" top: "data" input_param { '
    "shape { dim: 3 dim: 16 dim: 9 dim: 9 } } }"
    + CONV % ("first", "data", "first", 32) + NORM % {"x": "first"} + RELU % {"x": "first"}
    + 'layer { name: "pool" type: "Pooling" bottom: "first" top: "pool" pooling_param { '
    "kernel_size: 3 stride: 2 } }"
    + CONV % ("one", "pool", "one", 32) + NORM % {"x": "one"}
    + CONV % ("two", "pool", "two", 32) + NORM % {"x": "two"}
    + 'layer { name: "sum" type: "Eltwise" bottom: "one" bottom: "two" top: "sum" }'
    + RELU % {"x": "sum"} + CONV % ("last", "sum", "last", 16)
)  # fmt: skip
PASSING = ("first", "one")


def make(passing: bool) -> caffe.Net:
    caffe.set_random_seed(3)
    param = schema.parse_text(NET, schema.NetParameter())
    net = caffe.Net(param, caffe.TRAIN, backend=OneDNNBackend(2))
    if passing:
        net.share_gradients()
        assert {value.lifetime.tensor for value in net.passing} == {
            net.blobs[name].value for name in PASSING
        }
    return net


@pytest.fixture
def nets() -> tuple[caffe.Net, caffe.Net]:
    return make(True), make(False)


def weights(net: caffe.Net) -> dict[str, Any]:
    return {
        f"{name}[{i}] {what}": np.copy(getattr(blob, what))
        for name, blobs in net.params.items()
        for i, blob in enumerate(blobs)
        for what in ("data", "diff")
    }


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def values(net: caffe.Net) -> dict[str, Any]:
    return {name: blob.data.copy() for name, blob in net.blobs.items()}


def test_training_is_the_same(nets: tuple[caffe.Net, caffe.Net]) -> None:
    for seed in range(3):
        for net in nets:
            run(net, seed)
        assert_same(*map(weights, nets))


@pytest.mark.parametrize("when", ["between the passes", "after them"])
def test_all_values_are_there_for_who_looks(nets: tuple[caffe.Net, caffe.Net], when: str) -> None:
    for seed in range(2):
        for net in nets:
            run(net, seed)
            if when == "between the passes":
                net.forward()
        seen, expected = map(values, nets)
        for name in seen:  # in NumPy's order of arithmetic
            np.testing.assert_allclose(seen[name], expected[name], rtol=1e-5, atol=1e-6)
        for net in nets:
            run(net, seed + 5)  # looking has changed nothing
        assert_same(*map(weights, nets))


def test_memory_is_saved(nets: tuple[caffe.Net, caffe.Net]) -> None:
    passing, _ = nets
    run(passing)
    arena = passing.blobs["pool"].gradient.buffer
    assert arena is not None
    for name in PASSING:
        assert np.may_share_memory(passing.blobs[name].value.buffer, arena.base)


def test_an_array_that_is_held_follows(nets: tuple[caffe.Net, caffe.Net]) -> None:
    held = [[net.blobs[name].data for name in PASSING] for net in nets]
    for seed in range(2):
        for net in nets:
            run(net, seed)
        for ours, theirs in zip(*held, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        assert_same(*map(weights, nets))
    held.clear()
    for net in nets:
        run(net, 7)
    assert_same(*map(weights, nets))


@pytest.mark.parametrize("start", ["pool", "norm_one", "one", "sum", "last"])
def test_a_pass_that_begins_behind_them(nets: tuple[caffe.Net, caffe.Net], start: str) -> None:
    for net in nets:
        run(net)
        net.forward(start=start)
        net.backward()
    close(nets)
    for net in nets:
        run(net, 9)
    for name, value in weights(nets[0]).items():
        np.testing.assert_allclose(value, weights(nets[1])[name], rtol=1e-3, atol=1e-3)


def close(nets: tuple[caffe.Net, caffe.Net]) -> None:
    for name, value in values(nets[0]).items():
        np.testing.assert_allclose(
            value, nets[1].blobs[name].data, rtol=1e-4, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize("end", ["first", "pool", "one", "sum"])
def test_a_pass_that_ends_before_the_last_layer(
    nets: tuple[caffe.Net, caffe.Net], end: str
) -> None:
    """Blobs above keep what they had."""
    for net in nets:
        run(net)
        net.blobs["data"].data[...] *= -2
        net.forward(end=end)
    close(nets)
    for net in nets:
        run(net, 8)
    close(nets)


@pytest.mark.parametrize("end", ["last", "sum", "norm_two", "scale_one", "relu_first"])
def test_a_backward_pass_in_two_parts(nets: tuple[caffe.Net, caffe.Net], end: str) -> None:
    for net in nets:
        run(net)
        net.backward(end=end)
        net.backward(start=net._layer_names[net._index(end) - 1])
    close(nets)
    for name, value in weights(nets[0]).items():
        np.testing.assert_allclose(value, weights(nets[1])[name], rtol=1e-3, atol=1e-3)


def test_layers_that_run_one_by_one_from_now_on(nets: tuple[caffe.Net, caffe.Net]) -> None:
    for net in nets:
        run(net)
        net.run_one_by_one()
    close(nets)
    for net in nets:
        run(net, 4)
    close(nets)


def test_another_shape(nets: tuple[caffe.Net, caffe.Net]) -> None:
    for net in nets:
        run(net)
        net.blobs["data"].reshape(5, 16, 11, 11)
        net.reshape()
        run(net, 6)
    assert_same(*map(weights, nets))
    assert nets[0].blobs["first"].data.shape[0] == 5
