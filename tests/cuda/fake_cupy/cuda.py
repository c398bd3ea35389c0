"""Devices, streams and events on host memory: work is done at once, in the order of queueing, and
the race checker looks whether that order was asked for.

CuPy's rules for the current stream are kept (cupy/cuda/stream.pyx): it belongs to a thread and a
device; `use()` sets it; `with stream` sets it too, but returns to the top of a stack that `use()`
never touches, so that a `with` after a `use()` ends on the NULL stream. A stream may only become
current while its device is.
"""

from __future__ import annotations

import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .races import NULL, Clock, checker, place_of

waits: list[str] = []
cublas: Any = None
DEVICES = 2


class _ThreadLocal(threading.local):
    """What CuPy and the CUDA runtime keep for every thread."""

    def __init__(self) -> None:
        self.device = 0
        self.current: list[Stream] = [Stream.null] * DEVICES
        self.stacks: list[list[Stream]] = [[Stream.null] for _ in range(DEVICES)]
        self.entered: list[int] = []  # devices of the streams entered by `with`


class Work:
    """Something that a stream does, and the memory it reads and writes."""

    def __init__(
        self, what: str, step: Callable[[], Any], reads: Sequence[Any], writes: Sequence[Any]
    ) -> None:
        self.what, self.step, self.reads, self.writes = what, step, reads, writes

    def run(self, stream: int) -> None:
        checker.launched(stream, self.what, self.reads, self.writes)
        self.step()


class Graph:
    """Captured work, in order."""

    def __init__(self) -> None:
        self.steps: list[Work] = []
        self.launches = 0

    def launch(self, stream: Any = None) -> None:
        self.launches += 1
        for work in self.steps:
            work.run((stream or get_current_stream()).ptr)


def capturing() -> Graph | None:
    return get_current_stream().graph


def forbid(what: str) -> None:
    """A captured stream cannot be waited for, and host memory is not there when it is replayed."""
    if capturing() is not None:
        raise RuntimeError(f"cudaErrorStreamCaptureUnsupported: {what}")


def enqueue(
    what: str, step: Callable[[], Any], reads: Sequence[Any] = (), writes: Sequence[Any] = ()
) -> None:
    """Work on memory that exists: done now, or captured and not done."""
    graph, work = capturing(), Work(what, step, reads, writes)
    if graph is None:
        work.run(get_current_stream().ptr)
    else:
        graph.steps.append(work)


def computed(what: str, function: Callable[[], Any], *inputs: Any) -> Any:
    """Work that makes a new array, unless it is a view of an input. When captured, the array is
    there at once (its shape must be known), but its values come with the replays."""
    made = function()
    if made is NotImplemented:
        return made
    if isinstance(made, np.generic):
        made = np.array(made)
    given = [a for a in inputs if isinstance(a, np.ndarray)]
    if not isinstance(made, np.ndarray) or any(np.may_share_memory(a, made) for a in given):
        return made
    allocate(made)
    graph = capturing()
    if graph is None:
        checker.launched(get_current_stream().ptr, what, given, [made])
    else:
        graph.steps.append(Work(what, lambda: made.__setitem__(..., function()), given, [made]))
    return made


def root_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array that owns its memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def allocate(array: np.ndarray[Any, Any]) -> None:
    """Memory from the pool's arena of the current stream, unless it is known already."""
    checker.allocated(root_of(array), get_current_stream().ptr)


def wait(what: str) -> None:
    """Something on a real device would have waited here."""
    forbid(what)
    frames = traceback.extract_stack()[:-2]
    place = next((f for f in reversed(frames) if "pycaffe_fire" in f.filename), None)
    waits.append(f"{what} in {place.filename}:{place.lineno}" if place else what)


def read_back(what: str, *arrays: np.ndarray[Any, Any]) -> None:
    """The host looks at values: a copy on the current stream, which it then waits for."""
    wait(what)
    stream = get_current_stream().ptr
    checker.launched(stream, what, arrays, ())
    checker.synchronize(stream)


class Event:
    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self._clock: Clock | None = None

    @property
    def clock(self) -> Clock:
        """CUDA takes an event that nobody recorded for one that is done; we do not."""
        if self._clock is None:
            raise RuntimeError("waiting for an event that nobody recorded")
        return self._clock

    def record(self, stream: Any = None) -> None:
        self._clock = checker.record((stream or get_current_stream()).ptr)

    @property
    def done(self) -> bool:
        checker.host_waits(self.clock)
        return True

    def synchronize(self) -> None:
        checker.host_waits(self.clock)
        wait("Event.synchronize")


class Stream:
    null: Stream

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False,
        priority: int | None = None,
    ) -> None:  # fmt: skip
        if not (null or non_blocking):
            raise NotImplementedError("streams that wait for the NULL stream are not modelled")
        self.ptr = NULL if null else id(self)
        self.device_id = -1 if null else _thread.device
        self.graph: Graph | None = None
        if not null:
            checker.name(self.ptr, place_of("the stream made there"))

    def begin_capture(self, mode: int | None = None) -> None:
        if self.ptr == NULL:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self.graph = Graph()

    def end_capture(self) -> Graph:
        graph, self.graph = self.graph, None
        if graph is None:
            raise RuntimeError("cudaErrorIllegalState: nothing is being captured")
        return graph

    def _device(self) -> int:
        if self.device_id not in (-1, _thread.device):
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not match "
                f"with the current device ({_thread.device})"
            )
        return _thread.device

    def use(self) -> Stream:
        _thread.current[self._device()] = self
        return self

    def __enter__(self) -> Stream:
        device = self._device()
        _thread.stacks[device].append(self)
        _thread.entered.append(device)
        _thread.current[device] = self
        return self

    def __exit__(self, *_: object) -> None:
        device = _thread.entered.pop()
        _thread.stacks[device].pop()
        _thread.current[device] = _thread.stacks[device][-1]

    def synchronize(self) -> None:
        checker.synchronize(self.ptr)
        wait("Stream.synchronize")

    def wait_event(self, event: Event) -> None:
        checker.wait(self.ptr, event.clock)


Stream.null = Stream(null=True)
_thread = _ThreadLocal()


def reset_thread() -> None:
    """This thread as a new process would have it: device 0, the NULL stream."""
    _thread.__init__()  # type: ignore[misc]


def get_current_stream(device_id: int = -1) -> Stream:
    return _thread.current[_thread.device if device_id == -1 else device_id]


class MemoryPool:
    def malloc(self, size: int) -> Any:
        raise NotImplementedError("memory is the host's")


@contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    yield


class Device:
    """The current one is each thread's own."""

    count = DEVICES
    used: set[int] = set()  # every device that anybody made current: each has a context now

    def __init__(self, device: int | None = None) -> None:
        self.id = _thread.device if device is None else device
        self.compute_capability = "75"
        self.mem_info = (2**33, 2**34)
        self.pci_bus_id = f"0000:{self.id:02x}:00.0"
        self._outer: list[int] = []

    def use(self) -> Device:
        _thread.device = self.id
        Device.used.add(self.id)
        return self

    def __enter__(self) -> Device:
        self._outer.append(_thread.device)
        return self.use()

    def __exit__(self, *_: object) -> None:
        _thread.device = self._outer.pop()

    def synchronize(self) -> None:
        checker.synchronize()
        wait("Device.synchronize")


runtime = types.SimpleNamespace(
    getDeviceCount=lambda: Device.count,
    getDeviceProperties=lambda device: {
        "name": b"Emulated device", "totalGlobalMem": 2**34, "multiProcessorCount": 1, "major": 7,
        "minor": 5, "clockRate": 1590000, "memoryClockRate": 5001000, "memoryBusWidth": 256,
    },
    driverGetVersion=lambda: 13000,
    runtimeGetVersion=lambda: 13000, CUDA_R_32F=0, CUDA_R_16F=2, CUDA_R_16BF=14,
)  # fmt: skip
device = types.SimpleNamespace(get_cublas_handle=lambda: 1)
