"""Parameters shared by name, in one net and between nets."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import LayerError
from pycaffe_fire.layers import Context
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

W = 'param { name: "w" } param { name: "b" }'


def test_shared_parameters_are_one_blob_with_summed_gradients() -> None:
    text = inputs() + ip("a", "data", 192, W) + ip("b", "a", 192, W) + softmax_loss("b")
    net = make(text)
    assert net.params["a"][0] is net.params["b"][0]
    assert len(net.parameters.items) == 2
    found = gradients(net)["a"]
    apart = make(inputs() + ip("a", "data", 192) + ip("b", "a", 192) + softmax_loss("b"))
    for name in "ab":
        for i in range(2):
            apart.params[name][i].data[...] = net.params["a"][i].data
    single = gradients(apart)
    for i in range(2):
        np.testing.assert_allclose(found[i], single["a"][i] + single["b"][i], rtol=1e-4, atol=1e-6)


def test_strict_sharing_wants_equal_shapes() -> None:
    text = inputs() + ip("a", "data", 4, W) + ip("b", "a", 4, W)
    with pytest.raises(LayerError, match=r'"b".*"w" with layer "a".*4 4 \(16\).*PERMISSIVE'):
        make(text)


def test_permissive_sharing_wants_equal_counts() -> None:
    loose = 'param { name: "w" share_mode: PERMISSIVE }'
    text = inputs() + ip("a", "data", 4, loose) + ip("b", "a", 4, loose)
    with pytest.raises(LayerError, match='"b".*"w".*count is 4 4'):
        make(text)


@pytest.mark.parametrize("field", ["lr_mult", "decay_mult"])
def test_multipliers_of_a_shared_parameter_must_agree(field: str) -> None:
    def spec(value: float) -> str:
        return f'param {{ name: "w" {field}: {value} }}'

    text = inputs() + ip("a", "data", 192, spec(1)) + ip("b", "a", 192, spec(2))
    with pytest.raises(LayerError, match=f'"b".*"w" has {field} 2 here and 1 in layer "a"'):
        make(text)


def test_a_multiplier_given_by_one_user_only_counts_for_all() -> None:
    named = 'param { name: "w" }'
    given = 'param { name: "w" lr_mult: 2 decay_mult: 3 }'
    for first, second in ((named, given), (given, named)):
        net = make(inputs() + ip("a", "data", 192, first) + ip("b", "a", 192, second))
        shared = net.parameters.items[0]
        assert (shared.lr_mult, shared.decay_mult) == (2, 3)


def test_permissive_sharing_of_unlike_shapes() -> None:
    """A convolution over the whole image and an inner product with its weights are the same."""
    loose = 'param { name: "w" share_mode: PERMISSIVE }'
    text = (
        inputs()
        + conv("c", "data", 5, loose, param="kernel_size: 8 bias_term: false")
        + layer("InnerProduct", "i", "data", "i",
                f"inner_product_param {{ num_output: 5 bias_term: false }} {loose}")
        + layer("Flatten", "flat", "c")
        + softmax_loss("flat", name="l1") + softmax_loss("i", name="l2")
    )  # fmt: skip
    net = make(text)
    assert net.params["c"][0].shape == (5, 3, 8, 8)
    assert net.params["i"][0].shape == (5, 192)
    found = gradients(net)
    np.testing.assert_allclose(net.blobs["flat"].data, net.blobs["i"].data, rtol=1e-4, atol=1e-5)
    assert float(net.blobs["l1"].data) == pytest.approx(float(net.blobs["l2"].data), rel=1e-5)
    alone = make(inputs() + ip("i", "data", extra="") + softmax_loss("i"))
    alone.params["i"][0].data[...] = net.params["i"][0].data
    alone.params["i"][1].data[...] = 0
    np.testing.assert_allclose(
        found["i"][0], 2 * gradients(alone)["i"][0], rtol=1e-3, atol=1e-5
    )  # fmt: skip


def test_test_net_borrows_permissively_shared_weights() -> None:
    loose = 'param { name: "w" share_mode: PERMISSIVE }'
    text = (
        inputs()
        + conv("c", "data", 5, loose, param="kernel_size: 8 bias_term: false")
        + layer("InnerProduct", "i", "data", "i",
                f"inner_product_param {{ num_output: 5 bias_term: false }} {loose}")
    )  # fmt: skip
    train = make(text)
    test = make(text.replace("dim: 4", "dim: 2"), caffe.TEST, lender=train)
    assert test.params["i"][0].shape == (5, 192)
    train.params["c"][0].data[...] *= 2
    test.forward(data=IMAGES[:2])
    train.forward(data=IMAGES)
    np.testing.assert_allclose(
        test.blobs["i"].data, train.blobs["i"].data[:2], rtol=1e-4, atol=1e-5
    )


def siamese(relus: bool) -> str:
    named = 'param { name: "w" } param { name: "b" }'
    text = inputs() + conv("same", "data", 3)
    text += conv(
        "c1", "same", 16, 'param { name: "w0" } param { name: "b0" }', param="kernel_size: 3 pad: 1"
    )
    text += relu("r1", "c1") if relus else ""
    text += conv("c2", "c1", 16, named) + conv(
        "c3", "c2", 16, named, param="kernel_size: 3 stride: 2"
    )
    text += relu("r3", "c3") if relus else ""
    return text + conv("c4", "c3", 16, named) + ip("ip", "c4") + softmax_loss("ip")


@pytest.mark.parametrize("relus", [False, True])
def test_convolutions_share_weights_whatever_their_layouts(relus: bool) -> None:
    """One plan chooses the layout of the weights; the others must read and add to it."""
    net, plain = make(siamese(relus)), make(siamese(relus), backend=NumPyBackend())
    for _ in range(2):
        found, expected = gradients(net), gradients(plain)
        for name in ("c1", "c2", "ip"):
            for a, b in zip(found[name], expected[name], strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4, err_msg=name)


def test_convolution_and_deconvolution_share_weights() -> None:
    """A tied autoencoder: equal shapes, but one counts its axes the other way round."""
    tied = 'param { name: "w" }'
    text = (
        inputs() + conv("up", "data", 16)
        + conv("code", "up", 32, tied, param="kernel_size: 3 bias_term: false")
        + layer("Deconvolution", "back", "code", "back",
                f"{tied} convolution_param {{ num_output: 16 kernel_size: 3 bias_term: false }}")
        + layer("EuclideanLoss", "loss", "back up")
    )  # fmt: skip
    net, plain = make(text), make(text, backend=NumPyBackend())
    found, expected = gradients(net), gradients(plain)
    assert float(net.blobs["loss"].data) == pytest.approx(float(plain.blobs["loss"].data), rel=1e-4)
    for name in ("up", "code"):
        np.testing.assert_allclose(found[name][0], expected[name][0], rtol=2e-3, atol=1e-3)


def test_convolutions_with_other_groups_share_weights() -> None:
    text = (
        inputs() + conv("c0", "data", 32)
        + conv("one", "c0", 32, 'param { name: "w" }',
               param="kernel_size: 3 bias_term: false group: 2")
        + layer("Slice", "cut", "one", "l r", "slice_param { slice_point: 16 }")
        + conv("two", "l", 32, 'param { name: "w" }', param="kernel_size: 3 bias_term: false")
        + layer("Silence", "hush", "r", "") + ip("ip", "two") + softmax_loss("ip")
    )  # fmt: skip
    net, plain = make(text), make(text, backend=NumPyBackend())
    found, expected = gradients(net), gradients(plain)
    for name in ("c0", "one"):
        np.testing.assert_allclose(found[name][0], expected[name][0], rtol=2e-3, atol=1e-4)


def test_test_net_shares_weights_with_another_batch_size() -> None:
    def text(batch: int) -> str:
        return (
            inputs(batch) + conv("c", "data", 16) + relu("r", "c")
            + layer("Pooling", "p", "c", extra="pooling_param { kernel_size: 2 stride: 2 }")
            + ip("ip", "p") + softmax_loss("ip")
        )  # fmt: skip

    train = make(text(4))
    test = make(text(2), caffe.TEST, lender=train, context=Context(1))
    for step in range(2):
        train.forward(data=IMAGES, label=LABELS)
        test.forward(data=IMAGES[2:], label=LABELS[2:])
        np.testing.assert_allclose(
            test.blobs["ip"].data, train.blobs["ip"].data[2:], rtol=1e-4, atol=1e-5
        )
        train.params["c"][0].data[...] *= 1.5 + step
        train.params["ip"][1].data[...] += 1
    assert test.params["c"][0].value is train.params["c"][0].value


def test_lender_of_another_shape_is_refused() -> None:
    train = make(inputs() + ip("ip", "data", 5))
    with pytest.raises(LayerError, match=r'"ip".*\[4, 192\].*\[5, 192\]'):
        make(inputs() + ip("ip", "data", 4), caffe.TEST, lender=train)
