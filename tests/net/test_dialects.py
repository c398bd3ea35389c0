"""Fields of other Caffes give what Caffe's own layers and fields give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.errors import LayerError, PrototxtError
from tests.net.net_cases import IMAGES, LABELS, conv, inputs, ip, layer, softmax_loss

Array = np.ndarray[Any, Any]


def net(body: str, phase: int = caffe.TRAIN, head: str = "", seed: int = 3) -> caffe.Net:
    caffe.set_random_seed(seed)
    text = head + inputs() + body
    return caffe.Net(schema.parse_text(text, schema.NetParameter()), phase)


def results(made: caffe.Net, tops: tuple[str, ...]) -> list[Array]:
    """Tops and the gradients of all weights after one pass."""
    for blobs, name in zip(made.params.values(), made.params, strict=True):
        rng = np.random.default_rng(len(name))
        for blob in blobs:
            blob.data[...] = rng.normal(0, 0.3, blob.shape)
    made.clear_param_diffs()
    made.forward(data=IMAGES, label=LABELS)
    made.backward()
    found = [np.array(made.blobs[top].data) for top in tops]
    return found + [np.array(b.diff) for blobs in made.params.values() for b in blobs]


def assert_same(one: str, other: str, *tops: str, phase: int = caffe.TRAIN) -> None:
    for a, b in zip(results(net(one, phase), tops), results(net(other, phase), tops), strict=True):
        np.testing.assert_array_equal(a, b)


END = ip("fc", "c") + softmax_loss("fc")
RELU = "relu_param { negative_slope: 0.25 }"


@pytest.mark.parametrize("slope", ["", "negative_slope: 0.25"])
def test_relu_of_convolutions_and_products_is_a_relu_layer(slope: str) -> None:
    window = "kernel_size: 3 pad: 1"
    extra = f"relu_param {{ {slope} }}"
    fused = conv("c", "data", param=f"{window} relu: true {slope}")
    plain = conv("c", "data", param=window) + layer("ReLU", "r", "c", "c", extra)
    assert_same(fused + END, plain + END, "c", "loss")
    hidden = ip("h", "data").replace("num_output", f"relu: true {slope} num_output")
    apart = ip("h", "data") + layer("ReLU", "r", "h", "h", extra)
    assert_same(hidden + ip("fc", "h") + softmax_loss("fc"),
                apart + ip("fc", "h") + softmax_loss("fc"), "h", "loss")  # fmt: skip


def test_relu_of_batch_norm_is_a_relu_layer() -> None:
    norm = layer("BatchNorm", "n", "data", "c", "batch_norm_param { relu: true }")
    apart = layer("BatchNorm", "n", "data", "c") + layer("ReLU", "r", "c", "c")
    assert_same(norm + END, apart + END, "c", "loss")


def test_a_fused_sum_is_an_eltwise_layer() -> None:
    first = conv("a", "data")
    fused = layer(
        "Convolution", "b", "data a", "c",
        "convolution_param { num_output: 6 kernel_size: 3 pad: 1 relu: true "
        "fusion_type: SUM_FUSION coeff: 2 coeff: 2 }",
    )  # fmt: skip
    apart = (
        conv("b", "data", top="t")
        + layer("Eltwise", "s", "t a", "c", "eltwise_param { coeff: 2 coeff: 2 }")
        + layer("ReLU", "r", "c", "c")
    )
    assert_same(first + fused + END, first + apart + END, "c", "loss")


def test_a_fused_sum_of_unequal_parts_is_refused() -> None:
    bad = layer(
        "Convolution", "b", "data data", "c",
        "convolution_param { num_output: 3 kernel_size: 1 fusion_type: SUM_FUSION "
        "coeff: 1 coeff: 2 }",
    )  # fmt: skip
    with pytest.raises(PrototxtError, match=r'layer "b" \(Convolution\): fusion_type.*Eltwise'):
        net(bad)


@pytest.mark.parametrize(
    "spelling", ["ceil_mode: false", "torch_pooling: true", "ceil_mode: false round_mode: FLOOR"]
)
def test_floor_by_other_names(spelling: str) -> None:
    def pool(mode: str) -> str:
        return layer(
            "Pooling", "c", "data", "c", f"pooling_param {{ kernel_size: 3 stride: 2 {mode} }}"
        )

    assert_same(pool(spelling) + END, pool("round_mode: FLOOR") + END, "c")
    assert net(pool(spelling)).blobs["c"].shape == (4, 3, 3, 3)
    for ceil in ("", "ceil_mode: true", "torch_pooling: false"):
        assert net(pool(ceil)).blobs["c"].shape == (4, 3, 4, 4)
    with pytest.raises(PrototxtError, match="contradict"):
        net(pool("ceil_mode: true round_mode: FLOOR"))


@pytest.mark.parametrize("spelling", ["hole: 2", "filter_stride: 2", "hole_h: 2 hole_w: 2"])
def test_dilation_by_other_names(spelling: str) -> None:
    def window(text: str) -> str:
        return conv("c", "data", param=f"kernel_size: 3 pad: 2 {text}")

    assert_same(window(spelling) + END, window("dilation: 2") + END, "c", "loss")
    with pytest.raises(PrototxtError, match="mean the same"):
        net(window(f"{spelling} dilation: 2"))


def test_averages_without_padding() -> None:
    made = net(layer("Pooling", "c", "data", "c", "pooling_param { pool: AVE kernel_size: 3 "
                     "stride: 2 pad: 1 avg_include_pad: false }"))  # fmt: skip
    made.forward(data=np.ones_like(IMAGES), label=LABELS)
    np.testing.assert_allclose(made.blobs["c"].data, 1, rtol=1e-6)
    made.blobs["c"].diff[...] = 1
    made = net(
        "force_backward: true "
        + layer("Pooling", "c", "data", "c", "pooling_param { pool: AVE kernel_size: 3 "
                "stride: 2 pad: 1 avg_include_pad: false }")
    )  # fmt: skip
    made.forward(data=IMAGES, label=LABELS)
    x = IMAGES[0, 0]
    np.testing.assert_allclose(made.blobs["c"].data[0, 0, 0, 0], x[:2, :2].mean(), rtol=1e-5)
    np.testing.assert_allclose(made.blobs["c"].data[0, 0, 1, 1], x[1:4, 1:4].mean(), rtol=1e-4)
    made.blobs["c"].diff[...] = 1
    made.backward()
    corner = made.blobs["data"].diff[0, 0, 0, 0]
    np.testing.assert_allclose(corner, 1 / 4, rtol=1e-6)


@pytest.mark.parametrize("field", ["scale_bias: true", "use_weight_bias: true"])
def test_batch_norm_with_its_own_scale(field: str) -> None:
    own = net(layer("BatchNorm", "n", "data", "c", f"batch_norm_param {{ {field} "
                    "bias_filler { value: 0.5 } }") + END)  # fmt: skip
    scale = layer("Scale", "s", "c", "c", "scale_param { bias_term: true }")
    apart = net(layer("BatchNorm", "n", "data", "c") + scale + END)
    assert (own.params["n"][3].data == 1).all() and (own.params["n"][4].data == 0.5).all()
    rng = np.random.default_rng(4)
    for blob, twin in zip(own.params["n"][3:], apart.params["s"], strict=True):
        blob.data[...] = twin.data[...] = rng.normal(size=blob.shape)
    for made in (own, apart):
        for blob in made.params["fc"]:
            blob.data[...] = np.random.default_rng(5).normal(size=blob.shape)
        made.clear_param_diffs()
        made.forward(data=IMAGES, label=LABELS)
        made.backward()
    np.testing.assert_allclose(own.blobs["c"].data, apart.blobs["c"].data, rtol=1e-5, atol=1e-6)
    for blob, twin in zip(own.params["n"][3:], apart.params["s"], strict=True):
        np.testing.assert_allclose(blob.diff, twin.diff, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spelling", ["layer", "net"])
def test_statistics_of_parts_of_a_batch(spelling: str) -> None:
    given = "batch_norm_param { stats_batch_size: 2 }" if spelling == "layer" else ""
    head = "" if given else "bn_stats_batch_size: 2 "
    made = net(layer("BatchNorm", "n", "data", "c", given), head=head + "force_backward: true ")
    made.forward(data=IMAGES, label=LABELS)
    top = np.array(made.blobs["c"].data)
    diff = np.random.default_rng(2).normal(size=top.shape)
    made.blobs["c"].diff[...] = diff
    made.backward()
    gradient = np.array(made.blobs["data"].diff)
    sums = np.zeros(3)
    for part in (slice(0, 2), slice(2, 4)):
        half = caffe.Net(
            schema.parse_text(
                "force_backward: true " + inputs(2) + layer("BatchNorm", "n", "data", "c"),
                schema.NetParameter(),
            ),
            caffe.TRAIN,
        )
        half.forward(data=IMAGES[part], label=LABELS[part])
        np.testing.assert_allclose(top[part], half.blobs["c"].data, rtol=1e-5, atol=1e-6)
        half.blobs["c"].diff[...] = diff[part]
        half.backward()
        np.testing.assert_allclose(gradient[part], half.blobs["data"].diff, rtol=1e-4, atol=1e-5)
        sums = 0.999 * sums + half.params["n"][0].data
    np.testing.assert_allclose(made.params["n"][0].data, sums, rtol=1e-5, atol=1e-7)
    with pytest.raises(LayerError, match="must divide the batch of 4"):
        net(layer("BatchNorm", "n", "data", "c", "batch_norm_param { stats_batch_size: 3 }"))


def test_dropout_that_scales_in_test_phase() -> None:
    drop = layer("Dropout", "c", "data", "c",
                 "dropout_param { dropout_ratio: 0.25 scale_train: false }")  # fmt: skip
    train, test = net(drop), net(drop, caffe.TEST)
    for made in (train, test):
        made.forward(data=IMAGES, label=LABELS)
    found = np.array(train.blobs["c"].data)
    assert set(np.unique(found == 0)) == {False, True}
    np.testing.assert_array_equal(found[found != 0], IMAGES[found != 0])
    np.testing.assert_allclose(test.blobs["c"].data, 0.75 * IMAGES, rtol=1e-6)


def test_dropout_in_test_phase() -> None:
    drop = layer("Dropout", "c", "data", "c", "dropout_param { sample_weights_test: true }")
    made = net(drop, caffe.TEST)
    made.forward(data=IMAGES, label=LABELS)
    first = np.array(made.blobs["c"].data)
    made.forward(data=IMAGES, label=LABELS)
    assert 0.3 < (first == 0).mean() < 0.7 and (first != made.blobs["c"].data).any()


def test_dropout_with_a_seed_of_its_own() -> None:
    def masks(text: str) -> list[Array]:
        drop = layer("Dropout", "c", "data", "c", f"dropout_param {{ {text} }}")
        found = []
        for seed in (1, 2):
            made = net(drop, seed=seed)
            made.forward(data=IMAGES, label=LABELS)
            found.append(made.blobs["c"].data == 0)
        return found

    same, other = masks("random_seed: 7"), masks("")
    assert (same[0] == same[1]).all() and (other[0] != other[1]).any()


def test_msra_for_prelus() -> None:
    def deviation(alpha: str) -> float:
        made = net(ip("f", "data", 200).replace('type: "xavier"', f'type: "msra" {alpha}'))
        return float(made.params["f"][0].data.std())

    assert deviation("alpha: 1") == pytest.approx(deviation("") / 2**0.5, rel=1e-5)


def test_class_weights_of_a_loss() -> None:
    weights = np.array([0.5, 2, 0, 3, 1])
    listed = " ".join(f"class_weighting: {w}" for w in weights)
    body = ip("fc", "data") + softmax_loss(
        "fc", f"loss_param {{ weight_by_label_freqs: true {listed} }}"
    )
    made = net(body)
    made.clear_param_diffs()
    made.forward(data=IMAGES, label=LABELS)
    made.backward()
    scores = made.blobs["fc"].data.astype(float)
    prob = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    picked, factor = LABELS.astype(int), weights[LABELS.astype(int)]
    want = -(factor * np.log(prob[np.arange(4), picked])).sum() / 4
    np.testing.assert_allclose(made.blobs["loss"].data, want, rtol=1e-5)
    grad = (prob - np.eye(5)[picked]) * factor[:, None] / 4
    np.testing.assert_allclose(made.blobs["fc"].diff, grad, rtol=1e-4, atol=1e-6)
    with pytest.raises(LayerError, match="one class_weighting for each of the 5 classes, got 1"):
        net(ip("fc", "data") + softmax_loss(
            "fc", "loss_param { weight_by_label_freqs: true class_weighting: 1 }"))  # fmt: skip


def test_depthwise_by_its_other_name() -> None:
    def window(kind: str) -> str:
        return conv("c", "data", 3, param="kernel_size: 3 pad: 1 group: 3").replace(
            '"Convolution"', f'"{kind}"'
        )

    assert_same(window("ConvolutionDepthwise") + END, window("Convolution") + END, "c", "loss")
