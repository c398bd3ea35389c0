"""New input shapes: picked up by the next forward, with and without a call of reshape."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire.errors import LayerError
from tests.net.net_cases import (
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
from tests.random_numbers import RNG


def pyramid(batch: int, size: int) -> str:
    """Any image size works: global pooling before the inner product."""
    return (
        inputs(batch, size) + conv("c1", "data", 16) + relu("r1", "c1")
        + layer("Pooling", "p1", "c1", extra="pooling_param { kernel_size: 3 stride: 2 }")
        + layer("LRN", "n", "p1", extra="lrn_param { alpha: 1 }")
        + conv("c2", "n", 24, param="kernel_size: 1") + conv("c3", "n", 8)
        + relu("r2", "c2") + layer("Concat", "cat", "c2 c3")
        + layer("Pooling", "p2", "cat", extra="pooling_param { pool: AVE global_pooling: true }")
        + layer("Dropout", "d", "p2", "p2", "dropout_param { dropout_ratio: 0.1 }")
        + ip("ip", "p2") + relu("ri", "ip") + softmax_loss("ip")
    )  # fmt: skip


def given(batch: int, size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch * 100 + size)
    return {
        "data": rng.normal(size=(batch, 3, size, size)).astype(np.float32),
        "label": rng.integers(0, 5, batch).astype(np.float32),
    }


@pytest.mark.parametrize("call", [False, True])
def test_new_shapes_and_back(call: bool) -> None:
    """After every change the net does what a net made for that shape does."""
    net = make(pyramid(4, 8))
    shapes = [(2, 8), (5, 11), (4, 8)]
    for step, (batch, size) in enumerate(shapes):
        net.blobs["data"].reshape(batch, 3, size, size)
        net.blobs["label"].reshape(batch)
        if call:
            net.reshape()
            assert net.blobs["c1"].shape == (batch, 16, size, size)
        fresh = make(pyramid(batch, size))
        fresh.context.step = net.context.step  # draws depend on the pass
        agree(gradients(net, **given(batch, size)), gradients(fresh, **given(batch, size)))
        assert net.blobs["ip"].shape == (batch, 5)
        np.testing.assert_allclose(
            net.blobs["cat"].data, fresh.blobs["cat"].data, rtol=1e-4, atol=1e-5, err_msg=str(step)
        )


def test_weights_survive_a_reshape() -> None:
    net = make(pyramid(4, 8))
    before = {n: [b.data.copy() for b in blobs] for n, blobs in net.params.items()}
    net.blobs["data"].reshape(2, 3, 12, 12)
    net.blobs["label"].reshape(2)
    net.reshape()
    agree({n: [b.data for b in blobs] for n, blobs in net.params.items()}, before)


def test_a_shape_the_weights_do_not_fit() -> None:
    net = make(inputs() + ip("ip", "data"))
    net.blobs["data"].reshape(4, 3, 9, 9)
    with pytest.raises(LayerError, match='"ip".*192 inputs.*243'):
        net.forward()
    net.blobs["data"].reshape(4, 3, 8, 8)
    net.forward()


def test_the_same_shape_keeps_the_contents() -> None:
    net = make(inputs() + ip("ip", "data"))
    x = RNG.normal(size=(4, 3, 8, 8)).astype(np.float32)
    net.forward(data=x)
    net.blobs["data"].reshape(4, 3, 8, 8)
    net.reshape()
    np.testing.assert_array_equal(net.blobs["data"].data, x)


def test_an_empty_batch() -> None:
    net = make(inputs() + conv("c", "data", 4) + relu("r", "c") + ip("ip", "c"), caffe.TEST)
    net.blobs["data"].reshape(0, 3, 8, 8)
    assert net.forward()["ip"].shape == (0, 5)
    net.blobs["data"].reshape(2, 3, 8, 8)
    assert net.forward()["ip"].shape == (2, 5)


def test_a_net_made_with_an_empty_batch_keeps_its_weights_together() -> None:
    text = inputs().replace("dim: 4", "dim: 0") + conv("c", "data", 16) + ip("ip", "c")
    net = make(text)
    weights = net.params["c"][0].data.copy()
    net.blobs["data"].reshape(2, 3, 8, 8)
    net.forward()
    np.testing.assert_array_equal(net.params["c"][0].data, weights)
    value = net.params["c"][0].value
    value.sync()
    assert np.shares_memory(value.buffer, net.parameters.weights)
