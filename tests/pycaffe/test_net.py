"""pycaffe's Net: constructors, names, ranges of layers, whole arrays, files, sharing, hooks."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from tests.pycaffe.cases import DEPLOY, TRAIN, deploy
from tests.random_numbers import RNG

IMAGES = np.random.RandomState(0).rand(10, 2, 6, 6).astype(np.float32)

STAGED = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 } } }
layer { name: "deep" type: "Power" bottom: "data" top: "deep" include { min_level: 2 } }
layer { name: "extra" type: "Power" bottom: "data" top: "extra" include { stage: "more" } }
"""


def test_all_constructors(here: Path) -> None:
    net = deploy()
    net.save("w.caffemodel")
    weights = net.params["ip"][0].data
    made = [
        caffe.Net("deploy.prototxt", "w.caffemodel", caffe.TEST),
        caffe.Net("deploy.prototxt", caffe.TEST, weights="w.caffemodel"),
        caffe.Net("deploy.prototxt", caffe.TEST, 0, None, "w.caffemodel"),
        caffe.Net(network_file="deploy.prototxt", phase=caffe.TEST, weights="w.caffemodel"),
        caffe.Net(here / "deploy.prototxt", here / "w.caffemodel", caffe.TEST),
        caffe.Net(here / "deploy.prototxt", caffe.TEST, weights=here / "w.caffemodel"),
    ]
    for each in made:
        assert (each.params["ip"][0].data == weights).all() and each.phase == caffe.TEST


def test_level_and_stages() -> None:
    Path("staged.prototxt").write_text(STAGED)

    def names(*arguments: Any, **options: Any) -> list[str]:
        return caffe.Net("staged.prototxt", caffe.TEST, *arguments, **options)._layer_names

    assert [n for n in names() if "split" not in n] == ["data"]
    assert "deep" in names(2) and "extra" not in names(2)
    assert "extra" in names(stages=["more"]) and "deep" not in names(stages=["more"])
    assert {"deep", "extra"} <= set(names(level=3, stages=["other", "more"]))


def test_a_message_stays_as_it_is() -> None:
    param = schema.parse_text(DEPLOY, schema.NetParameter())
    before = param.SerializeToString()
    caffe.Net(param, caffe.TEST, level=3, stages=["a"])
    assert param.SerializeToString() == before


def test_an_old_message_is_upgraded_as_a_file_would_be() -> None:
    from google.protobuf import text_format

    from pycaffe_fire.pycaffe.proto import caffe_pb2

    param = caffe_pb2.NetParameter()
    text_format.Merge(
        'input: "x" input_dim: 2 input_dim: 3 input_dim: 1 input_dim: 1 '
        'layers { name: "r" type: RELU bottom: "x" top: "r" }',
        param,
    )
    net = caffe.Net(param, caffe.TEST)
    assert net.inputs == ["x"] and net.layer_dict["r"].type == "ReLU" and param.input_dim[0] == 2


def test_names() -> None:
    net = deploy()
    assert isinstance(net.blobs, OrderedDict) and list(net.blobs) == ["data", "conv", "ip", "prob"]
    assert isinstance(net.params, OrderedDict) and list(net.params) == ["conv", "ip"]
    assert net.inputs == ["data"] and net.outputs == ["prob"] and net.name == "small"
    assert net._layer_names == ["data", "conv", "relu", "ip", "prob"]
    assert list(net.layer_dict) == net._layer_names
    assert net.layer_dict["ip"] is net.layers[3] and net.layers[3].type == "InnerProduct"
    assert net.layers[3].blobs[0].data.shape == (3, 128)
    assert net.layers[3].bottom == ["conv"] and net.layers[3].top == ["ip"]
    assert net.bottom_names == {
        "data": [], "conv": ["data"], "relu": ["conv"], "ip": ["conv"], "prob": ["ip"]
    }  # fmt: skip
    assert net.top_names["relu"] == ["conv"] and list(net.top_names) == net._layer_names


def test_numbers_behind_the_names() -> None:
    net = deploy()
    assert net._blob_names == ["data", "conv", "ip", "prob"]
    assert [blob.shape for blob in net._blobs] == [b.shape for b in net.blobs.values()]
    assert net._inputs == [0] and net._outputs == [3]
    assert net._bottom_ids(2) == [1] and net._top_ids(2) == [1] and net._bottom_ids(0) == []


def test_loss_weights() -> None:
    Path("t.prototxt").write_text(TRAIN.replace('top: "loss"', 'top: "loss" loss_weight: 0.5'))
    net = caffe.Net("t.prototxt", caffe.TRAIN)
    assert net.blob_loss_weights == {"x": 0, "y": 0, "ip": 0, "loss": 0.5}


def test_forward_with_inputs_and_blobs() -> None:
    net = deploy()
    out = net.forward(blobs=["ip"], data=IMAGES[:4])
    assert set(out) == {"prob", "ip"}
    np.testing.assert_array_equal(net.blobs["data"].data, IMAGES[:4])
    np.testing.assert_allclose(out["prob"].sum(axis=1), 1, rtol=1e-5)
    assert net.forward(end="conv")["conv"].shape == (4, 8, 4, 4)
    assert np.shares_memory(out["prob"], net.forward(start="ip")["prob"])


def test_forward_in_two_parts_is_one_forward() -> None:
    net = deploy()
    whole = net.forward(data=IMAGES[:4])["prob"].copy()
    net.forward(data=IMAGES[4:8])
    net.forward(end="relu", data=IMAGES[:4])
    np.testing.assert_allclose(net.forward(start="ip")["prob"], whole, rtol=1e-5)


def test_by_numbers() -> None:
    net = deploy()
    net.blobs["data"].data[...] = IMAGES[:4]
    assert net._forward(0, 4) == 0
    top = net.blobs["prob"].data.copy()
    net.blobs["prob"].diff[...] = 1
    net._backward(4, 0)
    assert (top == net.blobs["prob"].data).all()


def test_backward_with_diffs() -> None:
    net = caffe.Net(
        schema.parse_text("force_backward: true" + DEPLOY, schema.NetParameter()), caffe.TEST
    )
    net.forward(data=IMAGES[:4])
    seed = np.zeros((4, 3), np.float32)
    seed[:, 1] = 1
    diffs = net.backward(diffs=["ip"], prob=seed)
    assert set(diffs) == {"data", "ip"} and diffs["data"].any()
    np.testing.assert_allclose(diffs["ip"].sum(axis=1), 0, atol=1e-6)  # of a softmax
    assert set(net.backward(start="prob", end="ip", prob=seed)) == {"conv"}


def test_wrong_names_and_shapes_raise_what_pycaffe_raised() -> None:
    net = deploy()
    with pytest.raises(KeyError, match='no blob "pob".*did you mean "prob"'):
        net.forward(blobs=["pob"])
    with pytest.raises(ValueError, match='no layer "convv".*did you mean "conv"'):
        net.forward(start="convv")
    with pytest.raises(ValueError, match="no layer"):
        net.backward(end="nowhere")
    with pytest.raises(Exception, match='"image" is not an input.*inputs: data'):
        net.forward(image=IMAGES)
    with pytest.raises(Exception, match=r'"data" has shape \[4, 2, 6, 6\], got \[10'):
        net.forward(data=IMAGES)
    with pytest.raises(ValueError, match="reshape the blob"):
        net.forward(data=IMAGES[:4, :1])
    with pytest.raises(KeyError):
        net.blobs["nothing"]


def test_missing_files_are_runtime_errors() -> None:
    with pytest.raises(RuntimeError, match=r"nowhere.prototxt: no such file"):
        caffe.Net("nowhere.prototxt", caffe.TEST)
    net = deploy()
    for load in (net.copy_from, net.load_hdf5):
        with pytest.raises(RuntimeError, match=r"nowhere.caffemodel: no such file"):
            load("nowhere.caffemodel")


def test_forward_all_pads_the_last_batch() -> None:
    net = deploy()
    outs = net.forward_all(blobs=["conv"], data=IMAGES)
    assert outs["prob"].shape == (10, 3) and outs["conv"].shape == (10, 8, 4, 4)
    for i in (0, 5, 9):
        net.blobs["data"].data[...] = IMAGES[i]
        np.testing.assert_allclose(net.forward()["prob"][0], outs["prob"][i], rtol=1e-5)
    assert (net.forward_all(data=IMAGES[:4])["prob"] == outs["prob"][:4]).all()
    with pytest.raises(ValueError, match=r"inputs \(data\), got none"):
        net.forward_all()


def test_forward_backward_all() -> None:
    net = caffe.Net(
        schema.parse_text("force_backward: true" + DEPLOY, schema.NetParameter()), caffe.TEST
    )
    seeds = RNG.random((10, 3)).astype(np.float32)
    outs, diffs = net.forward_backward_all(blobs=["ip"], diffs=["conv"], data=IMAGES, prob=seeds)
    assert outs["ip"].shape == (10, 3) and diffs["conv"].shape == (10, 8, 4, 4)
    assert diffs["data"].shape == IMAGES.shape
    net.forward(data=IMAGES[4:8])
    expected = net.backward(prob=seeds[4:8])["data"]
    np.testing.assert_allclose(diffs["data"][4:8], expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="data 10, prob 9"):
        net.forward_backward_all(data=IMAGES, prob=seeds[:9])


def test_a_loss_comes_once_per_batch_from_forward_all() -> None:
    text = DEPLOY + (
        'layer { name: "want" type: "Input" top: "want" input_param { shape { dim: 4 dim: 3 } } }'
        'layer { name: "loss" type: "EuclideanLoss" bottom: "prob" bottom: "want" top: "loss" }'
    )
    outs = deploy(text).forward_all(data=IMAGES[:8], want=np.zeros((8, 3)))
    assert outs["loss"].shape == (2,) and outs["loss"].all()


def test_set_input_arrays() -> None:
    Path("t.prototxt").write_text(TRAIN)
    net = caffe.Net("t.prototxt", caffe.TEST)
    data = np.arange(24, dtype=np.float32).reshape(8, 3, 1, 1)
    net.set_input_arrays(data, np.arange(8) % 2)
    for start in (0, 4, 0):
        net.forward()
        np.testing.assert_array_equal(net.blobs["x"].data, data[start : start + 4])
    with pytest.raises(RuntimeError, match="multiple of batch_size 4, got 6"):
        net.set_input_arrays(data[:6], np.zeros(6))
    with pytest.raises(RuntimeError, match='first layer is of type MemoryData.*"data" \\(Input\\)'):
        deploy().set_input_arrays(data, np.zeros(8))


def test_reshape_reaches_the_end() -> None:
    net = deploy()
    net.blobs["data"].reshape(2, 2, 6, 6)
    net.reshape()
    assert net.blobs["prob"].shape == (2, 3)
    assert net.forward(data=IMAGES[:2])["prob"].shape == (2, 3)


def test_files(here: Path) -> None:
    net = deploy()
    expected = net.forward(data=IMAGES[:4])["prob"].copy()
    net.save(here / "a.caffemodel")
    net.save_hdf5(here / "weights.any")
    for load, path in (("copy_from", here / "a.caffemodel"), ("load_hdf5", "weights.any")):
        caffe.set_random_seed(99)
        other = caffe.Net("deploy.prototxt", caffe.TEST)
        assert (other.forward(data=IMAGES[:4])["prob"] != expected).any()
        getattr(other, load)(path)
        np.testing.assert_array_equal(other.forward(data=IMAGES[:4])["prob"], expected)


def test_clear_param_diffs() -> None:
    net = caffe.Net(
        schema.parse_text("force_backward: true" + DEPLOY, schema.NetParameter()), caffe.TRAIN
    )
    net.forward(data=IMAGES[:4])
    net.backward(prob=RNG.random((4, 3)))
    assert net.params["conv"][0].diff.any()
    net.clear_param_diffs()
    assert not net.params["conv"][0].diff.any()


def test_share_with() -> None:
    a, text = deploy(), DEPLOY.replace("dim: 4 dim: 2", "dim: 1 dim: 2")
    caffe.set_random_seed(2)
    b = caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TEST)
    b.share_with(a)
    b.params["conv"][0].data[0] = 3
    b.params["ip"][1].data[...] = [1, 2, 3]
    assert (a.params["conv"][0].data[0] == 3).all() and a.params["ip"][1].data[2] == 3
    a.params["ip"][0].data[...] *= 2
    expected = a.forward(data=IMAGES[:4])["prob"]
    for i in range(4):
        got = b.forward(data=IMAGES[i : i + 1])["prob"][0]
        np.testing.assert_allclose(got, expected[i], rtol=1e-4)


def test_sharing_needs_equal_shapes() -> None:
    a = deploy()
    b = deploy(DEPLOY.replace("num_output: 3", "num_output: 4"))
    before = b.params["conv"][0].data.copy()
    with pytest.raises(RuntimeError, match=r'"ip".*\[4, 128\].*\[3, 128\]'):
        b.share_with(a)
    a.params["conv"][0].data[...] = 0
    assert (b.params["conv"][0].data == before).all()


def test_hooks_see_every_layer_in_order() -> None:
    net, seen = deploy("force_backward: true" + DEPLOY), []
    net.before_forward(lambda i: seen.append(("before", i)))
    net.after_forward(lambda i: seen.append(("after", i)))
    net.before_backward(lambda i: seen.append(("back", i)))
    net.after_backward(lambda i: seen.append(("done", i)))
    net.forward(data=IMAGES[:4])
    assert seen == [(when, i) for i in range(5) for when in ("before", "after")]
    seen.clear()
    net.forward(start="ip")
    assert [i for when, i in seen if when == "after"] == [3, 4]
    seen.clear()
    net.backward(prob=np.ones((4, 3)))
    assert seen == [(when, i) for i in (4, 3, 2, 1, 0) for when in ("back", "done")]


def test_blobs_know_their_shapes() -> None:
    blob = deploy().blobs["data"]
    assert (blob.num, blob.channels, blob.height, blob.width) == (4, 2, 6, 6)
    assert blob.count == 288 and blob.shape == (4, 2, 6, 6)
    blob.data[1:3] = 5
    blob.diff[...] = blob.data
    assert blob.data[1:3].min() == 5 == blob.diff[2, 1, 5, 5] and not blob.data[0].any()
    blob.reshape(1, 3)
    assert blob.shape == blob.data.shape == blob.diff.shape == (1, 3)
    assert (blob.num, blob.channels, blob.height, blob.width) == (1, 3, 1, 1)
    blob.reshape(np.int64(2), 2, 2, 2)
    assert blob.count == 16
    with pytest.raises(RuntimeError, match="negative dimension"):
        blob.reshape(-1, 3)
