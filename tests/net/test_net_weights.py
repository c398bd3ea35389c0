"""Weights in and out: round trips, legacy shapes, what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.errors import WeightsError
from tests.net.net_cases import (
    IMAGES,
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
    write,
)


def text(outputs: int = 5, filters: int = 16) -> str:
    return inputs() + conv("c", "data", filters) + relu("r", "c") + ip("ip", "c", outputs)


def values(net: caffe.Net) -> dict[str, list[np.ndarray]]:
    return {name: [b.data.copy() for b in blobs] for name, blobs in net.params.items()}


@pytest.mark.parametrize("suffix", [".caffemodel", ".caffemodel.h5"])
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    net = make(text())
    path = str(tmp_path / f"net{suffix}")
    net.save(path)
    caffe.set_random_seed(8)
    other = caffe.Net(message(text()), caffe.TEST)
    assert (other.params["c"][0].data != net.params["c"][0].data).any()
    other.copy_from(path)
    for name, arrays in values(net).items():
        for a, b in zip(arrays, other.params[name], strict=True):
            np.testing.assert_array_equal(a, b.data)
    np.testing.assert_array_equal(net.forward(data=IMAGES)["ip"], other.forward(data=IMAGES)["ip"])
    assert not list(tmp_path.glob("*.tmp*"))


def test_weights_on_construction(tmp_path: Path) -> None:
    net = make(text())
    prototxt, weights = write(tmp_path, text()), str(tmp_path / "w.caffemodel")
    net.save(weights)
    for made in (
        caffe.Net(prototxt, caffe.TEST, weights=weights),
        caffe.Net(prototxt, weights, caffe.TEST),
    ):
        np.testing.assert_array_equal(made.params["c"][0].data, net.params["c"][0].data)


def test_weights_are_saved_as_they_are_after_backward(tmp_path: Path) -> None:
    """Native layouts and fresh writes alike: the file holds what `data` shows."""
    net = make(text() + softmax_loss("ip"))
    gradients(net)
    net.params["c"][0].data[0] = 7
    net.save(str(tmp_path / "w.caffemodel"), diffs=True)
    saved = {each.name: each for each in schema.read_weights(str(tmp_path / "w.caffemodel"))}
    assert (saved["c"].blobs[0][0] == 7).all()
    np.testing.assert_array_equal(saved["c"].blobs[0], net.params["c"][0].data)


def test_saving_a_net_that_never_ran_backward_makes_no_gradients(tmp_path: Path) -> None:
    net = make(text(), caffe.TEST)
    net.save(str(tmp_path / "w.caffemodel"))
    assert all(b.gradient.buffer is None for blobs in net.params.values() for b in blobs)


def test_the_file_holds_the_net_as_it_runs(tmp_path: Path) -> None:
    net = make(text() + ip("second", "c"))
    net.save(str(tmp_path / "w.caffemodel"))
    names = [each.name for each in schema.read_weights(str(tmp_path / "w.caffemodel"))]
    assert names == ["in", "c", "r", "c_r_0_split", "ip", "second"]


def test_layers_are_matched_by_name(tmp_path: Path) -> None:
    make(text()).save(str(tmp_path / "w.caffemodel"))
    net = make(inputs() + ip("fresh", "data") + conv("c", "data", 16))
    before = net.params["fresh"][0].data.copy()
    net.params["c"][0].data[...] = 0
    net.copy_from(str(tmp_path / "w.caffemodel"))
    assert net.params["c"][0].data.any()
    np.testing.assert_array_equal(net.params["fresh"][0].data, before)


def test_all_mismatches_are_listed_and_nothing_is_copied(tmp_path: Path) -> None:
    make(text()).save(str(tmp_path / "w.caffemodel"))
    bigger = inputs() + conv("c", "data", 16) + relu("r", "c")
    bigger += layer("InnerProduct", "ip", "c", "ip",
                    "inner_product_param { num_output: 7 bias_term: false }")  # fmt: skip
    net = make(bigger.replace("num_output: 16", "num_output: 12"))
    before = values(net)
    with pytest.raises(WeightsError) as caught:
        net.copy_from(str(tmp_path / "w.caffemodel"))
    said = str(caught.value)
    assert "w.caffemodel" in said and "rename" in said
    assert 'layer "c" blob 0: [16, 3, 3, 3] in the file, [12, 3, 3, 3] in the net' in said
    assert 'layer "c" blob 1: [16] in the file, [12] in the net' in said
    assert 'layer "ip": 2 weight blob(s) in the file, 1 in the net' in said
    agree(values(net), before)
    same = make(text(outputs=6))
    same.params["c"][0].data[...] = 0
    before = values(same)
    with pytest.raises(WeightsError, match=r'"ip" blob 0: \[5, 1024\].*\[6, 1024\]'):
        same.copy_from(str(tmp_path / "w.caffemodel"))
    agree(values(same), before)


def test_legacy_4d_shapes(tmp_path: Path) -> None:
    """Old files keep an inner product's weights as 1 x 1 x N x K and biases as 1 x 1 x 1 x N."""
    net = make(text())
    old = schema.NetParameter()
    for name, arrays in values(net).items():
        made = old.layer.add(name=name, type="Convolution" if name == "c" else "InnerProduct")
        for array in arrays:
            blob = made.blobs.add()
            dims = (1,) * (4 - array.ndim) + array.shape
            blob.num, blob.channels, blob.height, blob.width = dims
            blob.data.extend(array.reshape(-1).tolist())
    path = tmp_path / "old.caffemodel"
    path.write_bytes(old.SerializeToString())
    caffe.set_random_seed(9)
    other = caffe.Net(message(text()), caffe.TEST)
    other.copy_from(str(path))
    agree(values(other), values(net))


@pytest.mark.parametrize("extents", [{}, {"num": 1, "channels": 1, "height": 1, "width": 1}])
def test_a_single_number_as_caffe_writes_it(tmp_path: Path, extents: dict[str, int]) -> None:
    """Without a shape, since it has no axes, or in old files as 1 x 1 x 1 x 1."""
    shared = inputs() + layer("PReLU", "p", "data", extra="prelu_param { channel_shared: true }")
    net, old = make(shared), schema.NetParameter()
    old.layer.add(name="p", type="PReLU").blobs.add(data=[0.625], **extents)
    path = tmp_path / "w.caffemodel"
    path.write_bytes(old.SerializeToString())
    net.copy_from(str(path))
    assert net.params["p"][0].data.shape == () and net.params["p"][0].data == 0.625
    per_channel = make(inputs() + layer("PReLU", "p", "data"))
    with pytest.raises(WeightsError, match=r'"p" blob 0: \[1.*in the file, \[3\] in the net'):
        per_channel.copy_from(str(path))


def test_shared_weights_round_trip(tmp_path: Path) -> None:
    named = 'param { name: "w" } param { name: "b" }'
    shared = inputs() + ip("a", "data", 192, named) + ip("b", "a", 192, named)
    for suffix in (".caffemodel", ".caffemodel.h5"):
        net = make(shared)
        net.params["b"][0].data[0, 0] = 5
        path = str(tmp_path / f"shared{suffix}")
        net.save(path)
        other = make(shared)
        other.copy_from(path)
        assert other.params["a"][0].data[0, 0] == 5


def test_a_missing_or_foreign_file(tmp_path: Path) -> None:
    net = make(text())
    with pytest.raises(WeightsError, match="none.caffemodel"):
        net.copy_from(str(tmp_path / "none.caffemodel"))
    junk = tmp_path / "junk.caffemodel"
    junk.write_text("layer { }")
    with pytest.raises(WeightsError, match="junk.caffemodel.*prototxt"):
        net.copy_from(str(junk))


def test_weights_are_stored_once() -> None:
    """What fillers wrote is not kept beside the layout that the ops like; an array that was asked
    for is."""
    net = make(inputs() + conv("a", "data", 16))
    weights = net.layers[1].blobs[0].value
    assert weights._plain is None
    before = net.params["a"][0].data.copy()
    held = net.params["a"][0].data
    np.testing.assert_array_equal(held, before)
    assert weights.held


@pytest.mark.parametrize(("channels", "outputs"), [(3, 48), (2, 16), (4, 32)])
def test_weights_of_one_channel_per_group_are_read_and_saved(
    channels: int, outputs: int, tmp_path: Path
) -> None:
    """Their blob has an axis less than oneDNN's weights in groups."""
    shape = f"input_param {{ shape {{ dim: 2 dim: {channels} dim: 5 dim: 5 }} }}"
    grouped = layer("Input", "data", extra=shape)
    grouped += conv("conv", "data", outputs, param=f"kernel_size: 1 group: {channels}")
    net, other = make(grouped), make(grouped)
    values = np.random.default_rng(1).normal(size=(outputs, 1, 1, 1)).astype(np.float32)
    net.params["conv"][0].data[...] = values
    net.forward()
    net.save(str(tmp_path / "net.caffemodel"))
    other.copy_from(str(tmp_path / "net.caffemodel"))
    np.testing.assert_array_equal(other.params["conv"][0].data, values)
