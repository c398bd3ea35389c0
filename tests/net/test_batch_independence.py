"""Where that is asked for, a sample's result does not depend on the batch that it is in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.onednn.winograd import Winograd

# CaffeNet in small: a wide first convolution, LRN, groups, 3x3 ones that Winograd's method takes in
# a large batch only (conv3) or in any (conv2), and inner products.
NET = """
layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: {batch} dim: 3
  dim: 67 dim: 67 }} }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "conv1" convolution_param {{
  num_output: 128 kernel_size: 11 stride: 2 }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }}
layer {{ name: "norm1" type: "LRN" bottom: "conv1" top: "norm1" }}
layer {{ name: "conv2" type: "Convolution" bottom: "norm1" top: "conv2" convolution_param {{
  num_output: 128 kernel_size: 3 pad: 1 }} }}
layer {{ name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }}
layer {{ name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param {{
  kernel_size: 3 stride: 2 }} }}
layer {{ name: "conv3" type: "Convolution" bottom: "pool2" top: "conv3" convolution_param {{
  num_output: 128 kernel_size: 3 pad: 1 }} }}
layer {{ name: "conv4" type: "Convolution" bottom: "conv3" top: "conv4" convolution_param {{
  num_output: 128 kernel_size: 3 pad: 1 group: 2 }} }}
layer {{ name: "relu4" type: "ReLU" bottom: "conv4" top: "conv4" }}
layer {{ name: "pool4" type: "Pooling" bottom: "conv4" top: "pool4" pooling_param {{
  kernel_size: 3 stride: 2 }} }}
layer {{ name: "fc6" type: "InnerProduct" bottom: "pool4" top: "fc6" inner_product_param {{
  num_output: 300 }} }}
layer {{ name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }}
layer {{ name: "fc7" type: "InnerProduct" bottom: "fc6" top: "fc7" inner_product_param {{
  num_output: 37 bias_term: false }} }}
layer {{ name: "prob" type: "Softmax" bottom: "fc7" top: "prob" }}
"""
LARGE = 50

pytestmark = pytest.mark.skipif(cpu_backend().name != "onednn", reason="oneDNN is not there")


def net(batch: int, phase: int = caffe.TEST) -> caffe.Net:
    """The net with the same weights, whatever the batch."""
    made = caffe.Net(schema.parse_text(NET.format(batch=batch), schema.NetParameter()), phase)
    rng = np.random.default_rng(1)
    for blobs in made.params.values():
        for blob in blobs:
            deviation = np.prod(blob.data.shape[1:]) ** -0.5
            blob.data[...] = rng.standard_normal(blob.data.shape) * deviation
    return made


@pytest.fixture(autouse=True)
def _same_in_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCAFFE_FIRE_SAME_IN_EVERY_BATCH", "1")


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(2).standard_normal((LARGE, 3, 67, 67)).astype(np.float32)


def computed(made: caffe.Net, images: np.ndarray) -> dict[str, np.ndarray]:
    made.blobs["data"].data[...] = images
    made.forward()
    return {name: blob.data.copy() for name, blob in made.blobs.items()}


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_a_sample_has_the_same_bits_in_every_batch(batch: int, images: np.ndarray) -> None:
    large, small = computed(net(LARGE), images), net(batch)
    for start in (0, 30, LARGE - batch):
        part = slice(start, start + batch)
        for name, values in computed(small, images[part]).items():
            np.testing.assert_array_equal(values, large[name][part], name)


def test_others_may_choose_by_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given up for TEST phase alone: Winograd's method where only a batch makes it pay."""

    def methods(phase: int) -> list[bool]:
        layers: list[Any] = [one for one in net(LARGE, phase).layers if one.type == "Convolution"]
        return [isinstance(layer._plans[0][0], Winograd) for layer in layers]

    assert methods(caffe.TRAIN)[1:3] == [True, True]
    assert methods(caffe.TEST)[1:3] == [True, False]
    monkeypatch.delenv("PYCAFFE_FIRE_SAME_IN_EVERY_BATCH")
    assert methods(caffe.TEST)[1:3] == [True, True]
