"""The cuDNN engine against the NumPy backend, on a stand-in for the library."""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from typing import Any

import pytest

import pycaffe_fire as caffe
from pycaffe_fire import Net, schema
from pycaffe_fire.backend import choice
from pycaffe_fire.backend.cuda import CudaBackend, cudnn
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import BackendError
from pycaffe_fire.net import engines
from tests.backend.op_cases import CONVS, Conv, blob
from tests.backend.test_backends_agree import test_convolution as agree_on_convolution
from tests.cuda.cuda_nets import inception, train
from tests.cuda.fake_cudnn import FakeCudnn
from tests.cuda.test_storage import ROUNDING, distance, stored_as


@pytest.fixture
def library(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    fake = FakeCudnn()
    monkeypatch.setattr(cudnn, "load", lambda: fake)
    return fake


@pytest.mark.parametrize("case", CONVS.values(), ids=CONVS.keys())
def test_convolutions(case: Conv, library: FakeCudnn) -> None:
    agree_on_convolution(CudaBackend(0, cudnn=True), case, True, blob)
    assert library.calls["cudnnConvolutionForward"] >= 2
    assert library.calls["cudnnConvolutionBackwardData"] >= 2
    assert library.calls["cudnnConvolutionBackwardFilter"] >= 3
    gc.collect()
    made = [name for name in library.calls.elements() if name.endswith("Descriptor")]
    assert len([n for n in made if "Create" in n]) == len([n for n in made if "Destroy" in n])


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_blobs_in_16_bits(library: FakeCudnn, kind: str, tmp_path: Path) -> None:
    want = train(inception(tmp_path), NumPyBackend(), 3)
    got = train(stored_as(inception(tmp_path), kind), CudaBackend(0, cudnn=True), 3)
    assert library.calls["cudnnConvolutionBackwardFilter"] == 3 * 7
    for name, values in want.items():
        assert 0 < distance(got[name], values) <= 16 * ROUNDING[kind], name


def test_refusals_name_the_call(library: FakeCudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_SetStream", lambda *_: 9, raising=False)
    with pytest.raises(BackendError, match="cudnnSetStream failed with status 9"):
        CudaBackend(0, cudnn=True)


def by_cudnn(kind: str, backend: Any) -> list[bool]:
    """Which of a net's two convolutions, the first of which has `engine: <kind>`, use cuDNN."""
    text = (
        'layer { name: "in" type: "Input" top: "in" input_param { '
        "shape { dim: 1 dim: 2 dim: 5 dim: 5 } } }"
    )
    for i, engine in enumerate((f"engine: {kind}", "")):
        text += (
            f'layer {{ name: "conv{i}" type: "Convolution" bottom: "in" top: "conv{i}" '
            f"convolution_param {{ num_output: 2 kernel_size: 3 {engine} }} }}"
        )
    text += (
        'layer { name: "pool" type: "Pooling" bottom: "conv0" top: "pool" '
        "pooling_param { kernel_size: 2 engine: CUDNN } }"
    )
    net = Net(schema.parse_text(text, schema.NetParameter()), caffe.TEST, backend=backend)
    net.forward()
    layers: dict[str, Any] = {layer.name: layer for layer in net.layers}
    plans = [layers[f"conv{i}"]._plans[0][0] for i in range(2)]
    return [isinstance(plan, cudnn.CudnnConvolution) for plan in plans]


def test_a_layer_chooses_its_engine(library: FakeCudnn, caplog: pytest.LogCaptureFixture) -> None:
    engines._say.cache_clear()
    caplog.set_level(logging.INFO, "pycaffe_fire")
    backend = CudaBackend(0)
    assert by_cudnn("CUDNN", backend) == by_cudnn("CUDNN", backend) == [True, False]
    assert by_cudnn("DEFAULT", backend) == [False, False]
    assert by_cudnn("CAFFE", CudaBackend(0, cudnn=True)) == [False, True]
    assert caplog.text.count("engine: CUDNN: cuDNN is loaded (never tried on hardware)") == 1
    assert caplog.text.count("these run on our own kernels: Pooling") == 1


def test_a_layer_falls_back_to_our_kernels(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Any:
        raise BackendError("cannot load libcudnn.so.9; install it")

    monkeypatch.setattr(cudnn, "load", fail)
    backend = CudaBackend(0)
    assert by_cudnn("CUDNN", backend) == by_cudnn("CUDNN", backend) == [False, False]
    said = [r.getMessage() for r in caplog.records if "own kernels: engine" in r.getMessage()]
    assert len(said) == 1 and "engine: CUDNN: cannot load libcudnn.so.9" in said[0]


def test_no_library(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "NAMES", ("libcudnn_that_is_not_there.so",))
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    choice._gpu_backend.cache_clear()
    with pytest.raises(BackendError, match="--cudnn: cannot load"):
        choice.choose_backend("0", cudnn=True)
    with pytest.raises(BackendError, match="--cudnn needs a GPU"):
        choice.choose_backend(None, cudnn=True)
