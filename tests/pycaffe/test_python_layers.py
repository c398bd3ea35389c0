"""pycaffe's contract for layers written in Python."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema

NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "mine" type: "Python" bottom: "x" top: "y"
  python_param { module: "own_layers" layer: "Mine" param_str: "factor" } }
"""


class Mine(caffe.Layer):
    def setup(self, bottom: Sequence[Any], top: Sequence[Any]) -> None:
        self.seen = (self.param_str, self.param_str_, self.phase, len(bottom), len(top))
        self.offset = 1.0
        self.blobs.add_blob(2, 3)
        self.blobs.add_blob(1)
        self.blobs[0].data[...] = 5

    def reshape(self, bottom: Sequence[Any], top: Sequence[Any]) -> None:
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Sequence[Any], top: Sequence[Any]) -> None:
        top[0].data[...] = bottom[0].data * self.blobs[0].data + self.offset

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        self.blobs[0].diff[...] += bottom[0].data * top[0].diff
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff * self.blobs[0].data

    def double(self) -> None:
        self.blobs[0].data[...] *= 2


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType("own_layers")
    module.Mine = Mine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_layers", module)
    return caffe.Net(
        schema.parse_text("force_backward: true" + NET, schema.NetParameter()), caffe.TEST
    )


def test_what_setup_finds(net: Any) -> None:
    assert net.layers[1].seen == ("factor", "factor", caffe.TEST, 1, 1)
    assert net.layers[1].type == "Python"


def test_weights_of_its_own(net: Any) -> None:
    assert [blob.shape for blob in net.params["mine"]] == [(2, 3), (1,)]
    out = net.forward(x=np.ones((2, 3)))["y"]
    assert (out == 6).all()
    net.layers[1].double()
    assert (net.forward()["y"] == 11).all()
    diffs = net.backward(y=np.full((2, 3), 2))
    assert (diffs["x"] == 20).all() and (net.params["mine"][0].diff == 2).all()


def test_attributes_are_the_instance_s_to_read_and_to_write(net: Any) -> None:
    layer = net.layer_dict["mine"]
    assert layer.offset == 1
    layer.offset = 3
    assert layer.user.offset == 3 and (net.forward(x=np.zeros((2, 3)))["y"] == 3).all()
    with pytest.raises(AttributeError):
        layer.nothing  # noqa: B018


def test_its_own_exceptions_come_through(net: Any) -> None:
    net.layers[1].user.forward = lambda bottom, top: 1 / 0
    with pytest.raises(ZeroDivisionError):
        net.forward()
