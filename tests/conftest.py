"""The backends that tests run on.

CUDA needs no device: kernels of a stand-in for cupy are executed by an emulator on the CPU.
"""

from __future__ import annotations

import importlib
import os
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

import pycaffe_fire as caffe
from pycaffe_fire.backend.cpu import library
from pycaffe_fire.errors import BackendError
from pycaffe_fire.pycaffe import settings
from tests import random_numbers
from tests.backend import remote
from tests.backend.op_cases import blas, onednn
from tests.cuda.cuda_emulator import Compiler, Module, compiler_missing

# Many tests start processes: they need not all compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if os.environ.get("CUDAEMU_SANITIZE"):  # set by test_sanitizer.py for the run inside its run
    Module.compiler = Compiler(("-O0", "-g1", "-w", "-fsanitize=address"))


REAL = os.environ.get("REAL_CUPY") == "1"
STAND_IN_ONLY = (
    "test_races.py", "test_budgets.py", "test_cudnn", "test_device.py", "test_graph.py",
    "test_selftest.py::test_report", "test_selftest.py::test_two_ranks", "waits_for_copies_only",
    "a_shown_loss_is_read_once", "test_health_on_device.py", "test_memory.py", "thread_order",
    "test_ends_where_the_cpu_ends", "two_passes_each_way", "comes_with_the_sums",
    "transformed_on_the_device", "trains_logs_and_saves", "an_overflow_is_skipped",
    "test_the_stand_in_takes", "test_local_rates_wait_for_nothing", "test_sanitizer.py",
    "test_the_same_without_copies",
    "test_selftest.py::test_speeds",  # the build knows no clock rates
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_seed(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test, and nets that it makes without a seed, draw the same numbers in every run of it."""
    seed = zlib.crc32(request.node.nodeid.encode()) >> 1
    caffe.set_random_seed(seed)
    random_numbers.start_again(seed)
    yield
    settings._settings.seed = None


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, importable as `cupy`; threads run forward. With REAL_CUPY=1 the real CuPy on
    an emulated driver (tools/real_cupy)."""
    if REAL:
        yield from _real_cupy(monkeypatch)
        return
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


def _real_cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from pycaffe_fire.backend.cuda import cudnn

    monkeypatch.setattr(cudnn, "load", _no_cudnn)
    yield importlib.import_module("cupy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that look into the stand-in cannot run on the real CuPy."""
    for item in items if REAL else []:
        name = item.nodeid.partition("[")[0].rpartition("/")[2]
        if any(part in name for part in STAND_IN_ONLY):
            item.add_marker(pytest.mark.skip(reason="it looks into the stand-in for CuPy"))


def _no_cudnn() -> Any:
    """The real one cannot run on the stand-in; tests/cuda/test_cudnn.py has one that can."""
    raise BackendError("cuDNN is left out")


@pytest.fixture
def cuda(cupy: Any) -> Any:
    from pycaffe_fire.backend.cuda import CudaBackend

    return CudaBackend(0)


@pytest.fixture(params=["onednn", "blas", "cuda"])
def fast(request: pytest.FixtureRequest) -> Any:
    """Every backend that has ops of its own in place of NumPy's, one after the other."""
    if request.param == "cuda":
        return request.getfixturevalue("cuda")
    return blas(threads=2) if request.param == "blas" else onednn(threads=2)


SUPPORTED = library.supported() if library.available() else ()
EMULATED = "neon, emulated"


@pytest.fixture(params=SUPPORTED)
def native_isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every instruction set that this machine executes; the test's kernels run on it."""
    with library.using(request.param):
        yield request.param


@pytest.fixture(params=[*SUPPORTED, EMULATED])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """The same, and that of another processor, where an emulator for it is installed."""
    if request.param == EMULATED and (lack := remote.missing()):
        pytest.skip(f"kernels for AArch64 are not run: there is no {lack}")
    with library.using(remote.emulated() if request.param == EMULATED else request.param):
        yield request.param
