"""Sums per channel by several blocks, and gradients that wait for their way back through a ReLU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.cuda.channels import Channels
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import RunningMoments
from pycaffe_fire.layers import Context
from tests.cuda.cuda_emulator import Module
from tests.cuda.fake_cupy.races import checker

LARGE = [(3, 3, 40, 41), (2, 5, 64, 64), (5000, 3), (8, 1, 30, 50)]


@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_large_channels_are_cut(cuda: Any, shape: tuple[int, ...]) -> None:
    outer, channels, *rest = shape
    cut = Channels(cuda, outer, channels, int(np.prod(rest)))
    assert cut.blocks > channels


def normalised(backend: Backend, shape: tuple[int, ...], in_place: bool) -> dict[str, Any]:
    """Forward, running averages and backward of BatchNorm, Scale and ReLU as one op."""
    rng = np.random.default_rng(1)
    x, scale, shift = Blob(backend, shape), Blob(backend, shape[1:2]), Blob(backend, shape[1:2])
    y = x if in_place else Blob(backend, shape)
    far = 100 * np.arange(1, shape[1] + 1).reshape(-1, *[1] * (len(shape) - 2))
    for blob, values in (
        (x, far + rng.standard_normal(shape)),
        (scale, rng.standard_normal(shape[1:2])),
        (shift, rng.standard_normal(shape[1:2])),
    ):
        blob.data[...] = backend.xp.asarray(np.float32(values))
    plan = backend.batch_norm(x, y, scale, shift, 1e-5, False, True)
    ones = [backend.xp.asarray(np.ones(n, np.float32)) for n in (shape[1], shape[1], 1)]
    running = RunningMoments(ones[0], ones[1], ones[2], fade=0.5, unbiased=1.25)
    plan.forward(running)
    found = {"y": np.array(backend.host_view(y).data)}
    y.diff[...] = backend.xp.asarray(np.float32(rng.standard_normal(shape)))
    shift.diff[...] = 3
    plan.backward(True, True, True)
    names = {"x": x, "scale": scale, "shift": shift}
    found |= {name: np.array(backend.host_view(blob).diff) for name, blob in names.items()}
    found |= {f"sums {i}": np.asarray(_host(values)) for i, values in enumerate(ones)}
    found |= {"mean": np.array(plan.mean.host), "variance": np.array(plan.variance.host)}
    return found


def _host(values: Any) -> Any:
    return values.get() if hasattr(values, "get") else values


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_normalisation(
    shape: tuple[int, ...], in_place: bool, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean is far from 0, where sums of squares would cancel; bits never depend on order."""
    want = normalised(NumPyBackend(dtype=np.float64), shape, in_place)
    first = normalised(cuda, shape, in_place)
    for name, values in want.items():
        np.testing.assert_allclose(first[name], values, rtol=1e-3, atol=3e-4, err_msg=name)
    monkeypatch.setattr(Module, "order", 5)
    for name, values in normalised(cuda, shape, in_place).items():
        np.testing.assert_array_equal(values, first[name], err_msg=name)


def test_two_passes_each_way(cuda: Any) -> None:
    checker.work.clear()
    normalised(cuda, (2, 4, 3, 3), True)
    kernels = [what for what in checker.work[cuda.compute.ptr] if what.startswith("kernel")]
    assert kernels == [
        f"kernel {name}"
        for name in ("channel_moments", "normalize", "normalize_sums", "normalize_backward")
    ]


NET = """
force_backward: true
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 2 dim: 3 dim: 41 dim: 40 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: "gaussian" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param { negative_slope: SLOPE } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "relu2" type: "ReLU" bottom: "ip" top: "ip" relu_param { negative_slope: SLOPE } }
layer { name: "sum" type: "Eltwise" bottom: "ip" bottom: "ip" top: "sum"
  eltwise_param { coeff: 2 coeff: -1 } }
layer { name: "relu3" type: "ReLU" bottom: "sum" top: "sum" relu_param { negative_slope: SLOPE } }
"""


def run(backend: Backend, slope: float, cuts: list[str]) -> dict[str, Any]:
    """Backward in pieces that end with these layers; what they leave is read in between."""
    param = schema.parse_text(NET.replace("SLOPE", str(slope)), schema.NetParameter())
    net = Net(param, schema.TRAIN, backend=backend, context=Context(3))
    rng = np.random.default_rng(0)
    net.blobs["data"].data[...] = rng.standard_normal((2, 3, 41, 40))
    net.forward()
    net.blobs["sum"].diff[...] = rng.standard_normal((2, 5))
    found: dict[str, Any] = {}
    names = [layer.name for layer in net.layers]
    start = names[-1]
    for i, end in enumerate([*cuts, names[0]]):
        net.backward(start=start, end=end)
        found |= {f"{name} {i}": np.array(b.diff) for name, b in net.blobs.items()}
        found |= {f"{n}[{j}] {i}": np.array(b.diff) for n, bs in net.params.items()
                  for j, b in enumerate(bs)}  # fmt: skip
        start = names[max(names.index(end) - 1, 0)]
    return found


@pytest.mark.parametrize("slope", [0.0, 0.25, -0.5])
@pytest.mark.parametrize("cuts", [[], ["relu3"], ["relu2", "relu"]], ids=str)
def test_gradients_before_and_after_their_relu(cuda: Any, slope: float, cuts: list[str]) -> None:
    want = run(NumPyBackend(), slope, cuts)
    for name, values in run(cuda, slope, cuts).items():
        np.testing.assert_allclose(values, want[name], rtol=2e-4, atol=2e-4, err_msg=name)


def test_the_gradient_of_a_relu_comes_with_the_sums_for_biases(cuda: Any) -> None:
    param = schema.parse_text(NET.replace("SLOPE", "0"), schema.NetParameter())
    net = Net(param, schema.TRAIN, backend=cuda, context=Context(3))
    net.forward()
    checker.work.clear()
    net.backward()
    kernels = checker.work[cuda.compute.ptr]
    assert "kernel relu_backward" not in kernels
    assert (
        kernels.count("kernel channel_sums") == 2 and kernels.count("kernel weighted_spread") == 1
    )


WRONG = {7: "label 7 of sample 1 in blob", -1: "label -1 of sample 1", 0.5: "the label 0.5",
         np.nan: "not numbers"}  # fmt: skip


@pytest.mark.parametrize(("label", "message"), WRONG.items())
def test_wrong_labels_are_found_when_numbers_are_read(
    cuda: Any, label: float, message: str
) -> None:
    """And only once: a script may put them right and go on."""
    text = """
    layer { name: "x" type: "Input" top: "x" top: "label"
      input_param { shape { dim: 3 dim: 4 } shape { dim: 3 } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "label" top: "loss" }
    """
    param = schema.parse_text(text, schema.NetParameter())
    net = Net(param, schema.TRAIN, backend=cuda, context=Context(3))
    net.blobs["label"].data[...] = [1, label, 3]
    with pytest.raises(Exception, match=message):
        net.forward()
        net.blobs["loss"].data  # noqa: B018
    net.blobs["label"].data[...] = [1, 2, 3]
    net.forward()
    np.testing.assert_allclose(net.blobs["loss"].data, np.log(4), rtol=1e-6)
