"""The backends that tests run on.

CUDA needs no device: kernels of a stand-in for cupy are executed by an emulator on the CPU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pycaffe_fire.errors import BackendError
from tests.backend.op_cases import onednn
from tests.cuda.cuda_emulator import Compiler, Module, compiler_missing

if os.environ.get("CUDAEMU_SANITIZE"):  # set by test_sanitizer.py for the run inside its run
    Module.compiler = Compiler(("-O1", "-g", "-w", "-fsanitize=address"))


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, importable as `cupy`; threads run forward."""
    reason = compiler_missing()
    if reason:
        pytest.skip(reason)
    from pycaffe_fire.backend.cuda import blas, cudnn
    from tests.cuda import fake_cupy
    from tests.cuda.fake_cupy.races import checker

    modules: dict[str, Any] = {}
    fake_cupy.install(modules)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(Module, "order", 0)
    monkeypatch.setattr(blas, "load", fake_cupy.blas.Library)
    monkeypatch.setattr(cudnn, "load", _no_cudnn)
    fake_cupy.cuda.waits.clear()
    checker.clear()
    yield fake_cupy
    fake_cupy.cuda.reset_thread()
    assert not checker.found, checker.found[0]


def _no_cudnn() -> Any:
    """The real one cannot run on the stand-in; tests/cuda/test_cudnn.py has one that can."""
    raise BackendError("cuDNN is left out")


@pytest.fixture
def cuda(cupy: Any) -> Any:
    from pycaffe_fire.backend.cuda import CudaBackend

    return CudaBackend(0)


@pytest.fixture(params=["onednn", "cuda"])
def fast(request: pytest.FixtureRequest) -> Any:
    """Every backend that has ops of its own in place of NumPy's, one after the other."""
    if request.param == "cuda":
        return request.getfixturevalue("cuda")
    return onednn(threads=2)
