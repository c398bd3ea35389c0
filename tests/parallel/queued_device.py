"""A device whose work is done as late as possible: what reads without waiting reads rubbish.

Work is queued on streams and done only when somebody waits for it, or looks at an event (which does
one step, so that polling ends). Memory is the host's, and starts out as NaN.
"""

from __future__ import annotations

import threading
import types
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pycaffe_fire.backend.cuda.staging import Staging

_lock = threading.RLock()
_thread = threading.local()
streams: dict[int, Stream] = {}


class Stream:
    def __init__(self, non_blocking: bool = False) -> None:
        self._queue: deque[Callable[[], object]] = deque()
        self.queued = self.done = 0
        self.ptr = id(self)
        streams[self.ptr] = self

    def enqueue(self, step: Callable[[], object]) -> None:
        with _lock:
            self._queue.append(step)
            self.queued += 1

    def run(self, until: int) -> None:
        with _lock:
            while self.done < until:
                self._queue.popleft()()
                self.done += 1

    def synchronize(self) -> None:
        self.run(self.queued)

    def wait_event(self, event: Event) -> None:
        stream, mark = event.place
        self.enqueue(lambda: stream.run(mark))

    def use(self) -> None:
        _thread.stream = self

    def __enter__(self) -> None:
        _stack().append(self)
        self.use()

    def __exit__(self, *_: object) -> None:
        """Back to the `with` outside, whatever `use()` chose (cupy/cuda/stream.pyx)."""
        _stack().pop()
        _thread.stream = _stack()[-1]


def _stack() -> list[Stream | None]:
    """The streams entered by `with` in this thread, on top of the NULL stream."""
    if not hasattr(_thread, "stack"):
        _thread.stack = [None]
    return _thread.stack


def get_current_stream() -> Any:
    """The stream of this thread, or something that stands for the NULL stream."""
    return getattr(_thread, "stream", None) or NULL


class Event:
    def __init__(self, disable_timing: bool = False) -> None:
        self.place: Any = None

    def record(self, stream: Stream) -> None:
        self.place = stream, stream.queued

    @property
    def done(self) -> bool:
        stream, mark = self.place
        if stream.done < mark:
            stream.run(stream.done + 1)
            return False
        return True


class _Null:
    """The NULL stream may be current, but no work is ever meant for it."""

    def use(self) -> None:
        _thread.stream = None


NULL = _Null()


def enqueue(step: Callable[[], object]) -> None:
    stream = getattr(_thread, "stream", None)
    if stream is None:
        raise RuntimeError("work on the default stream of this thread")
    stream.enqueue(step)


class Array:
    """Values in device memory; every operation is queued, views are made at once."""

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self.host = host
        self.size, self.dtype = host.size, host.dtype
        self.data = types.SimpleNamespace(ptr=host.ctypes.data)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = self.host.__array_interface__
        return {k: interface[k] for k in ("shape", "typestr", "data")} | {"version": 3}

    def __getitem__(self, index: Any) -> Array:
        return Array(self.host[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        place, given = self.host[index], _host(value)
        enqueue(lambda: np.copyto(place, given, casting="unsafe"))

    def view(self, dtype: Any) -> Array:
        return Array(self.host.view(dtype))

    def astype(self, dtype: Any) -> Array:
        return computed(lambda a: a.astype(dtype), self)

    def get(self, stream: Stream, out: Any, blocking: bool) -> None:
        stream.enqueue(lambda: np.copyto(out, self.host))

    def set(self, values: Any, stream: Stream) -> None:
        stream.enqueue(lambda: np.copyto(self.host, values))

    def __iadd__(self, other: Any) -> Array:
        return add(self, other, out=self)

    def __add__(self, other: Any) -> Array:
        return computed(np.add, self, other)

    __radd__ = __add__

    def __and__(self, other: Any) -> Array:
        return computed(np.bitwise_and, self, other)

    def __rshift__(self, other: Any) -> Array:
        return computed(np.right_shift, self, other)

    def __lshift__(self, other: Any) -> Array:
        return computed(np.left_shift, self, other)


def _host(value: Any) -> Any:
    return value.host if isinstance(value, Array) else value


def computed(function: Callable[..., Any], *inputs: Any) -> Array:
    """A new array of the right type, whose values come when its stream gets there."""
    given = [_host(value) for value in inputs]
    with np.errstate(all="ignore"):
        made = empty_like(function(*given))

    def step() -> None:
        with np.errstate(all="ignore"):
            np.copyto(made.host, function(*given))

    enqueue(step)
    return made


def empty(elements: int, dtype: Any) -> Array:
    return empty_like(np.empty(elements, dtype))


def empty_like(array: Any) -> Array:
    made = np.empty_like(array)
    made.view(np.uint8)[...] = 0xFF
    return Array(made)


def add(a: Array, b: Array, out: Array) -> Array:
    enqueue(lambda: np.add(a.host, b.host, out=out.host))
    return out


def asarray(values: Any) -> Array:
    made, given = empty_like(values), values.copy()
    enqueue(lambda: np.copyto(made.host, given))
    return made


xp = types.SimpleNamespace(
    empty=empty, add=add, asarray=asarray, isnan=lambda a: computed(np.isnan, a),
    where=lambda *arguments: computed(np.where, *arguments),
    cuda=types.SimpleNamespace(
        Stream=Stream, Event=Event, get_current_stream=get_current_stream,
        Device=lambda device: types.SimpleNamespace(pci_bus_id=f"0000:{device:02x}:00.0"),
    ),
)  # fmt: skip


def narrow(values: Any) -> Any:
    """float32 to bfloat16's bits, by rounding to nearest even."""
    bits = values.view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def wide(values: Any) -> Any:
    """Numbers as they travel, as float32."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


class QueuedBackend:
    """What communicators use of the CUDA backend."""

    on_host = False
    xp = xp

    def __init__(self, device: int = 0) -> None:
        self.device, self.compute = device, Stream()
        self._staging = Staging(xp, self.compute, lambda shape: np.empty(shape, np.float32))

    def activate(self) -> None:
        self.compute.use()

    def accumulate(self, total: Array, part: Array) -> None:
        self.activate()
        self.add_on_stream(total, part)

    def add_on_stream(self, total: Array, part: Array) -> None:
        add(total, part, out=total)

    def tree_sum(self, rows: Array, merges: Array, total: Array) -> None:
        def step() -> None:
            stack: list[Any] = []
            for row, due in zip(wide(rows.host).reshape(-1, total.size), merges.host, strict=True):
                stack.append(row)
                for _ in range(due):
                    right = stack.pop()
                    stack[-1] = stack[-1] + right
            (total.host[...],) = stack

        enqueue(step)

    def convert(self, given: Array, made: Array) -> None:
        def step() -> None:
            if made.dtype == np.uint16:
                made.host[...] = narrow(given.host)
            else:
                made.host[...] = wide(given.host)

        enqueue(step)

    def download(self, values: Array) -> Any:
        self.activate()
        return self._staging.out(values)

    def bring_back(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        self.activate()
        self._staging.back(pairs)
