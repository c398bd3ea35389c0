"""Branches that meet in one op give what the layers give one by one, and show it to who looks."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.cpu import library
from pycaffe_fire.backend.numpy import NumPyBackend

from .join_cases import (
    CONV,
    assert_same,
    assert_same_after,
    both,
    check_cut_backward,
    check_cut_forward,
    check_equal,
    check_held,
    check_looking,
    check_same_buffers,
    make,
    run,
)

pytestmark = pytest.mark.skipif(not library.available(), reason="the CPU kernels are not compiled")

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
    check_equal(block(**case), ["norm"])


CUTS = ["branch", "norm", "scale", "sum", "relu"]


@pytest.mark.parametrize("y", ["branch", "y"], ids=["in place", "not in place"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_forward_pass_may_be_cut_anywhere(cut: str, y: str) -> None:
    check_cut_forward(block(y=y), cut)


@pytest.mark.parametrize("y", ["branch", "y"], ids=["in place", "not in place"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_backward_pass_may_be_cut_anywhere(cut: str, y: str) -> None:
    check_cut_backward(block(y=y), cut)


@pytest.mark.parametrize("y", ["branch", "y"], ids=["in place", "not in place"])
def test_looking_between_the_passes_changes_nothing(y: str) -> None:
    check_looking(block(y=y), y)


@pytest.mark.parametrize("y", ["branch", "y"], ids=["in place", "not in place"])
def test_an_array_that_is_held_shows_every_pass(y: str) -> None:
    check_held(block(y=y), y)


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
    joined, plain = both(block())
    for batch in (3, 1, 6):
        for net in (joined, plain):
            net.blobs["data"].reshape(batch, 5, 5, 5)  # without a call of net.reshape
        assert_same_after(batch, joined, plain)


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
    assert check_same_buffers(block(y=y)) == (["y"] if y == "y" else [])


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
