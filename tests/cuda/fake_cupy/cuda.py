"""Devices, streams and events that do nothing but count: host memory has no queues."""

from __future__ import annotations

import threading
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

waits: list[str] = []
cublas: Any = None


_thread = threading.local()


class Graph:
    """Captured work, in order."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], Any]] = []
        self.launches = 0

    def launch(self, stream: Any = None) -> None:
        self.launches += 1
        for step in self.steps:
            step()


def capturing() -> Graph | None:
    stream = getattr(_thread, "stream", None)
    return stream.graph if stream is not None else None


def forbid(what: str) -> None:
    """A captured stream cannot be waited for, and host memory is not there when it is replayed."""
    if capturing() is not None:
        raise RuntimeError(f"cudaErrorStreamCaptureUnsupported: {what}")


def enqueue(step: Callable[[], Any]) -> None:
    """Work on memory that exists: done now, or captured and not done."""
    graph = capturing()
    if graph is None:
        step()
    else:
        graph.steps.append(step)


def computed(function: Callable[[], Any], *inputs: Any) -> Any:
    """Work that makes a new array, unless it is a view of an input. When captured, the array is
    there at once (its shape must be known), but its values come with the replays."""
    made = function()
    graph = capturing()
    if graph is None or made is NotImplemented:
        return made
    if isinstance(made, np.generic):
        made = np.array(made)
    shared = [a for a in inputs if isinstance(a, np.ndarray) and np.may_share_memory(a, made)]
    if isinstance(made, np.ndarray) and not shared:
        graph.steps.append(lambda: made.__setitem__(..., function()))
    return made


def wait(what: str) -> None:
    """Something on a real device would have waited here."""
    forbid(what)
    frames = traceback.extract_stack()[:-2]
    place = next((f for f in reversed(frames) if "pycaffe_fire" in f.filename), None)
    waits.append(f"{what} in {place.filename}:{place.lineno}" if place else what)


class Event:
    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.recorded = False

    def record(self, stream: Any = None) -> None:
        self.recorded = True

    def synchronize(self) -> None:
        if not self.recorded:
            raise RuntimeError("an event that nobody recorded")
        wait("Event.synchronize")


def check_queue(what: str) -> None:
    """Work on the default stream would not be ordered with a backend's own streams."""
    if getattr(_thread, "stream", None) is None:
        raise RuntimeError(f"{what} on the default stream of this thread")


class Stream:
    """The current one is each thread's own, as in CuPy."""

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False,
        priority: int | None = None,
    ) -> None:  # fmt: skip
        self.waited: list[Event] = []
        self.ptr = id(self)
        self.graph: Graph | None = None

    def begin_capture(self, mode: int | None = None) -> None:
        self.graph = Graph()

    def end_capture(self) -> Graph:
        graph, self.graph = self.graph, None
        if graph is None:
            raise RuntimeError("cudaErrorIllegalState: nothing is being captured")
        return graph

    def use(self) -> Stream:
        _thread.stream = self
        return self

    def synchronize(self) -> None:
        wait("Stream.synchronize")

    def wait_event(self, event: Event) -> None:
        if not event.recorded:
            raise RuntimeError("waiting for an event that nobody recorded")
        self.waited.append(event)

    def __enter__(self) -> Stream:
        self._outer, _thread.stream = getattr(_thread, "stream", None), self
        return self

    def __exit__(self, *_: object) -> None:
        _thread.stream = self._outer


class MemoryPool:
    def malloc(self, size: int) -> Any:
        raise NotImplementedError("memory is the host's")


@contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    yield


class Device:
    count = 2

    def __init__(self, device: int = 0) -> None:
        self.id = device
        self.compute_capability = "75"
        self.mem_info = (2**33, 2**34)
        self.pci_bus_id = f"0000:{device:02x}:00.0"

    def use(self) -> Device:
        return self

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        wait("Device.synchronize")


runtime = types.SimpleNamespace(
    getDeviceCount=lambda: Device.count,
    getDeviceProperties=lambda device: {
        "name": b"Emulated device", "totalGlobalMem": 2**34, "multiProcessorCount": 1, "major": 7,
        "minor": 5,
    },
    driverGetVersion=lambda: 13000,
    runtimeGetVersion=lambda: 13000, CUDA_R_32F=0, CUDA_R_16F=2, CUDA_R_16BF=14,
)  # fmt: skip
device = types.SimpleNamespace(get_cublas_handle=lambda: 1)
