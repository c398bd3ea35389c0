"""TEST nets run fused ops in shared memory, and nobody can tell from the numbers."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.layers import Context
from pycaffe_fire.net.fused_steps import JoinedStep

NET = """
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 2 dim: 3 dim: 13 dim: 13 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 16 kernel_size: 3 pad: 1 weight_filler { type: "msra" } } }
layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1" }
layer { name: "scale1" type: "Scale" bottom: "conv1" top: "conv1" scale_param { bias_term: true } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool" type: "Pooling" bottom: "conv1" top: "pool"
  pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "left" type: "Convolution" bottom: "pool" top: "left"
  convolution_param { num_output: 24 kernel_size: 1 bias_term: false
    weight_filler { type: "msra" } } }
layer { name: "left_bn" type: "BatchNorm" bottom: "left" top: "left_bn" }
layer { name: "depth" type: "Convolution" bottom: "pool" top: "depth"
  convolution_param { num_output: 16 kernel_size: 3 pad: 1 group: 16 bias_term: false
    weight_filler { type: "msra" } } }
layer { name: "depth_bn" type: "BatchNorm" bottom: "depth" top: "depth" }
layer { name: "depth_relu" type: "ReLU" bottom: "depth" top: "rectified" }
layer { name: "right" type: "Convolution" bottom: "rectified" top: "right"
  convolution_param { num_output: 24 kernel_size: 1 weight_filler { type: "msra" } } }
layer { name: "right_bn" type: "BatchNorm" bottom: "right" top: "right" }
layer { name: "right_scale" type: "Scale" bottom: "right" top: "right" }
layer { name: "sum" type: "Eltwise" bottom: "left_bn" bottom: "right" top: "sum" }
layer { name: "sum_relu" type: "ReLU" bottom: "sum" top: "sum" }
layer { name: "again" type: "Convolution" bottom: "sum" top: "again"
  convolution_param { num_output: 24 kernel_size: 1 weight_filler { type: "msra" } } }
layer { name: "again_bias" type: "Bias" bottom: "again" top: "again" }
layer { name: "sum2" type: "Eltwise" bottom: "sum" bottom: "again" top: "sum2" }
layer { name: "both" type: "Concat" bottom: "sum2" bottom: "pool" top: "both" }
layer { name: "loose_bn" type: "BatchNorm" bottom: "both" top: "both" }
layer { name: "fc" type: "InnerProduct" bottom: "both" top: "fc"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "fc" top: "dropped" }
layer { name: "prob" type: "Softmax" bottom: "dropped" top: "prob" }
"""
CHANGES = [("bn1", 0), ("bn1", 1), ("bn1", 2), ("scale1", 0), ("scale1", 1), ("conv1", 0),
           ("conv1", 1), ("left", 0), ("left_bn", 1), ("right", 1), ("right_scale", 0),
           ("again", 0), ("again_bias", 0), ("fc", 0), ("loose_bn", 0)]  # fmt: skip


def images(seed: int = 0, batch: int = 2, size: int = 13) -> Any:
    return np.random.default_rng(seed).standard_normal((batch, 3, size, size)).astype(np.float32)


def make(kind: str, text: str = NET, phase: Any = caffe.TEST) -> Any:
    backend = NumPyBackend(1) if kind == "numpy" else cpu_backend(1)
    param = schema.parse_text(text, schema.NetParameter())
    net = caffe.Net(param, phase, backend=backend, context=Context(seed=1))
    random = np.random.default_rng(7)
    for name, blobs in net.params.items():
        for blob in blobs:
            if "bn" in name or blob.count < 30:
                blob.data[...] = 0.5 + random.random(blob.shape)
    return net


@pytest.fixture(params=["onednn", "numpy"])
def pair(request: pytest.FixtureRequest) -> Any:
    """A net with a plan and the same net run layer by layer."""
    planned, plain = make(request.param), make(request.param)
    plain.stop_inference()
    assert planned.inference is not None and plain.inference is None
    return planned, plain


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.abs(b).max()))


def forward(nets: Any, values: Any) -> None:
    for net in nets:
        net.blobs["data"].data[...] = values
        net.forward()


def test_results_are_those_of_the_layers(pair: Any) -> None:
    for seed in range(3):
        planned, plain = (net.forward(data=images(seed))["prob"].copy() for net in pair)
        close(planned, plain)


def test_layers_are_fused_and_share_memory(pair: Any) -> None:
    forward(pair, images())
    plan, net = pair[0].inference, pair[0]
    assert len(plan._steps) < len(net.layers) - 9
    alone = sum(blob.count for blob in net.blobs.values())
    assert plan._arena.size < alone / 2
    if net.backend.name == "onednn":
        first = {net.layers[step.layers[0]].name: step.layers for step in plan._steps
                 if hasattr(step, "op")}  # fmt: skip
        names = [net.layers[i].name for i in first["right"]]
        assert names == ["right", "right_bn", "right_scale", "sum", "sum_relu"]


def test_neighbours_are_one_step(pair: Any) -> None:
    """From left to sum2, with a Split between them that has nothing to do, nor has the Dropout."""
    forward(pair, images())
    plan, net = pair[0].inference, pair[0]
    types = [net.layers[step.index].type for step, _ in plan._runs]
    assert "Split" not in types
    if net.backend.name == "onednn":
        (joined,) = (step for step, _ in plan._runs if isinstance(step, JoinedStep))
        assert net.layers[joined.index].name == "sum2"
        assert {blob.value for blob in joined.bottom} == {net.blobs["pool"].value}
        assert types == ["Input", "ReLU", "Pooling", "Eltwise", "Concat", "BatchNorm",
                         "InnerProduct", "Softmax"]  # fmt: skip


def test_inputs_given_to_forward_are_not_copied_for_later(pair: Any) -> None:
    """Only a look at the input, or an array of it that is held, takes a copy before it changes."""
    net = pair[0]
    net.forward(data=images(0))
    net.forward(data=images(1))
    assert not net.inference._inputs
    before = net.blobs["left"].data.copy()
    close(before, pair[1].forward(data=images(1)) and pair[1].blobs["left"].data)


def test_weights_lie_in_memory_once(pair: Any) -> None:
    net = pair[0]
    net.forward(data=images())
    assert all(blob.value._plain is None for blobs in net.params.values() for blob in blobs)


@pytest.mark.parametrize("name", ["conv1", "pool", "left", "left_bn", "depth", "rectified",
                                  "right", "sum", "again", "sum2", "both", "fc"])  # fmt: skip
def test_a_blob_shows_its_values_at_the_first_look_and_later(pair: Any, name: str) -> None:
    forward(pair, images(1))
    forward(pair, images(2))
    close(*(net.blobs[name].data for net in pair))
    forward(pair, images(3))
    close(*(net.blobs[name].data for net in pair))
    close(*(net.blobs["prob"].data for net in pair))


def test_all_blobs_can_be_looked_at(pair: Any) -> None:
    for seed in range(2):
        forward(pair, images(seed))
        for name in pair[0].blobs:
            close(*(net.blobs[name].data for net in pair))


@pytest.mark.parametrize(("layer", "index"), CHANGES)
def test_changed_weights_count_in_the_next_pass(pair: Any, layer: str, index: int) -> None:
    forward(pair, images())
    before = pair[0].blobs["prob"].data.copy()
    for net in pair:
        net.params[layer][index].data[...] *= 1.7
    forward(pair, images())
    close(*(net.blobs["prob"].data for net in pair))
    assert np.abs(pair[0].blobs["prob"].data - before).max() > 1e-6


@pytest.mark.parametrize(("layer", "index"), CHANGES)
def test_weights_may_be_written_through_an_array_that_is_held(
    pair: Any, layer: str, index: int
) -> None:
    held = [net.params[layer][index].data for net in pair]
    for factor in (0.6, 1.9):
        forward(pair, images())
        for array in held:
            array *= factor
        close(*(net.blobs["sum2"].data for net in pair))  # of the pass before the change
        forward(pair, images())
        close(*(net.blobs["prob"].data for net in pair))
    held.clear()
    del array
    forward(pair, images(4))
    close(*(net.blobs["prob"].data for net in pair))


@pytest.mark.parametrize("layer", ["conv1", "bn1", "fc"])
def test_a_look_after_weights_have_changed_shows_the_pass_before(pair: Any, layer: str) -> None:
    forward(pair, images())
    for net in pair:
        net.params[layer][0].data[...] += 1
    close(*(net.blobs["right"].data for net in pair))


@pytest.mark.parametrize("held", [True, False])
def test_a_look_after_the_input_has_changed_shows_the_pass_before(pair: Any, held: bool) -> None:
    arrays = [net.blobs["data"].data for net in pair] if held else []
    forward(pair, images(1))
    for net, array in zip(pair, arrays or [None, None], strict=True):
        target = net.blobs["data"].data if array is None else array
        target[...] = images(2)
    close(*(net.blobs["right"].data for net in pair))
    close(*(net.blobs["data"].data for net in pair))
    for net in pair:
        net.forward()
    close(*(net.blobs["prob"].data for net in pair))


def test_what_was_written_into_a_blob_stays(pair: Any) -> None:
    forward(pair, images())
    for net in pair:
        net.blobs["pool"].data[...] = 3
        net.blobs["prob"].data[...] = 4
    close(*(net.blobs["sum"].data for net in pair))  # looked at for the first time
    for net in pair:
        assert (net.blobs["pool"].data == 3).all() and (net.blobs["prob"].data == 4).all()
        net.forward(start="left")
    close(*(net.blobs["prob"].data for net in pair))


def test_arrays_that_are_held_follow_the_passes(pair: Any) -> None:
    early = [[net.blobs[name].data for net in pair] for name in ("left", "fc", "sum")]
    forward(pair, images(1))
    late = [[net.blobs[name].data for net in pair] for name in ("again", "dropped")]
    forward(pair, images(2))
    for arrays in early + late:
        close(*arrays)


def test_parts_of_the_net_run_as_ever(pair: Any) -> None:
    forward(pair, images(1))
    ends = [net.forward(end="bn1", data=images(2))["conv1"].copy() for net in pair]
    close(*ends)
    close(*(net.blobs["sum"].data for net in pair))  # still of the pass before
    close(*(net.forward(start="scale1")["prob"].copy() for net in pair))
    close(*(net.forward(blobs=["right"], data=images(3))["right"] for net in pair))


def test_other_shapes(pair: Any) -> None:
    text = NET[: NET.index('layer { name: "fc"')]
    nets = [make(net.backend.name, text) for net in pair]
    nets[1].stop_inference()
    forward(nets, images(1))
    for net in nets:
        net.blobs["data"].reshape(3, 3, 9, 9)
    close(*(net.blobs["right"].data for net in nets))  # of the pass before
    for seed, size in ((2, 9), (3, 11)):
        for net in nets:
            net.blobs["data"].reshape(3, 3, size, size)
            if seed == 3:
                net.reshape()
        forward(nets, images(seed, 3, size))
        for name in ("both", "left"):
            close(*(net.blobs[name].data for net in nets))


FILTERED = NET.replace('bottom: "pool" top: "left"', 'bottom: "chosen" top: "left"').replace(
    'bottom: "pool" top: "depth"', 'bottom: "chosen" top: "depth"'
).replace('bottom: "sum2" bottom: "pool"', 'bottom: "sum2" bottom: "chosen"').replace(
    'layer { name: "left" ',
    """layer { name: "which" type: "Input" top: "which" input_param { shape { dim: 4 } } }
layer { name: "filter" type: "Filter" bottom: "pool" bottom: "which" top: "chosen" }
layer { name: "left" """,
).replace("dim: 2 dim: 3", "dim: 4 dim: 3")  # fmt: skip


@pytest.mark.parametrize("kind", ["onednn", "numpy"])
def test_a_layer_may_change_shapes_within_a_pass(kind: str) -> None:
    """What comes after it is planned again, and counts for the next pass."""
    planned, plain = make(kind, FILTERED), make(kind, FILTERED)
    plain.stop_inference()
    assert planned.inference is not None
    for seed, which in enumerate(([1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 0])):
        for net in (planned, plain):
            net.blobs["data"].data[...] = images(seed, 4)
            net.blobs["which"].data[...] = which
            net.forward()
        assert len(planned.blobs["prob"].data) == sum(which)
        close(planned.blobs["prob"].data, plain.blobs["prob"].data)
        close(planned.blobs["left_bn"].data, plain.blobs["left_bn"].data)


def test_hooks_see_every_layer(pair: Any) -> None:
    forward(pair, images(1))
    seen: list[list[Any]] = [[], []]
    for net, found in zip(pair, seen, strict=True):

        def hook(i: int, net: Any = net, found: list[Any] = found) -> None:
            found.append(net.tops[i][0].data.copy())

        net.after_forward(hook)
    forward(pair, images(2))
    assert len(seen[0]) == len(pair[0].layers)
    for a, b in zip(*seen, strict=True):
        close(a, b)


def test_backward_after_a_pass_has_all_it_needs() -> None:
    nets = [make("onednn", "force_backward: true\n" + NET) for _ in range(2)]
    nets[1].stop_inference()
    forward(nets, images())
    gradient = np.zeros((2, 5), np.float32)
    gradient[:, 1] = 1
    close(*(net.backward(prob=gradient)["data"] for net in nets))
    assert nets[0].inference is None


def memory_of_passes(net: Any) -> tuple[int, int]:
    """Bytes that some passes keep, and that they have at most meanwhile."""
    tracemalloc.start()
    net.forward()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    for _ in range(5):
        net.forward()
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before, peak - before


def test_passes_allocate_nothing(pair: Any) -> None:
    net = pair[0]
    forward([net], images())
    net.forward()
    kept, most = memory_of_passes(net)
    smallest = 2 * 24 * 6 * 6 * 4  # bytes of a blob in the middle
    if net.backend.name == "onednn":
        assert most < smallest
    assert kept < smallest


def test_a_net_that_is_dropped_is_gone_at_once(pair: Any) -> None:
    net = make("onednn")
    forward([net], images())
    gone, buffer = weakref.ref(net), weakref.ref(net.blobs["prob"].value)
    gc.disable()
    try:
        del net
        assert gone() is None and buffer() is None
    finally:
        gc.enable()


def change(old: str, new: str) -> Callable[[], Any]:
    return lambda: make("onednn", NET.replace(old, new))


@pytest.mark.parametrize(
    "build",
    [
        lambda: make("onednn", NET, caffe.TRAIN),
        change('layer { name: "conv1"', 'layer { name: "power" type: "Power" bottom: "data"\n'
               'top: "data" } layer { name: "conv1"'),
        change('bottom: "both" top: "both" }', 'bottom: "both" top: "both"\n'
               "batch_norm_param { use_global_stats: false } }"),
        change('bottom: "fc" top: "dropped" }', 'bottom: "fc" top: "dropped"\n'
               "dropout_param { sample_weights_test: true } }"),
    ],
    ids=["training", "input overwritten", "running averages", "random numbers"],
)  # fmt: skip
def test_nets_whose_passes_cannot_be_repeated_have_no_plan(build: Callable[[], Any]) -> None:
    assert build().inference is None


def test_nets_that_share_weights_run_as_ever(pair: Any) -> None:
    forward(pair, images())
    other = make(pair[0].backend.name)
    pair[0].share_with(other)
    assert pair[0].inference is None and other.inference is None
    other.params["conv1"][0].data[...] *= 2
    pair[1].params["conv1"][0].data[...] = other.params["conv1"][0].data
    forward([pair[0], pair[1]], images(1))
    close(*(net.blobs["prob"].data for net in pair))
