"""Branches that meet in one op give what the layers give one by one, and show it to who looks."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.compiled import available
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.onednn import OneDNNBackend

pytestmark = pytest.mark.skipif(not available(), reason="joins are kernels of numba's")

CONV = """layer { name: "%s" type: "Convolution" bottom: "%s" top: "%s" convolution_param {
  num_output: %d kernel_size: 1 weight_filler { type: "msra" } bias_filler { type: "gaussian" } } }
"""
RELU = """layer { name: "relu%(name)s" type: "ReLU" bottom: "sum%(name)s" top: "sum%(name)s"
  relu_param { %(param)s } }
"""
SCALE = """layer { name: "scale%(name)s" type: "Scale" bottom: "%(y)s" top: "%(y)s" scale_param {
  bias_term: %(bias)s filler { type: "uniform" min: 0.5 max: 1.5 }
  bias_filler { type: "gaussian" } } }
"""


def residual(
    name: str, bottom: str, addend: str, channels: int = 16, y: str = "branch",
    relu: str | None = "", scale: bool = True, bias: str = "true", first: bool = False,
    stats: str = "",
) -> str:  # fmt: skip
    """A normalised branch over `bottom`, to which `addend` is added: "sum" and its name.

    Its blob is "branch" and the name, normalised in place, or `y` and the name. `first`: does the
    sum name it first?
    """
    made, blobs = y + name, (f'"{y}{name}"', f'"{addend}"')
    bottoms = " ".join(f"bottom: {blob}" for blob in (blobs if first else blobs[::-1]))
    text = CONV % (f"branch{name}", bottom, f"branch{name}", channels)
    text += f'layer {{ name: "norm{name}" type: "BatchNorm" bottom: "branch{name}" top: "{made}" '
    text += stats + " }\n" + (SCALE % {"name": name, "y": made, "bias": bias} if scale else "")
    text += f'layer {{ name: "sum{name}" type: "Eltwise" {bottoms} top: "sum{name}" }}\n'
    return text + (RELU % {"name": name, "param": relu} if relu is not None else "")


def block(batch: int = 3, channels: int = 16, size: int = 5, readers: int = 2, **rest: Any) -> str:
    """Two branches over "data" that meet, and what reads their sum."""
    text = 'name: "block" force_backward: true layer { name: "data" type: "Input" top: "data" '
    text += f"input_param {{ shape {{ dim: {batch} dim: 5 dim: {size} dim: {size} }} }} }}\n"
    text += CONV % ("side", "data", "side", channels)
    text += residual("", "data", "side", channels, **rest)
    for i in range(readers):
        text += CONV % (f"reader{i}", "sum", f"reader{i}", 3)
    return text


def make(text: str, joined: bool, backend: Backend | None = None) -> caffe.Net:
    caffe.set_random_seed(3)
    param = schema.parse_text(text, schema.NetParameter())
    net = caffe.Net(param, caffe.TRAIN, backend=backend or OneDNNBackend(1))
    if joined:
        assert len(list(net.joins)) == 1
    else:
        net.joins.dissolve()
    return net


def run(net: caffe.Net, seed: int = 5) -> None:
    rng = np.random.default_rng(seed)
    net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape)
    net.forward()
    for name in net.outputs:
        net.blobs[name].diff[...] = rng.standard_normal(net.blobs[name].shape)
    net.backward()


def everything(net: caffe.Net) -> dict[str, Any]:
    """All that a user can look at; of a Split's tops the gradients are its own business."""
    found = {f"{n} data": b.data.copy() for n, b in net.blobs.items()}
    found |= {f"{n} diff": b.diff.copy() for n, b in net.blobs.items() if "split" not in n}
    for name, blobs in net.params.items():
        for i, blob in enumerate(blobs):
            found |= {f"{name}[{i}]": blob.data.copy(), f"{name}[{i}] diff": blob.diff.copy()}
    return found


def assert_same(joined: caffe.Net, plain: caffe.Net) -> None:
    expected = everything(plain)
    for name, value in everything(joined).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-4, atol=5e-5, err_msg=name)


def ran(net: caffe.Net) -> bool:
    return all(join.runs for join in net.joins)


CASES: dict[str, dict[str, Any]] = {
    "as in a ResNet": {},
    "branch first": {"first": True},
    "not in place": {"y": "y"},
    "not in place, no scale": {"y": "y", "scale": False},
    "no scale": {"scale": False},
    "no shift": {"bias": "false"},
    "no ReLU": {"relu": None},
    "leaky": {"relu": "negative_slope: 0.1"},
    "one reader": {"readers": 1},
    "no reader": {"readers": 0},
    "three readers": {"readers": 3},
    "one sample": {"batch": 1},
    "odd channels": {"channels": 13},
    "few channels": {"channels": 3, "batch": 2},
    "one pixel": {"size": 1, "batch": 8},
    "many pixels": {"size": 19, "batch": 2, "channels": 20},
    "frozen statistics": {"stats": "batch_norm_param { use_global_stats: true }"},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_join_equals_its_layers(case: dict[str, Any]) -> None:
    joined, plain = (make(block(**case), flag) for flag in (True, False))
    for net in (joined, plain):
        for blob, value in zip(net.params["norm"], (2.0, 3.0, 2.0), strict=True):
            blob.data[...] = value
    for seed in range(2):  # gradients add up, running averages fade
        for net in (joined, plain):
            run(net, seed)
        assert ran(joined)
        assert_same(joined, plain)
        assert_same(joined, plain)  # looking twice changes nothing


CUTS = ["branch", "norm", "scale", "sum", "relu"]


@pytest.mark.parametrize("y", ["branch", "y"], ids=["in place", "not in place"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_forward_pass_may_be_cut_anywhere(cut: str, y: str) -> None:
    joined, plain = (make(block(y=y), flag) for flag in (True, False))
    for net in (joined, plain):
        run(net)
        net.blobs["data"].data[...] *= -2
        net.forward(end=cut)
    assert_same(joined, plain)
    for net in (joined, plain):
        net.forward(start=net.layers[net._index(cut) + 1].name)
        net.backward()
    assert_same(joined, plain)
    for net in (joined, plain):
        run(net, 6)
    assert ran(joined)
    assert_same(joined, plain)


@pytest.mark.parametrize("y", ["branch", "y"], ids=["in place", "not in place"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_backward_pass_may_be_cut_anywhere(cut: str, y: str) -> None:
    joined, plain = (make(block(y=y), flag) for flag in (True, False))
    for net in (joined, plain):
        run(net)
        net.backward(end=net.layers[net._index(cut) + 1].name)
    assert_same(joined, plain)
    for net in (joined, plain):
        net.backward(start=cut)
    assert_same(joined, plain)
    for net in (joined, plain):
        run(net, 6)
    assert ran(joined)
    assert_same(joined, plain)


@pytest.mark.parametrize("y", ["branch", "y"], ids=["in place", "not in place"])
def test_looking_between_the_passes_changes_nothing(y: str) -> None:
    joined, plain = (make(block(y=y), flag) for flag in (True, False))
    for net in (joined, plain):
        rng = np.random.default_rng(1)
        net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape)
        net.forward()
        for name in net.outputs:
            net.blobs[name].diff[...] = rng.standard_normal(net.blobs[name].shape)
    seen = [net.blobs[y].data.copy() for net in (joined, plain)]
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-4, atol=1e-5)
    for net in (joined, plain):
        net.backward()
    assert ran(joined)
    assert_same(joined, plain)


@pytest.mark.parametrize("y", ["branch", "y"], ids=["in place", "not in place"])
def test_an_array_that_is_held_shows_every_pass(y: str) -> None:
    joined, plain = (make(block(y=y), flag) for flag in (True, False))
    held = [net.blobs[y].data for net in (joined, plain)]
    for seed in range(2):
        for net in (joined, plain):
            run(net, seed)
        assert not ran(joined)
        np.testing.assert_allclose(held[0], held[1], rtol=1e-4, atol=1e-5)
        assert_same(joined, plain)
    held.clear()
    for net in (joined, plain):
        run(net, 3)
    assert ran(joined)
    assert_same(joined, plain)


def test_a_hook_may_change_what_a_branch_adds() -> None:
    nets = [make(block(), flag) for flag in (True, False)]
    for net in nets:
        run(net)

        def double(index: int, net: caffe.Net = net) -> None:
            if net.layers[index].name == "scale":
                net.blobs["branch"].data[...] *= 2

        net.after_forward(double)
        run(net, 6)
    assert_same(*nets)


def test_another_batch_size_in_the_middle_of_training() -> None:
    joined, plain = (make(block(), flag) for flag in (True, False))
    for batch in (3, 1, 6):
        for net in (joined, plain):
            net.blobs["data"].reshape(batch, 5, 5, 5)  # without a call of net.reshape
            run(net, batch)
        assert ran(joined)
        assert_same(joined, plain)


NOT_JOINED = {
    "somebody else reads the branch": block() + CONV % ("more", "branch", "more", 2),
    "a ReLU in the branch": block().replace(
        'layer { name: "sum"', 'layer { name: "r" type: "ReLU" bottom: "branch" top: "branch" }\n'
        'layer { name: "sum"'
    ),
    "a difference": block().replace(
        'top: "sum" }', 'top: "sum" eltwise_param { coeff: 1 coeff: -1 } }', 1
    ),
    "a maximum": block().replace(
        'top: "sum" }', 'top: "sum" eltwise_param { operation: MAX } }', 1
    ),
    "in place": block(first=True, relu=None, readers=1).replace('"sum"', '"branch"'),
    "a loss inside": block(relu=None).replace('top: "sum" }', 'top: "sum" loss_weight: 1 }', 1),
    "twice the branch": block().replace('bottom: "side" bottom', 'bottom: "branch" bottom'),
    "statistics of a part of the batch": block(
        batch=4, stats="batch_norm_param { stats_batch_size: 2 }"
    ),
    "its own scale": block(stats="batch_norm_param { scale_bias: true }"),
}  # fmt: skip


@pytest.mark.parametrize("text", NOT_JOINED.values(), ids=NOT_JOINED.keys())
def test_what_is_no_join(text: str) -> None:
    assert not list(caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN).joins)


def test_only_nets_that_train_have_joins() -> None:
    param = schema.parse_text(block(), schema.NetParameter())
    assert not list(caffe.Net(param, caffe.TEST).joins)
    assert not list(caffe.Net(param, caffe.TRAIN, backend=NumPyBackend()).joins)
    frozen = schema.parse_text(block().replace("force_backward: true", ""), schema.NetParameter())
    assert not list(caffe.Net(frozen, caffe.TRAIN).joins)  # nothing to learn from
    param.debug_info = True
    assert not list(caffe.Net(param, caffe.TRAIN).joins)


@pytest.mark.parametrize("y", ["branch", "y"], ids=["in place", "not in place"])
def test_gradients_that_share_memory(y: str) -> None:
    """A chain of joins, as in a stage of a ResNet, whose gradients go from one to the next."""
    text = block(y=y, readers=0) + residual("1", "sum", "sum", y=y)
    text += residual("2", "sum1", "sum1", y=y) + CONV % ("reader", "sum2", "reader", 3)
    nets = [make_chain(text, shared) for shared in (True, False)]
    for seed in range(2):
        for net in nets:
            run(net, seed)
        found = [
            {name: [b.diff.copy() for b in blobs] for name, blobs in net.params.items()}
            for net in nets
        ]
        for name, blobs in found[0].items():
            for i, blob in enumerate(blobs):
                np.testing.assert_allclose(blob, found[1][name][i], rtol=1e-3, atol=1e-4)


def make_chain(text: str, shared: bool) -> caffe.Net:
    caffe.set_random_seed(3)
    net = caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN)
    assert len(list(net.joins)) == 3
    if shared:
        net.share_gradients()
    else:
        net.joins.dissolve()
    return net


@pytest.mark.parametrize("y", ["branch", "y"], ids=["in place", "not in place"])
def test_what_is_added_takes_no_memory(y: str) -> None:
    """Passes go on in the same buffers, and what was not written has none."""
    net = make(block(y=y), True)
    run(net)
    net.run_forward()  # forgets what the test's looks have left

    def buffers() -> dict[str, Any]:
        return {name: blob.value.buffer for name, blob in net.blobs.items()}

    before = buffers()
    for _ in range(2):
        net.run_forward()
        net.run_backward()
    assert [name for name, buffer in before.items() if buffer is None] == (
        ["y"] if y == "y" else []
    )
    assert all(buffer is before[name] for name, buffer in buffers().items())


def test_a_net_with_joins_is_gone_when_dropped() -> None:
    net = make(block(), True)
    run(net)
    gone = weakref.ref(net)
    gc.disable()
    try:
        del net
        assert gone() is None
    finally:
        gc.enable()
