"""Published volumes, computed from the prototxts alone."""

from __future__ import annotations

import pytest

from pycaffe_fire.schema import read_net
from tests.models.model_shapes import MODELS, TRAIN, trace

BATCH = 1024


# The FireCaffe paper's, at batch 1024.
# Weights and inputs of the layers that have weights in MB; forward and backward in TFLOP.
@pytest.mark.parametrize(
    ("name", "crop", "groups", "weights", "inputs", "tflop"),
    [
        ("nin", 227, True, 30.4, 5895, 6.8),
        ("alexnet", 227, True, 243.9, 1700, 4.5),
        ("alexnet", 227, False, 249.5, 1700, 6.98),
        ("googlenet", 224, True, 53.5, 19195, 9.8),
    ],
)
def test_volumes_are_the_papers(
    name: str, crop: int, groups: bool, weights: float, inputs: int, tflop: float
) -> None:
    net = read_net(MODELS / name / "train_val.prototxt")
    if not groups:
        for layer in net.layer:
            layer.convolution_param.ClearField("group")
    _, ops = trace(net, TRAIN, (3, crop, crop))

    assert 4e-6 * sum(op.weights for op in ops) == pytest.approx(weights, abs=0.05)
    assert 4e-6 * BATCH * sum(op.inputs for op in ops) == pytest.approx(inputs, abs=0.5)
    forward = 2e-12 * BATCH * sum(op.multiply_adds for op in ops)
    assert 3 * forward == pytest.approx(tflop, abs=0.05 if groups else 0.005)


# Multiply-adds of one image in G. Caffe's SqueezeNet crops 227; its figure is given for 224.
@pytest.mark.parametrize(
    ("name", "crop", "published", "rounding"),
    [
        ("resnet50", 224, 3.86, 0.005),
        ("vgg16", 224, 15.47, 0.005),
        ("squeezenet_v1.1", 224, 0.35, 0.005),
        ("squeezenet_v1.1", 227, 0.388, 0.0005),
        ("mobilenet_v1", 224, 0.569, 0.0005),
    ],
)
def test_multiply_adds_are_the_published(
    name: str, crop: int, published: float, rounding: float
) -> None:
    net = read_net(MODELS / name / "train_val.prototxt")
    _, ops = trace(net, TRAIN, (3, crop, crop))
    assert 1e-9 * sum(op.multiply_adds for op in ops) == pytest.approx(published, abs=rounding)
