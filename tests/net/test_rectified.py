"""Gradients that a layer writes as the ReLU before it would leave them: bit for bit the same, and
never where somebody could see that the ReLU has not run."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.compiled import available
from pycaffe_fire.backend.onednn import OneDNNBackend

from .join_cases import everything, run

pytestmark = pytest.mark.skipif(not available(), reason="these are kernels of numba's")

CHANNELS = 64
INPUT = """layer { name: "in" type: "Input" top: "data"
  input_param { shape { dim: 8 dim: 64 dim: 27 dim: 27 } } }"""


def conv(name: str, bottom: str, size: int, relu: str | None = "") -> str:
    text = f"""layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}"
      convolution_param {{ num_output: {CHANNELS} kernel_size: {size} pad: {size // 2}
        weight_filler {{ type: "msra" }} bias_filler {{ type: "gaussian" }} }} }}"""
    if relu is not None:
        text += f"""layer {{ name: "relu_{name}" type: "ReLU" bottom: "{name}" top: "{name}"
          relu_param {{ {relu} }} }}"""
    return text


def pool(bottom: str, size: int, more: str = "") -> str:
    return f"""layer {{ name: "pool" type: "Pooling" bottom: "{bottom}" top: "pool"
      pooling_param {{ pool: MAX kernel_size: {size} stride: 2 {more} }} }}"""


CONCAT = 'layer { name: "concat" type: "Concat" bottom: "b" bottom: "c" top: "concat" }'
NETS = {
    "pool of 3": conv("a", "data", 1) + pool("a", 3),
    "pool of 2": conv("a", "data", 1) + pool("a", 2),
    "padded pool": conv("a", "data", 1) + pool("a", 3, "pad: 1"),
    "pool changed in place": conv("a", "data", 1) + pool("a", 3)
    + 'layer { name: "minus" type: "Power" bottom: "pool" top: "pool" power_param { scale: -1 } }',
    "concat": conv("a", "data", 1) + conv("b", "a", 1) + conv("c", "a", 1) + CONCAT,
    "concat, one of them": conv("b", "data", 1) + conv("c", "data", 1, None) + CONCAT,
    "window": conv("a", "data", 1) + conv("b", "a", 3, None),
    "two windows": conv("a", "data", 3) + conv("b", "a", 3) + conv("c", "b", 5),
}  # fmt: skip


def make(text: str, rectified: bool = True) -> caffe.Net:
    caffe.set_random_seed(3)
    param = schema.parse_text(INPUT + text + "force_backward: true", schema.NetParameter())
    net = caffe.Net(param, caffe.TRAIN, backend=OneDNNBackend(2))
    if not rectified:
        net.run_one_by_one()
    return net


def assert_same(net: caffe.Net, plain: caffe.Net) -> None:
    expected = everything(plain)
    for name, value in everything(net).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.parametrize("text", NETS.values(), ids=NETS)
def test_all_that_can_be_seen_is_the_same(text: str) -> None:
    net, plain = make(text), make(text, rectified=False)
    for seed in range(2):
        for each in (net, plain):
            run(each, seed)
        assert net._rectified.done and not plain._rectified.done
        assert_same(net, plain)


@pytest.mark.parametrize("text", [NETS["pool of 3"], NETS["concat"], NETS["two windows"]])
@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_pass_that_stops_beside_a_relu(text: str, cut: str) -> None:
    """Before it has run, its gradient is not yet cut; then it does its own work."""
    net, plain = make(text), make(text, rectified=False)
    last = next(layer.name for layer in net.layers if layer.type == "ReLU")
    above = net._layer_names[net._index(last) + 1]
    for each in (net, plain):
        run(each)
        each.backward(end=above if cut == "before" else last)
    assert_same(net, plain)
    for each in (net, plain):
        if cut == "before":
            each.backward(start=last)
    assert_same(net, plain)


def test_a_hook_sees_the_gradient_before_the_relu_cuts_it() -> None:
    net = make(NETS["pool of 3"])
    seen: dict[str, int] = {}

    def note(index: int) -> None:
        seen[net._layer_names[index]] = int(np.count_nonzero(net.blobs["a"].diff))

    net.after_backward(note)
    run(net)
    assert seen["pool"] > seen["relu_a"] > 0


def test_an_infinite_gradient_is_no_less_seen_than_in_caffe() -> None:
    """Times 0 it is NaN."""
    for text, name in (("pool of 3", "a"), ("concat", "b"), ("window", "a")):
        net = make(NETS[text])
        run(net)
        net.blobs[net.outputs[0]].diff[...] = np.inf
        net.backward()
        assert net._rectified.done
        assert np.isnan(net.blobs[name].diff).any()


def test_a_leaky_relu_does_its_own_work() -> None:
    net = make(conv("a", "data", 1, "negative_slope: 0.1") + pool("a", 3))
    run(net)
    assert not net._rectified.done
