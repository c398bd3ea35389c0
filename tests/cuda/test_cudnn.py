"""The cuDNN engine against the NumPy backend, on a stand-in for the library."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from cuda_nets import inception, train
from fake_cudnn import FakeCudnn
from op_cases import Conv
from test_backends_agree import CONVS, blob
from test_backends_agree import test_convolution as agree_on_convolution
from test_storage import ROUNDING, distance, stored_as

from pycaffe_fire import defaults
from pycaffe_fire.backend.cuda import CudaBackend, cudnn
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import BackendError


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


def test_no_library(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "NAMES", ("libcudnn_that_is_not_there.so",))
    monkeypatch.setattr(cudnn.ctypes.util, "find_library", lambda name: None)
    defaults._gpu_backend.cache_clear()
    with pytest.raises(BackendError, match="--cudnn: cannot load"):
        defaults.choose_backend("0", cudnn=True)
    with pytest.raises(BackendError, match="--cudnn needs a GPU"):
        defaults.choose_backend(None, cudnn=True)
