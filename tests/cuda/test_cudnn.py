"""The cuDNN engine against the NumPy backend, on a stand-in for its frontend."""

from __future__ import annotations

import importlib
import inspect
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import Net, schema
from pycaffe_fire.backend import choice
from pycaffe_fire.backend.cuda import CudaBackend, cudnn
from pycaffe_fire.backend.cuda.cudnn_convolution import CudnnConvolution
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import BackendError
from pycaffe_fire.net import engines
from tests.backend import test_backends_agree as agree
from tests.backend.op_cases import Conv, blob
from tests.cuda import fake_cudnn
from tests.cuda.cuda_nets import inception, train
from tests.cuda.fake_cudnn import FakeCudnn
from tests.cuda.test_storage import ROUNDING, distance, stored_as


@pytest.fixture
def library(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    fake = FakeCudnn()
    monkeypatch.setattr(cudnn, "load", lambda: fake)
    return fake


CONVS = vars(agree)["CONVS"]  # the table of that module, with its own rows


@pytest.mark.parametrize("case", CONVS.values(), ids=CONVS.keys())
def test_convolutions(case: Conv, library: FakeCudnn) -> None:
    agree.test_convolution(CudaBackend(0), case, True, blob)
    for name in ("fprop", "dgrad", "wgrad"):
        assert sum(n for call, n in library.calls.items() if call.startswith(name)) >= 2


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_blobs_in_16_bits(library: FakeCudnn, kind: str, tmp_path: Path) -> None:
    want = train(inception(tmp_path), NumPyBackend(), 3)
    got = train(stored_as(inception(tmp_path), kind), CudaBackend(0), 3)
    assert library.calls["wgrad"] == 3 * 7 and library.calls["fpropbiasrelu"] == 3 * 7
    for name, values in want.items():
        assert 0 < distance(got[name], values) <= 16 * ROUNDING[kind], name


@pytest.mark.parametrize("refused", ["fpropbiasrelu", "dgrad"])
def test_what_cudnn_refuses_is_ours(library: FakeCudnn, refused: str, tmp_path: Path) -> None:
    """Bias and ReLU as a pass of their own, or the whole convolution."""
    library.refuses.add(refused)
    want = train(inception(tmp_path), NumPyBackend(), 2)
    got = train(inception(tmp_path), CudaBackend(0), 2)
    assert library.calls["fprop"] == (14 if refused == "fpropbiasrelu" else 0)
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-3, atol=1e-5, err_msg=name)


def test_tensor_cores_only_where_tf32_is_wanted(library: FakeCudnn, tmp_path: Path) -> None:
    net = inception(tmp_path)
    exact, plain, rounded = (
        train(net, backend, 2)
        for backend in (NumPyBackend(), CudaBackend(0), CudaBackend(0, tf32=True))
    )
    for name, values in exact.items():
        assert distance(plain[name], values) < 1e-5, name
        assert distance(rounded[name], values) < 3e-2, name
    assert max(distance(rounded[name], exact[name]) for name in exact) > 1e-5


def test_a_library_that_does_not_start(
    library: FakeCudnn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Any:
        raise RuntimeError("CUDNN_STATUS_NOT_INITIALIZED")

    monkeypatch.setattr(library, "create_handle", fail)
    with pytest.raises(BackendError, match=r"does not start \(CUDNN_STATUS_NOT_INIT.*--no-cudnn"):
        CudaBackend(0, cudnn=True)
    caplog.set_level(logging.INFO, "pycaffe_fire")
    assert "cuDNN" not in CudaBackend(0).describe()
    assert "Convolutions run on our kernels: cuDNN does not start" in caplog.text


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
    return [isinstance(plan, CudnnConvolution) for plan in plans]


def test_a_layer_chooses_its_engine(library: FakeCudnn, caplog: pytest.LogCaptureFixture) -> None:
    engines._say.cache_clear()
    caplog.set_level(logging.INFO, "pycaffe_fire")
    without, everywhere = CudaBackend(0, cudnn=False), CudaBackend(0)
    assert by_cudnn("CUDNN", without) == by_cudnn("CUDNN", without) == [True, False]
    assert by_cudnn("DEFAULT", without) == [False, False]
    assert by_cudnn("DEFAULT", everywhere) == [True, True]
    assert by_cudnn("CAFFE", everywhere) == [False, True]
    assert "cuDNN 9.0" in everywhere.describe() and "cuDNN" not in without.describe()
    assert caplog.text.count("these run on our kernels: Pooling") == 1


def test_without_the_library(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.undo()  # the fixture's own answer
    monkeypatch.setitem(__import__("sys").modules, "cudnn", None)
    with pytest.raises(BackendError, match=r"cuDNN cannot be loaded \(.*; pip install nvidia-cud"):
        cudnn.load()


def test_what_is_not_there_is_said_once(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Any:
        raise BackendError("cuDNN cannot be loaded (no such file)")

    monkeypatch.setattr(cudnn, "load", fail)
    caplog.set_level(logging.INFO, "pycaffe_fire")
    backend = CudaBackend(0)
    assert by_cudnn("CUDNN", backend) == by_cudnn("CUDNN", backend) == [False, False]
    assert caplog.text.count("our kernels: cuDNN cannot be loaded") == 1
    choice._gpu_backend.cache_clear()
    with pytest.raises(BackendError, match="cuDNN cannot be loaded"):
        choice.choose_backend("0", options=choice.GpuOptions(cudnn=True))
    with pytest.raises(BackendError, match="--cudnn needs a GPU"):
        choice.choose_backend(None, options=choice.GpuOptions(cudnn=True))


def test_the_stand_in_has_nothing_that_the_frontend_lacks() -> None:
    try:
        real = importlib.import_module("cudnn")
    except ImportError:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    for name in ("create_handle", "set_stream", "pygraph", "backend_version_string"):
        assert hasattr(real, name), name
    for kind in ("data_type", "heur_mode", "numerical_note"):
        members = getattr(fake_cudnn, kind).__members__
        assert all(hasattr(getattr(real, kind), name) for name in members), kind
    for name, function in inspect.getmembers(fake_cudnn.Graph, inspect.isfunction):
        if not name.startswith("_"):
            theirs = inspect.signature(getattr(real.pygraph, name)).parameters
            mine = set(inspect.signature(function).parameters) - {"how"}
            open_ended = any(p.kind == p.VAR_KEYWORD for p in theirs.values())
            assert open_ended or mine <= set(theirs), name
