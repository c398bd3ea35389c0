"""Who gets gradients: frozen layers, propagate_down, force_backward, losses, shared memory."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
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
    relu,
    softmax_loss,
)

FROZEN = "param { lr_mult: 0 } param { lr_mult: 0 }"


def needs(net: caffe.Net) -> dict[str, bool]:
    return {each.name: flag for each, flag in zip(net.layers, net.need_backward, strict=True)}


def test_frozen_layers_run_no_backward() -> None:
    text = (
        inputs() + ip("a", "data", 6, FROZEN) + relu("r", "a") + ip("b", "a", 6)
        + ip("c", "b", 5, FROZEN) + softmax_loss("c")
    )  # fmt: skip
    net = make(text)
    assert needs(net) == {
        "in": False, "a": False, "r": False, "b": True, "c": True, "loss": True,
    }  # fmt: skip
    found = gradients(net)
    assert found["b"][0].any() and found["b"][1].any()
    for name in ("a", "c"):
        assert not any(each.any() for each in found[name])


def test_one_frozen_blob_of_a_layer() -> None:
    text = inputs() + ip("a", "data", 5, "param { lr_mult: 0 } param { lr_mult: 2 }")
    found = gradients(make(text + softmax_loss("a")))["a"]
    assert not found[0].any() and found[1].any()
    text = inputs() + conv("a", "data", 5, "param { lr_mult: 0 }", param="kernel_size: 8")
    found = gradients(make(text + layer("Flatten", "f", "a") + softmax_loss("f")))["a"]
    assert not found[0].any() and found[1].any()


def test_without_a_loss_nothing_runs_backward() -> None:
    assert not any(needs(make(inputs() + ip("a", "data"))).values())


def test_force_backward_reaches_the_inputs() -> None:
    text = inputs() + ip("a", "data", 5, FROZEN) + softmax_loss("a")
    net = make("force_backward: true\n" + text)
    assert all(needs(net).values())
    net.forward(data=IMAGES, label=LABELS)
    found = net.backward()
    p = net.blobs["a"].data
    p = np.exp(p - p.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(4), LABELS.astype(int)] -= 1
    expected = (p / 4) @ net.params["a"][0].data
    np.testing.assert_allclose(found["data"].reshape(4, -1), expected, rtol=1e-4, atol=1e-6)
    assert not found["label"].any()
    assert net.params["a"][0].diff.any()  # Caffe computes frozen gradients then, too


def test_force_backward_without_a_loss_starts_from_the_outputs() -> None:
    net = make("force_backward: true\n" + inputs() + ip("a", "data"))
    net.forward(data=IMAGES)
    seed = np.eye(4, 5, dtype=np.float32)
    found = net.backward(a=seed)
    expected = seed @ net.params["a"][0].data
    np.testing.assert_allclose(found["data"].reshape(4, -1), expected, rtol=1e-5, atol=1e-6)


def test_propagate_down_false_cuts_the_gradient() -> None:
    text = inputs() + ip("a", "data", 6) + ip("b", "a", 5, "propagate_down: false")
    net = make(text + softmax_loss("b"))
    found = gradients(net)
    assert found["b"][0].any() and not found["a"][0].any()
    assert not needs(net)["a"]


def test_propagate_down_true_asks_for_a_gradient_nobody_needs() -> None:
    text = inputs() + ip("a", "data", 5, "propagate_down: true") + softmax_loss("a")
    net = make(text)
    gradients(net)
    assert net.blobs["data"].diff.any()


def test_propagate_down_on_one_branch() -> None:
    """Two losses over one layer, one of them cut off: the gradient is the other's alone."""
    text = inputs() + ip("a", "data")
    cut = softmax_loss("a", "propagate_down: false propagate_down: false", "l1")
    both = make(text + cut + softmax_loss("a", "loss_weight: 3", "l2"))
    one = make(text + softmax_loss("a", "loss_weight: 3", "l2"))
    for _ in range(2):
        agree(gradients(both), gradients(one))


def test_loss_weights_scale_loss_and_gradient() -> None:
    text = inputs() + ip("a", "data")
    once = make(text + softmax_loss("a"))
    twice = make(
        text
        + softmax_loss("a", "loss_weight: 0.5", "l1")
        + softmax_loss("a", "loss_weight: 1.5", "l2")
    )
    expected = gradients(once)
    agree({"a": [g / 2 for g in gradients(twice)["a"]]}, expected)
    assert twice.run_forward() == pytest.approx(2 * once.run_forward(), rel=1e-6)


def test_a_loss_weight_of_zero_contributes_nothing() -> None:
    net = make(inputs() + ip("a", "data") + softmax_loss("a", "loss_weight: 0"))
    net.forward(data=IMAGES, label=LABELS)
    assert net.run_forward() == 0 and float(net.blobs["loss"].data) > 0
    assert not any(needs(net).values())


def test_any_layer_can_be_a_loss() -> None:
    text = inputs() + ip("a", "data") + layer("Power", "p", "a", extra="loss_weight: 2")
    net = make(text)
    found = gradients(net)["a"]
    np.testing.assert_allclose(found[1], np.full(5, 8.0), rtol=1e-6)
    assert net.run_forward() == pytest.approx(2 * float(net.blobs["p"].data.sum()), rel=1e-5)


def test_a_loss_of_many_numbers_survives_a_new_batch_size() -> None:
    text = inputs() + ip("a", "data") + layer("Power", "p", "a", extra="loss_weight: 2")
    net = make(text)
    for batch in (4, 2, 6):
        net.blobs["data"].reshape(batch, 3, 8, 8)
        net.reshape()
        net.clear_param_diffs()
        net.forward()
        net.backward()
        np.testing.assert_allclose(net.params["a"][1].diff, np.full(5, 2.0 * batch), rtol=1e-6)
    net.blobs["data"].reshape(3, 3, 8, 8)  # without a call of reshape
    net.clear_param_diffs()
    net.forward()
    net.backward()
    np.testing.assert_allclose(net.params["a"][1].diff, np.full(5, 6.0), rtol=1e-6)


def test_gradients_accumulate_until_cleared() -> None:
    net = make(inputs() + conv("c", "data", 16) + ip("a", "c") + softmax_loss("a"))
    once = gradients(net)
    net.backward()
    agree({n: [b.diff / 2 for b in net.params[n]] for n in net.params}, once)
    net.clear_param_diffs()
    assert not any(b.diff.any() for blobs in net.params.values() for b in blobs)


def test_what_the_caller_wrote_into_a_diff_is_added_to() -> None:
    net = make(inputs() + ip("a", "data") + softmax_loss("a"))
    held = net.params["a"][1].diff
    held[...] = 1
    net.forward(data=IMAGES, label=LABELS)
    net.backward()
    other = gradients(make(inputs() + ip("a", "data") + softmax_loss("a")))["a"][1]
    np.testing.assert_allclose(net.params["a"][1].diff, 1 + other, rtol=1e-5)
    np.testing.assert_allclose(held, 1 + other, rtol=1e-5)


def inception() -> str:
    """Branches, in-place layers, an auxiliary loss and an accuracy: much to get wrong."""
    text = inputs() + conv("c1", "data", 16) + relu("r1", "c1")
    text += layer("LRN", "n", "c1", extra="lrn_param { local_size: 5 alpha: 1 }")
    text += conv("b1", "n", 16, param="kernel_size: 1") + relu("rb1", "b1")
    text += conv("b2", "n", 24) + relu("rb2", "b2")
    text += layer("Pooling", "b3", "n", extra="pooling_param { kernel_size: 3 stride: 1 pad: 1 }")
    text += layer("Concat", "cat", "b1 b2 b3")
    text += ip("aux", "cat") + softmax_loss("aux", "loss_weight: 0.3", "aux_loss")
    text += conv("c2", "cat", 16, param="kernel_size: 3 stride: 2") + relu("r2", "c2")
    text += layer("Pooling", "p", "c2", extra="pooling_param { pool: AVE global_pooling: true }")
    text += layer("Dropout", "d", "p", "p")
    return text + ip("ip", "p") + layer("Accuracy", "acc", "ip label") + softmax_loss("ip")


def test_shared_gradient_memory_changes_no_gradient() -> None:
    plain, shared = make(inception()), make(inception())
    shared.share_gradients()
    for _ in range(2):
        a, b = gradients(plain), gradients(shared)
        for name in a:
            for mine, other in zip(a[name], b[name], strict=True):
                np.testing.assert_array_equal(mine, other, err_msg=name)
    buffers: list[Any] = [shared.blobs[n].gradient.buffer for n in ("c1", "cat", "c2", "ip")]
    assert len({id(buffer.base) for buffer in buffers}) == 1


def test_shared_gradient_memory_is_smaller() -> None:
    net = make(inception())
    net.share_gradients()
    buffer = net.blobs["cat"].gradient.buffer
    assert buffer is not None
    separate = sum(b.gradient.layout.elements for b in net.blobs.values())
    assert buffer.base.size < 0.8 * separate


def test_shared_gradient_memory_after_a_reshape() -> None:
    plain, shared = make(inception()), make(inception())
    shared.share_gradients()
    gradients(shared)
    gradients(plain)
    for net in (plain, shared):
        net.blobs["data"].reshape(2, 3, 8, 8)
        net.blobs["label"].reshape(2)
    for _ in range(2):
        agree(
            gradients(shared, data=IMAGES[:2], label=LABELS[:2]),
            gradients(plain, data=IMAGES[:2], label=LABELS[:2]),
        )


def debug_lines(caplog: Any, text: str) -> list[str]:
    net = make("debug_info: true\n" + text)
    caplog.clear()
    with caplog.at_level(logging.INFO, "pycaffe_fire"):
        gradients(net)
    return [record.getMessage() for record in caplog.records]


def test_debug_info_lines(caplog: Any) -> None:
    named = 'param { name: "weights" } param { lr_mult: 0 }'
    text = inputs() + ip("a", "data", 5, named) + relu("r", "a") + softmax_loss("a")
    lines = [re.sub(r"[-0-9.e+]+(?=[,);]|$)", "#", line) for line in debug_lines(caplog, text)]
    assert lines == [
        "    [Forward] Layer in, top blob data data: #",
        "    [Forward] Layer in, top blob label data: #",
        "    [Forward] Layer a, top blob a data: #",
        "    [Forward] Layer a, param blob weights data: #",
        "    [Forward] Layer a, param blob 1 data: #",
        "    [Forward] Layer r, top blob a data: #",
        "    [Forward] Layer loss, top blob loss data: #",
        "    [Backward] Layer loss, bottom blob a diff: #",
        "    [Backward] Layer r, bottom blob a diff: #",
        "    [Backward] Layer a, param blob 0 diff: #",
    ]


def test_debug_info_shows_each_layer_s_own_numbers(caplog: Any) -> None:
    text = inputs() + conv("c", "data", 16) + relu("r", "c") + ip("a", "c") + softmax_loss("a")
    found = {
        m[1]: float(m[2])
        for line in debug_lines(caplog, text)
        if (m := re.match(r" *\[Forward\] Layer (\w+), top blob c data: (.*)", line))
    }
    assert found["r"] < found["c"]  # before and after the ReLU, which is not fused here
