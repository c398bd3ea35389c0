"""Shape layers beyond their rows: definitions by loops, changing batches, real nets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import Net, schema
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.layers import Context

Array = np.ndarray[Any, Any]


def build(text: str, phase: int = caffe.TRAIN) -> Net:
    return Net(schema.parse_text(text, schema.NetParameter()), phase)


def build_double(text: str) -> Net:
    param = schema.parse_text(text, schema.NetParameter())
    return Net(param, caffe.TRAIN, backend=NumPyBackend(dtype=np.float64), context=Context())


def source(name: str, *shape: int) -> str:
    dims = " ".join(f"dim: {d}" for d in shape)
    return (
        f'layer {{ name: "{name}" type: "Input" top: "{name}" '
        f"input_param {{ shape {{ {dims} }} }} }}\n"
    )


def layer(kind: str, bottoms: str, tops: str, params: str = "") -> str:
    ends = " ".join(
        [f'bottom: "{b}"' for b in bottoms.split()] + [f'top: "{t}"' for t in tops.split()]
    )
    name = tops.split()[0] if tops else "end"
    return f'layer {{ name: "{name}" type: "{kind}" {ends} {params} }}\n'


def run(kind: str, params: str, *inputs: Array) -> Array:
    """The one top of a layer in float64."""
    names = [f"x{i}" for i in range(len(inputs))]
    sources = "".join(source(n, *x.shape) for n, x in zip(names, inputs, strict=True))
    net = build_double(sources + layer(kind, " ".join(names), "y", params))
    for name, x in zip(names, inputs, strict=True):
        net.blobs[name].data[...] = x
    net.run_forward()
    return np.array(net.blobs["y"].data)


def test_argmax_prefers_the_last_of_equals() -> None:
    x = np.array([[1.0, 3, 3, 2, 3]])
    assert run("ArgMax", "", x).ravel().tolist() == [4]
    assert run("ArgMax", "argmax_param { top_k: 4 }", x).ravel().tolist() == [4, 2, 1, 3]


@pytest.mark.parametrize("reverse", [False, True])
def test_reorg_moves_as_darknet_does(reverse: bool) -> None:
    num, channels, height, width, s = 2, 8, 4, 6, 2
    x = np.arange(num * channels * height * width, dtype=float).reshape(num, channels, height, -1)
    want, flat = np.empty(x.size), x.reshape(-1)
    few = channels // (s * s)
    for b, k, j, i in np.ndindex(*x.shape):
        near = i + width * (j + height * (k + channels * b))
        across, down = i * s + k // few % s, j * s + k // few // s
        far = across + width * s * (down + height * s * (k % few + few * b))
        if reverse:
            want[far] = flat[near]
        else:
            want[near] = flat[far]
    got = run("Reorg", f"reorg_param {{ stride: 2 reverse: {str(reverse).lower()} }}", x)
    assert np.array_equal(got.reshape(-1), want)


@pytest.mark.parametrize(("out_h", "out_w"), [(9, 7), (2, 1), (5, 4), (1, 8)])
def test_interp_is_bilinear_between_corners(out_h: int, out_w: int) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 5, 4))
    got = run("Interp", f"interp_param {{ height: {out_h} width: {out_w} }}", x)
    for h, w in np.ndindex(out_h, out_w):
        down = h * 4 / (out_h - 1) if out_h > 1 else 0.0
        right = w * 3 / (out_w - 1) if out_w > 1 else 0.0
        i, j = min(int(down), 3), min(int(right), 2)
        a, b = down - i, right - j
        upper = x[0, :, i, j] * (1 - b) + x[0, :, i, j + 1] * b
        lower = x[0, :, i + 1, j] * (1 - b) + x[0, :, i + 1, j + 1] * b
        np.testing.assert_allclose(got[0, :, h, w], upper * (1 - a) + lower * a, atol=1e-12)


def test_interp_crops_before_it_resizes() -> None:
    x = np.random.default_rng(0).normal(size=(1, 1, 6, 7))
    got = run("Interp", "interp_param { zoom_factor: 1 pad_beg: -1 pad_end: -2 }", x)
    assert np.allclose(got, x[:, :, 1:-2, 1:-2])


def test_shuffle_channel_deals_groups_in_turn() -> None:
    x = np.arange(6.0).reshape(1, 6, 1, 1)
    got = run("ShuffleChannel", "shuffle_channel_param { group: 2 }", x)
    assert got.ravel().tolist() == [0, 3, 1, 4, 2, 5]


def test_upsample_with_one_bottom_repeats_pixels() -> None:
    x = np.arange(4.0).reshape(1, 1, 2, 2)
    got = run("Upsample", "upsample_param { scale: 2 }", x)
    assert np.array_equal(got[0, 0], np.kron(x[0, 0], np.ones((2, 2))))


def test_upsample_undoes_max_pooling_and_trains() -> None:
    net = build(
        source("x", 2, 3, 5, 7)
        + layer("Convolution", "x", "c", "convolution_param { num_output: 4 kernel_size: 1 "
                'weight_filler { type: "gaussian" std: 1 } }')
        + layer("Pooling", "c", "p mask", "pooling_param { kernel_size: 2 stride: 2 }")
        + layer("Upsample", "p mask", "u", "upsample_param { upsample_h: 5 upsample_w: 7 }")
        + layer("Reduction", "u", "loss", "loss_weight: 1 reduction_param { operation: SUMSQ }")
    )  # fmt: skip
    net.share_gradients()
    net.blobs["x"].data[...] = np.random.default_rng(0).normal(size=(2, 3, 5, 7))
    net.run_forward()
    pooled, up = net.blobs["p"].data, np.array(net.blobs["u"].data)
    assert np.count_nonzero(up) == pooled.size
    assert np.array_equal(up[up != 0], net.blobs["c"].data[up != 0])
    net.clear_param_diffs()
    net.run_backward()
    want = 2 * np.einsum("nchw,nkhw->ck", up, net.blobs["x"].data)
    np.testing.assert_allclose(net.params["c"][0].diff[:, :, 0, 0], want, rtol=1e-3, atol=1e-3)


def test_filter_changes_the_batch_from_pass_to_pass() -> None:
    net = build(
        source("x", 4, 3)
        + source("keep", 4)
        + layer("Filter", "x keep", "f")
        + layer("InnerProduct", "f", "y", "inner_product_param { num_output: 2 "
                'weight_filler { type: "gaussian" std: 1 } }')
        + layer("Reduction", "y", "loss", "loss_weight: 1 reduction_param { operation: SUMSQ }")
    )  # fmt: skip
    x = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    net.blobs["x"].data[...] = x
    weights = net.params["y"][0].data
    for keep in ([1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 1]):
        net.blobs["keep"].data[...] = keep
        net.run_forward()
        kept = x[np.array(keep) > 0]
        assert net.blobs["f"].shape == kept.shape
        np.testing.assert_allclose(net.blobs["y"].data, kept @ weights.T, rtol=1e-5, atol=1e-6)
        net.clear_param_diffs()
        net.run_backward()
        want = 2 * (kept @ weights.T).T @ kept
        np.testing.assert_allclose(net.params["y"][0].diff, want, rtol=1e-4, atol=1e-5)


def test_crop_sends_nothing_to_the_blob_it_takes_its_size_from() -> None:
    params = (
        'convolution_param {{ num_output: 2 kernel_size: {} weight_filler {{ type: "xavier" }} }}'
    )
    net = build(
        source("x", 1, 2, 4, 4)
        + layer("Convolution", "x", "big", params.format(1))
        + layer("Convolution", "x", "like", params.format(3))
        + layer("Crop", "big like", "cut", "crop_param { offset: 1 }")
        + layer("EuclideanLoss", "cut like", "loss")
    )  # fmt: skip
    net.share_gradients()
    net.blobs["x"].data[...] = np.random.default_rng(0).normal(size=(1, 2, 4, 4))
    for _ in range(2):  # the second pass finds used memory
        net.clear_param_diffs()
        net.forward_backward()
    gap = net.blobs["like"].data - net.blobs["cut"].data
    np.testing.assert_allclose(
        net.params["like"][1].diff, gap.sum(axis=(0, 2, 3)), rtol=1e-4, atol=1e-5
    )


def test_parameter_learns_and_adds_up_gradients() -> None:
    net = build(
        layer("Parameter", "", "p", "parameter_param { shape { dim: 3 } }")
        + source("t", 3)
        + layer("EuclideanLoss", "p t", "loss")
    )
    net.blobs["t"].data[...] = [1, 2, 3]
    net.clear_param_diffs()
    net.forward_backward()
    net.forward_backward()
    np.testing.assert_allclose(net.params["p"][0].diff, [-2 / 3, -4 / 3, -2], rtol=1e-6)


def test_silence_leaves_no_output() -> None:
    net = build(source("x", 2) + source("y", 2) + layer("Silence", "x y", ""))
    assert net.outputs == []


def test_convolution_without_spatial_axes_is_a_product_per_group() -> None:
    net = build_double(
        source("x", 2, 3, 4)
        + layer("Convolution", "x", "y", "convolution_param { num_output: 6 axis: 2 group: 2 }")
    )
    rng = np.random.default_rng(0)
    weights, bias = net.params["y"]
    assert weights.shape == (6, 2)
    for blob in (net.blobs["x"], weights, bias):
        blob.data[...] = rng.normal(size=blob.shape)
    net.run_forward()
    for n, t, o in np.ndindex(2, 3, 6):
        first = o // 3 * 2
        want = bias.data[o] + sum(
            weights.data[o, c] * net.blobs["x"].data[n, t, first + c] for c in range(2)
        )
        assert net.blobs["y"].data[n, t, o] == pytest.approx(want)


def test_max_pooling_beyond_the_bottom_gives_the_lowest_number() -> None:
    param = "pooling_param { kernel_size: 1 stride: 2 }"
    net = build(
        "force_backward: true\n" + source("x", 1, 1, 2, 4) + layer("Pooling", "x", "y", param)
    )
    net.blobs["x"].data[...] = np.arange(8).reshape(1, 1, 2, 4)
    net.run_forward()
    low = np.finfo(np.float32).min
    assert net.blobs["y"].data[0, 0].tolist() == [[0, 2, low], [low, low, low]]
    net.blobs["y"].diff[...] = 1
    net.run_backward()
    assert net.blobs["x"].diff[0, 0].tolist() == [[1, 0, 1, 0], [0, 0, 0, 0]]


def test_depthwise_convolution_is_convolution() -> None:
    params = "convolution_param { num_output: 3 group: 3 kernel_size: 3 }"
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 5))
    got = []
    for kind in ("Convolution", "DepthwiseConvolution"):
        net = build(source("x", 2, 3, 5, 5) + layer(kind, "x", "y", params))
        net.blobs["x"].data[...] = x
        net.params["y"][0].data[...] = np.arange(27).reshape(3, 1, 3, 3)
        net.run_forward()
        got.append(np.array(net.blobs["y"].data))
    assert np.array_equal(got[0], got[1])
    assert got[0].any()
