"""Automatic splits: where they are, what they are called, and that they change no number."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_fire.net.graph import insert_splits
from tests.net.net_cases import (
    IMAGES,
    LABELS,
    agree,
    conv,
    gradients,
    inputs,
    ip,
    layer,
    make,
    message,
    relu,
    softmax_loss,
)


def wired(text: str) -> list[tuple[str, list[str], list[str], list[float]]]:
    """(name, bottoms, tops, loss weights) of each layer with splits in place."""
    return [
        (each.name, list(each.bottom), list(each.top), list(each.loss_weight))
        for each in insert_splits(message(text)).layer
    ]


def test_one_reader_needs_no_split() -> None:
    text = inputs() + ip("ip", "data") + softmax_loss("ip")
    assert [name for name, *_ in wired(text)] == ["in", "ip", "loss"]


def test_two_readers() -> None:
    text = inputs() + ip("a", "data") + ip("b", "data")
    assert wired(text) == [
        ("in", [], ["data", "label"], []),
        ("data_in_0_split", ["data"], ["data_in_0_split_0", "data_in_0_split_1"], []),
        ("a", ["data_in_0_split_0"], ["a"], []),
        ("b", ["data_in_0_split_1"], ["b"], []),
    ]


def test_index_of_the_top_is_part_of_the_name() -> None:
    text = inputs() + ip("a", "data") + softmax_loss("a", name="x") + softmax_loss("a", name="y")
    names = [name for name, *_ in wired(text)]
    assert names == ["in", "label_in_1_split", "a", "a_a_0_split", "x", "y"]


def test_behind_an_in_place_layer_it_is_named_after_that_layer() -> None:
    text = inputs() + ip("a", "data") + relu("r", "a") + ip("b", "a") + ip("c", "a")
    made = wired(text)
    assert [name for name, *_ in made] == ["in", "a", "r", "a_r_0_split", "b", "c"]
    assert made[-1][1] == ["a_r_0_split_1"]


def test_one_layer_may_read_a_blob_twice() -> None:
    text = inputs() + layer("Eltwise", "sum", "data data")
    assert wired(text)[-1][1] == ["data_in_0_split_0", "data_in_0_split_1"]


def test_being_a_loss_counts_as_a_reader_and_takes_the_first_top() -> None:
    text = (
        inputs()
        + layer("Reduction", "red", "data", extra="loss_weight: 2")
        + layer("Power", "p", "red")
    )
    assert wired(text)[1:] == [
        ("red", ["data"], ["red"], []),
        ("red_red_0_split", ["red"], ["red_red_0_split_0", "red_red_0_split_1"], [2.0, 0.0]),
        ("p", ["red_red_0_split_1"], ["p"], []),
    ]


def test_a_loss_weight_of_zero_is_no_reader() -> None:
    text = (
        inputs()
        + layer("Reduction", "red", "data", extra="loss_weight: 0")
        + layer("Power", "p", "red")
    )
    assert [name for name, *_ in wired(text)] == ["in", "red", "p"]


def test_gradient_of_a_split_is_the_sum_in_every_pass() -> None:
    """A third reader that sends nothing back, first in line, must not change that."""
    plain = inputs() + ip("ip", "data") + softmax_loss("ip")
    expected = gradients(make(plain))
    watched = (
        inputs() + ip("ip", "data") + layer("Accuracy", "acc", "ip label") + softmax_loss("ip")
    )
    net = make(watched)
    for _ in range(3):
        agree(gradients(net), expected)


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_nobody_writes_are_zero_in_every_pass(shared: bool) -> None:
    """One half of a slice gets no gradient; what lies in its memory must not leak in."""
    text = (
        inputs() + ip("ip", "data", 10)
        + layer("Slice", "cut", "ip", "left right", "slice_param { slice_point: 5 }")
        + ip("wide", "left", 64) + ip("more", "wide")
        + layer("Silence", "hush", "right", "", "propagate_down: false")
        + softmax_loss("more")
    )  # fmt: skip
    net = make(text)
    if shared:
        net.share_gradients()
    for _ in range(3):
        found = gradients(net)["ip"][0]
        assert np.abs(found[:5]).max() > 0
        assert not found[5:].any()


def test_a_loss_that_is_read_keeps_its_weight_in_every_pass() -> None:
    """d(2 s + 3 s)/dw for s the sum of all outputs: five times the sum over samples of x."""
    text = (
        inputs() + ip("ip", "data")
        + layer("Reduction", "red", "ip", extra="loss_weight: 2")
        + layer("Power", "p", "red", extra="loss_weight: 1 power_param { scale: 3 }")
    )  # fmt: skip
    net = make(text)
    expected = np.tile(5 * IMAGES.reshape(4, -1).sum(axis=0), (5, 1))
    for _ in range(3):
        np.testing.assert_allclose(gradients(net)["ip"][0], expected, rtol=1e-4, atol=1e-3)
    s = float(net.blobs["red"].data)
    assert net.run_forward() == pytest.approx(5 * s, rel=1e-5)


def test_three_way_split_on_blocked_layouts() -> None:
    """The sum of three branches equals the gradient of the sum computed in one layer."""
    head = inputs() + conv("c", "data", 16) + relu("r", "c")
    branches = "".join(conv(f"b{i}", "c", 16) for i in range(3))
    text = (
        head + branches + layer("Eltwise", "sum", "b0 b1 b2") + ip("ip", "sum") + softmax_loss("ip")
    )
    net = make(text)
    found = gradients(net)
    one = make(head + conv("b", "c", 16) + ip("ip", "b") + softmax_loss("ip"))
    for name in ("c", "ip"):
        for mine, other in zip(one.params[name], net.params[name], strict=True):
            mine.data[...] = other.data
    for i in range(2):
        one.params["b"][i].data[...] = sum(net.params[f"b{k}"][i].data for k in range(3))
    expected = gradients(one, data=IMAGES, label=LABELS)
    for i in range(2):
        np.testing.assert_allclose(found["c"][i], expected["c"][i], rtol=1e-3, atol=1e-4)
