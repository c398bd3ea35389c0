"""Kernels compiled ahead by processes beside, one process at a time for each kernel."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend import compiled, cpu_backend, kernel_workers
from pycaffe_fire.backend.cpu.backend import CpuBackend
from pycaffe_fire.backend.kernel_cache import held
from pycaffe_fire.backend.kernels import joined, pooling, rows
from pycaffe_fire.solver import Solver, SolverOptions

needs_numba = pytest.mark.skipif(not compiled.available(), reason="there is no numba")
needs_worker = pytest.mark.skipif(
    not compiled.available() or not kernel_workers.spare_cores(),
    reason="there is no numba, or no core to spare",
)
MODULES = joined, pooling, rows
KERNELS = {
    kernel.place: kernel
    for module in MODULES
    for kernel in vars(module).values()
    if isinstance(kernel, compiled.Kernel)
}

CODE = """
import os, signal, sys, time
import numpy as np
from pycaffe_fire.backend import compiled
from pycaffe_fire.backend.kernel_workers import workers
from tests.backend.sample_kernel import add_into

compiled.expect(add_into)
{then}
total = np.ones(4, np.float32)
add_into(total, total)
print(total[0], sum(add_into.compiled.stats.cache_hits.values()), len(workers._processes))
"""
WAIT = """
while not add_into._index.exists() and workers._processes[0].poll() is None:
    time.sleep(0.05)
"""


def run(then: str, cache: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(then=then)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)}, check=True,
    )  # fmt: skip
    assert not done.stderr
    return done.stdout.strip()


def triple(numbers: Any) -> None:
    for i in range(numbers.size):
        numbers[i] *= 3


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compiled.numba().config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_workers, "spare_cores", lambda: 0)
    return tmp_path


@needs_worker
def test_a_worker_compiles_and_this_process_loads(tmp_path: Path) -> None:
    assert run(WAIT, tmp_path) == "2.0 1 1"
    assert run("", tmp_path) == "2.0 1 0"  # from the cache there is nothing to start


READY = """
import sys
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.kernel_workers import workers

cpu_backend(1)
print(len(workers._processes), "numba" in sys.modules)
"""


@needs_worker
@pytest.mark.parametrize("cached", (False, True), ids=("nothing cached", "something cached"))
def test_a_worker_loads_the_compiler_before_kernels_are_known(cached: bool, tmp_path: Path) -> None:
    if cached:
        (tmp_path / "kernel.nbi").touch()
    done = subprocess.run(
        [sys.executable, "-c", READY], capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.split() == ["0" if cached else "1", "False"]


@needs_worker
def test_a_worker_that_dies_leaves_its_kernel_to_others(tmp_path: Path) -> None:
    kill = "workers._processes[0].kill(); workers._processes[0].wait()"
    assert run(kill, tmp_path).startswith("2.0 0 ")


@needs_worker
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    then = "print(workers._processes[0].pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(then, tmp_path)
    worker = int(failed.value.stdout)
    deadline = time.monotonic() + 30
    while _runs(worker):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")  # a dead one whose parent has not looked is a zombie
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


@needs_numba
def test_a_kernel_that_another_process_compiles_is_waited_for(own_cache: Path) -> None:
    kernel = compiled.Kernel(triple, "f4[::1]")
    assert kernel._index is not None
    numbers = np.ones(3, np.float32)
    with held(kernel._index.with_suffix(".lock")) as ours:
        assert ours
        call = threading.Thread(target=kernel, args=[numbers])
        call.start()
        call.join(0.2)
        assert call.is_alive() and compiled.compiling()
        assert numbers[0] == 1
    call.join(60)
    assert numbers[0] == 3 and not compiled.compiling()
    assert not list(own_cache.glob("*.lock"))


@needs_numba
def test_who_waits_makes_what_is_expected(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "workers", kernel_workers.Workers())
    first, second = (compiled.Kernel(triple, types) for types in ("f4[::1]", "f8[::1]"))
    second.options["fastmath"] = True  # another kernel
    second.expect()
    assert first._index is not None and second._index is not None
    with held(first._index.with_suffix(".lock")):
        call = threading.Thread(target=first, args=[np.ones(3, np.float32)])
        call.start()
        deadline = time.monotonic() + 60
        while not second._index.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    call.join(60)
    assert first._index.exists()


@needs_numba
def test_kernels_of_gradients_are_expected_once_a_net_trains(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of plans that were made before, and of plans that its first pass makes."""
    backend = CpuBackend()
    asked = kernel_workers.Workers()
    monkeypatch.setattr(compiled, "workers", asked)
    forward, early, late = (compiled.Kernel(triple, "f4[::1]") for _ in range(3))
    for kernel, flag in ((early, "contract"), (late, "reassoc")):
        kernel.options["fastmath"] = {flag}  # other kernels
    backend.expect([forward], [early])
    assert asked.unfinished() == [forward]
    backend.expect_backward()
    backend.expect([], [late])
    assert asked.unfinished() == [forward, early, late]


@needs_numba
def test_an_interrupt_ends_the_wait_for_another_process(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = compiled.Kernel(triple, "f4[::1]")
    assert kernel._index is not None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            held(kernel._index.with_suffix(".lock")),
            compiled.on_compiling(lambda done, seconds: os.kill(os.getpid(), signal.SIGINT)),
            pytest.raises(KeyboardInterrupt),
        ):
            kernel(np.ones(3, np.float32))
    finally:
        signal.signal(signal.SIGINT, before)
    for thread in threading.enumerate():
        if thread.name == "compiler":
            thread.join(30)
            assert not thread.is_alive()


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "kernel.lock"
    with held(path) as first, held(path) as second:
        assert (first, second) == (True, False)
    assert not path.exists()
    with held(path) as again:
        assert again
    with held(tmp_path / "no folder" / "kernel.lock") as anywhere:
        assert anywhere  # a file system without locks keeps nobody from compiling


@needs_numba
@pytest.mark.parametrize("place", KERNELS)
def test_every_kernel_says_its_types(place: str) -> None:
    kernel = KERNELS[place]
    types, _ = compiled.numba().core.sigutils.normalize_signature(f"({kernel.types},)")
    assert len(types) == len(inspect.signature(kernel.function).parameters)


NET = """
layer { name: "in" type: "DummyData" top: "x" top: "label"
  dummy_data_param { shape { dim: 2 dim: 16 dim: 32 dim: 32 } shape { dim: 2 }
    data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
  convolution_param { num_output: 64 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "conv2" type: "Convolution" bottom: "conv" top: "conv2"
  convolution_param { num_output: 64 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "norm" type: "LRN" bottom: "conv2" top: "norm" }
layer { name: "pool" type: "Pooling" bottom: "norm" top: "pool"
  pooling_param { kernel_size: 3 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 8 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
MET = (
    pooling.max_backward, pooling.maxima,
)  # fmt: skip


@needs_numba
def test_kernels_meet_the_types_that_they_say() -> None:
    """Else what is compiled ahead is of no use."""
    backend = cpu_backend(1)
    if backend.name != "onednn":
        pytest.skip("other kernels serve here")
    net = schema.parse_text(NET, schema.NetParameter())
    param = schema.SolverParameter(type="SGD", lr_policy="fixed", base_lr=0.01, train_net_param=net)
    Solver(param, SolverOptions(backend, 1)).step(1)
    for kernel in cast(tuple[compiled.Kernel, ...], MET):
        types, _ = compiled.numba().core.sigutils.normalize_signature(f"({kernel.types},)")
        assert types in kernel.compiled.overloads, kernel.place
