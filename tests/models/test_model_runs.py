"""The deep nets under models/ build, run forward and backward, and start from sane losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import Net
from pycaffe_fire.layers import Context
from pycaffe_fire.schema import read_net
from tests.models.model_shapes import MODELS, TEST, TRAIN

BATCH = 2
CROPS = {"vgg16": 224, "squeezenet_v1.1": 227, "resnet50": 224, "mobilenet_v1": 224}


def narrowed(model: str, file: str) -> Any:
    """VGG's two wide layers hold 119 of its 138 M weights and take seconds to fill."""
    param = read_net(MODELS / model / f"{file}.prototxt")
    for layer in param.layer:
        if layer.inner_product_param.num_output == 4096:
            layer.inner_product_param.num_output = 128
    return param


def fed_by_hand(model: str) -> Net:
    """The train_val net with inputs in place of its data layers, filled with noisy pixels."""
    param, crop = narrowed(model, "train_val"), CROPS[model]
    for layer in param.layer:
        if layer.type == "Data":
            scale = layer.transform_param.scale
            layer.type = "Input"
            for shape in ((BATCH, 3, crop, crop), (BATCH,)):
                layer.input_param.shape.add().dim.extend(shape)
            layer.ClearField("data_param")
            layer.ClearField("transform_param")
    net = Net(param, TRAIN, context=Context(seed=1))
    noise: Any = np.random.default_rng(7).standard_normal((BATCH, 3, crop, crop), np.float32)
    net.blobs["data"].data[...] = 65 * scale * noise
    net.blobs["label"].data[...] = [3, 999]
    return net


@pytest.mark.parametrize("model", CROPS)
def test_a_training_pass_reaches_every_weight(model: str) -> None:
    net = fed_by_hand(model)
    loss = net.forward_backward()
    # Random weights know nothing; equal scores would give log(1000), far apart ones far more.
    assert 0.5 < loss / math.log(1000) < 2
    for parameter in net.parameters.items:
        diff = parameter.blob.diff
        assert np.isfinite(diff).all()
        assert np.any(diff) or not parameter.lr_mult


@pytest.mark.parametrize("model", CROPS)
def test_deploy_classifies(model: str) -> None:
    net = Net(narrowed(model, "deploy"), TEST)
    net.blobs["data"].reshape(BATCH, 3, CROPS[model], CROPS[model])
    net.blobs["data"].data[...] = np.random.default_rng(7).standard_normal(
        net.blobs["data"].shape, np.float32
    )
    probabilities = net.forward()["prob"].reshape(BATCH, -1)
    assert probabilities.shape == (BATCH, 1000)
    assert probabilities.sum(axis=1) == pytest.approx([1, 1], rel=1e-4)
