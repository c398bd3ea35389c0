"""Processes beside this one that compile kernels ahead of their first call, into the cache.

They are given the names of kernels and take those that nobody has compiled or is compiling. This
process does the same when it needs the first of them, until all are there: threads that compute
side by side wait for the slowest, so no worker should take a core from one. A worker that dies
leaves its kernel to those who need it; one without work ends soon, and all end with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import queue
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from .kernel_cache import PACKAGE, held, kernel_folder

MOST = 3  # workers of a host
IDLE = 10.0  # seconds without work after which a worker ends

# The packages of kernels are entered without running them: they import much else.
_START = """
import sys, types
sys.path[:] = {path!r}
for name, folder in {packages!r}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from {module} import work
work({slot!r})
"""
_FOLDER = Path(__file__).parents[1]


class Ahead(Protocol):
    """A kernel as workers know it."""

    place: str  # module:name

    @property
    def is_cached(self) -> bool: ...

    def make_ahead(self) -> bool: ...


class Workers:
    """Starts them when there is work, as many as there are cores to spare."""

    def __init__(self) -> None:
        self._waiting: list[Ahead] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()

    def ask(self, *kernels: Ahead) -> None:
        """Have kernels compiled into the cache; without any, be ready for that."""
        with self._lock:
            self._waiting.extend(kernels)
            self._processes[:] = [p for p in self._processes if p.poll() is None]
            if not self._processes:
                self._start()
            for process in self._processes:
                with contextlib.suppress(OSError, ValueError):  # it has just ended
                    assert process.stdin is not None
                    process.stdin.write("".join(f"{kernel.place}\n" for kernel in kernels))
                    process.stdin.flush()

    def be_ready(self) -> None:
        """Kernels will be needed: where none has ever been compiled, let workers load the compiler
        while this process does other things."""
        if find_spec("numba") is not None and not any(kernel_folder().glob("*.nbi")):
            self.ask()

    def unfinished(self) -> list[Ahead]:
        """What was asked for and is not in the cache yet."""
        with self._lock:
            self._waiting = [kernel for kernel in self._waiting if not kernel.is_cached]
            return list(self._waiting)

    def _start(self) -> None:
        folder = kernel_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:  # without a cache nothing can be made ahead
            return
        for number in range(min(MOST, spare_cores())):
            slot = folder / f"worker-{number}.lock"
            with held(slot) as free:  # else a worker of another process has it
                pass
            if free:
                with contextlib.suppress(OSError):
                    self._processes.append(_worker(slot))

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def spare_cores() -> int:
    """Cores that this process may use, but one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) - 1
    return (os.cpu_count() or 1) - 1


def _worker(slot: Path) -> subprocess.Popen[str]:
    folders = {PACKAGE: _FOLDER, f"{PACKAGE}.backend": _FOLDER / "backend"}
    packages = {name: str(folder) for name, folder in folders.items()}
    packages[f"{PACKAGE}.data"] = str(_FOLDER / "data")
    code = _START.format(path=sys.path, packages=packages, module=__name__, slot=str(slot))
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


workers = Workers()
atexit.register(workers.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=workers._processes.clear)


def work(slot: str) -> None:
    """A worker's life: compile the kernels whose names come in, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    names: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            names.put(line.strip())
        os._exit(0)  # the process that started this one has ended

    threading.Thread(target=listen, daemon=True).start()
    with held(Path(slot)) as ours, contextlib.suppress(queue.Empty):
        if ours:
            importlib.import_module(f"{PACKAGE}.backend.compiled").load_compiler()
        while ours:
            module, _, name = names.get(timeout=IDLE).partition(":")
            getattr(importlib.import_module(module), name).make_ahead()
    os._exit(0)
