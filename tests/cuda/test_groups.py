"""Cutting backward inside layers that ran as one op gives on a device what it gives on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.layers import Context

NET = """
force_backward: true
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 3 dim: 4 dim: 5 dim: 6 } } }
layer { name: "gain" type: "Scale" bottom: "data" top: "x" scale_param { filler { value: 2 } } }
layer { name: "bn" type: "BatchNorm" bottom: "x" top: "TOP" }
layer { name: "scale" type: "Scale" bottom: "TOP" top: "TOP" scale_param {
  bias_term: true filler { type: "uniform" min: 0.5 max: 1.5 } bias_filler { type: "gaussian" } } }
layer { name: "relu" type: "ReLU" bottom: "TOP" top: "TOP" }
"""


def run(backend: Backend, top: str, cut: tuple[str, str] | None) -> dict[str, Any]:
    param = schema.parse_text(NET.replace("TOP", top), schema.NetParameter())
    net = Net(param, schema.TRAIN, backend=backend, context=Context(3))
    assert net.groups
    rng = np.random.default_rng(0)
    net.blobs["data"].data[...] = rng.standard_normal((3, 4, 5, 6))
    net.forward()
    net.blobs[top].diff[...] = rng.standard_normal((3, 4, 5, 6))
    if cut is None:
        net.backward()
    else:
        net.backward(end=cut[0])
        net.backward(start=cut[1])
    found = {name: np.stack([b.data, b.diff]) for name, b in net.blobs.items()}
    for name, blobs in net.params.items():
        found |= {f"{name} {i}": np.stack([b.data, b.diff]) for i, b in enumerate(blobs)}
    return found


@pytest.mark.parametrize("top", ["x", "y"])
@pytest.mark.parametrize("cut", [("relu", "scale"), ("scale", "bn"), None])
def test_a_group_may_be_cut(cuda: Any, top: str, cut: tuple[str, str] | None) -> None:
    expected = run(NumPyBackend(), top, cut)
    for name, value in run(cuda, top, cut).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=2e-5, err_msg=name)
