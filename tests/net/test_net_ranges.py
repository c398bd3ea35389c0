"""Running parts of a net, inputs and outputs by name."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire.errors import NetError
from tests.net.net_cases import (
    IMAGES,
    LABELS,
    conv,
    gradients,
    inputs,
    ip,
    layer,
    make,
    relu,
    softmax_loss,
)


def chain() -> str:
    return (
        inputs() + conv("c1", "data", 16) + relu("r1", "c1") + conv("c2", "c1", 16)
        + relu("r2", "c2") + ip("a", "c2", 6) + relu("ra", "a") + ip("b", "a") + softmax_loss("b")
    )  # fmt: skip


def test_inputs_by_name_and_outputs() -> None:
    net = make(chain())
    found = net.forward(data=IMAGES, label=LABELS)
    assert list(found) == ["loss"] == net.outputs
    np.testing.assert_array_equal(net.blobs["data"].data, IMAGES)
    found = net.forward(blobs=["c1", "a"])
    assert list(found) == ["a", "c1", "loss"]
    np.testing.assert_array_equal(found["c1"], net.blobs["c1"].data)


def test_a_range_that_ends_before_the_fused_relu_shows_the_convolution_s_output() -> None:
    net = make(chain())
    whole = net.forward(["c1", "a"], data=IMAGES, label=LABELS)
    after = {name: array.copy() for name, array in whole.items()}
    before = net.forward(end="c1")["c1"].copy()
    assert (before < 0).any()
    np.testing.assert_allclose(np.maximum(before, 0), after["c1"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net.forward(start="r1", end="r1")["c1"], after["c1"], atol=1e-6)
    assert (net.forward(end="a")["a"] < 0).any()
    np.testing.assert_allclose(net.forward(start="ra")["loss"], after["loss"], rtol=1e-5)
    np.testing.assert_allclose(net.forward()["loss"], after["loss"], rtol=1e-6)
    np.testing.assert_allclose(net.blobs["c1"].data, after["c1"], rtol=1e-6)


def test_backward_after_a_cut_forward() -> None:
    whole, cut = make(chain()), make(chain())
    expected = gradients(whole)
    cut.forward(end="c2", data=IMAGES, label=LABELS)
    cut.forward(start="r2", end="a")
    cut.forward(start="ra")
    cut.backward()
    for name, grads in expected.items():
        for a, b in zip(grads, cut.params[name], strict=True):
            np.testing.assert_allclose(a, b.diff, rtol=1e-4, atol=1e-6)


def test_forward_from_changed_intermediate_values() -> None:
    net = make(chain())
    net.forward(data=IMAGES, label=LABELS)
    net.blobs["c1"].data[...] = 0
    zero = net.forward(start="c2", end="c2")["c2"].copy()
    np.testing.assert_allclose(zero[0], zero[1], rtol=1e-6)
    bias = net.params["c2"][1].data
    np.testing.assert_allclose(zero[0, :, 4, 4], bias, rtol=1e-5)


def test_backward_ranges_and_diffs() -> None:
    net = make(chain())
    net.forward(data=IMAGES, label=LABELS)
    found = net.backward(end="b", diffs=["b"])
    assert set(found) == {"a", "b"}
    assert net.params["b"][0].diff.any() and not net.params["a"][0].diff.any()
    net.backward(start="ra", end="ra")
    assert not net.params["a"][0].diff.any()
    found = net.backward(start="a", end="r2")
    assert set(found) == {"c2"}
    assert net.params["a"][0].diff.any() and not net.params["c2"][0].diff.any()
    net.backward(start="c2")
    whole = gradients(make(chain()))
    for name, grads in whole.items():
        np.testing.assert_allclose(net.params[name][0].diff, grads[0], rtol=1e-4, atol=1e-6)


def test_backward_from_a_gradient_set_by_hand() -> None:
    net = make(
        "force_backward: true\n" + inputs() + conv("c", "data", 8) + ip("a", "c") + ip("b", "a")
    )
    net.forward(data=IMAGES)
    seed = np.arange(20, dtype=np.float32).reshape(4, 5)
    net.blobs["a"].diff[...] = seed
    found = net.backward(start="a", end="a")["c"]
    expected = (seed @ net.params["a"][0].data).reshape(4, 8, 8, 8)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_ranges_through_normalisation_groups() -> None:
    """BatchNorm, Scale and ReLU in place may run as one op; cut ranges must not show it."""
    text = (
        inputs() + conv("c", "data", 16) + layer("BatchNorm", "bn", "c", "c")
        + layer("Scale", "s", "c", "c", "scale_param { bias_term: true filler { value: 2 } }")
        + relu("r", "c") + ip("a", "c") + softmax_loss("a")
    )  # fmt: skip
    net = make(text)
    net.forward(data=IMAGES, label=LABELS)
    after = net.blobs["c"].data.copy()
    normal = net.forward(end="bn")["c"].copy()
    np.testing.assert_allclose(normal.mean(axis=(0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(np.maximum(2 * normal, 0), after, rtol=1e-3, atol=1e-4)
    scaled = net.forward(start="s", end="s")["c"].copy()
    np.testing.assert_allclose(scaled, 2 * normal, rtol=1e-5)
    np.testing.assert_allclose(net.forward(start="r", end="r")["c"], after, rtol=1e-3, atol=1e-4)


def test_unknown_names() -> None:
    net = make(chain())
    with pytest.raises(NetError, match='no layer "c1x".*did you mean "c1"'):
        net.forward(start="c1x")
    with pytest.raises(NetError, match='no blob "cc1".*did you mean "c1"'):
        net.forward(blobs=["cc1"])
    with pytest.raises(NetError, match='"dada" is not an input.*"data".*data, label'):
        net.forward(dada=IMAGES)
    with pytest.raises(NetError, match='"lost" is not an output.*"loss"'):
        net.backward(lost=LABELS)


def test_wrong_inputs() -> None:
    net = make(chain())
    with pytest.raises(NetError, match='"data" has shape .4, 3, 8, 8., got .2, 3, 8, 8.; reshape'):
        net.forward(data=IMAGES[:2])
    with pytest.raises(NetError, match=r'"data".*\[4, 3, 8, 8\].*\[4, 3, 8\]'):
        net.forward(data=IMAGES[..., 0])
    with pytest.raises(NetError, match='"loss"'):
        net.backward(loss=np.ones((2, 3)))
    net.forward(data=IMAGES.tolist(), label=[0, 1, 2, 3])
    np.testing.assert_array_equal(net.blobs["label"].data, [0, 1, 2, 3])


def test_outputs_are_in_alphabetical_order_as_caffe_s() -> None:
    net = make(
        inputs() + ip("z", "data") + softmax_loss("z", name="loss") + layer("ReLU", "a", "data")
    )
    assert net.outputs == ["a", "loss"]


def test_dropout_in_test_phase_changes_nothing() -> None:
    text = inputs() + layer("Dropout", "d", "data", extra="dropout_param { dropout_ratio: 0.9 }")
    found = make(text, caffe.TEST).forward(data=IMAGES)["d"]
    np.testing.assert_array_equal(found, IMAGES)
    found = make(text, caffe.TRAIN).forward(data=IMAGES)["d"]
    assert 0.8 < (found == 0).mean() < 0.97


def test_each_pass_drops_something_else() -> None:
    net = make(inputs() + layer("Dropout", "d", "data"))
    first = net.forward(data=IMAGES)["d"].copy()
    assert (net.forward(data=IMAGES)["d"] != first).any()
    np.testing.assert_array_equal(
        make(inputs() + layer("Dropout", "d", "data")).forward(data=IMAGES)["d"], first
    )


def test_in_place_layers_share_one_blob() -> None:
    net = make(chain())
    at = {each.name: i for i, each in enumerate(net.layers)}
    assert net.tops[at["r1"]][0] is net.bottoms[at["r1"]][0] is net.tops[at["c1"]][0]


def test_several_tops_of_a_convolution_with_one_relu() -> None:
    """A ReLU behind one of two tops must leave the other alone."""
    text = (
        layer("Input", "in", "", "x y", "input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } }")
        + conv("c", "x y", 8, top="u v") + relu("r", "u")
    )  # fmt: skip
    net = make(text)
    found = net.forward(["u", "v"], x=IMAGES[:2, :, :6, :6], y=IMAGES[:2, :, :6, :6])
    assert (found["u"] >= 0).all() and (found["v"] < 0).any()
    np.testing.assert_allclose(np.maximum(found["v"], 0), found["u"], rtol=1e-5)


def test_backward_through_a_part_of_a_normalisation_group() -> None:
    """Caffe runs any range; layers that ran forward as one op are run again one by one."""
    text = (
        inputs() + conv("c", "data", 16) + layer("BatchNorm", "bn", "c", "c")
        + layer("Scale", "s", "c", "c", "scale_param { bias_term: true filler { value: 2 } }")
        + relu("r", "c") + ip("a", "c") + softmax_loss("a")
    )  # fmt: skip
    expected = gradients(make(text))
    for cuts in (("r", "s"), ("s", "bn"), ("bn", "c")):
        net = make(text)
        net.forward(data=IMAGES, label=LABELS)
        net.backward(end=cuts[0])
        net.backward(start=cuts[1])
        for name, grads in expected.items():
            for a, b in zip(grads, net.params[name], strict=True):
                np.testing.assert_allclose(a, b.diff, rtol=1e-3, atol=1e-5, err_msg=name)
