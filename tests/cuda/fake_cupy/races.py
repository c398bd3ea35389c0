"""A race checker for the stand-in: every access to memory must be ordered by an event or a wait.

Streams and the host have vector clocks. Work on a stream comes after what the host knew when it
was queued, and after the events its stream waited for; the host knows what it has waited for, and
its threads tell each other. Two accesses to the same bytes, one of them a write, that neither order
puts first, are a race: `RaceError` names both places.

Two kinds of memory have rules of their own:
- CuPy's pool gives freed memory again to the stream it was taken on, at once and without looking at
  other streams (cupy/cuda/memory.pyx: one arena per stream). So what others did with a freed block
  must come before the next allocation that it could serve.
- Pinned host memory takes part in copies until the host has waited for them. The host's own reads
  and writes cannot be seen, so a copy out arrives only at the wait, as late as it may, and of a
  copy in the bytes are looked at again then: whoever changed them was too early.
"""

from __future__ import annotations

import bisect
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = str(Path(__file__).parent)
CUDA = Path(__file__).parents[3] / "pycaffe_fire" / "backend" / "cuda"
HELPERS = tuple(str(CUDA / f"{name}.py") for name in ("blas", "launch", "streams", "tensor"))
NULL = 0  # the address of the NULL stream


class RaceError(AssertionError):
    """Two accesses that nothing orders."""


class Clock(dict[int, int]):
    """How much of every stream's work is known to be done."""

    def join(self, other: Clock) -> None:
        for stream, tick in other.items():
            if self.get(stream, 0) < tick:
                self[stream] = tick


@dataclass(frozen=True)
class Access:
    """What one piece of work does to a range of bytes."""

    low: int
    high: int
    writes: bool
    stream: int
    tick: int
    place: str

    def before(self, clock: Clock) -> bool:
        return clock.get(self.stream, 0) >= self.tick

    def overlaps(self, low: int, high: int) -> bool:
        return self.low < high and low < self.high


@dataclass
class Block:
    """One allocation: where it is, whose arena it belongs to, and who has used it."""

    low: int
    high: int
    arena: int
    accesses: list[Access] = field(default_factory=list)

    @property
    def size(self) -> int:
        return self.high - self.low


@dataclass(frozen=True)
class Copy:
    """A copy between pinned memory and a device, which the host has not waited for."""

    stream: int
    tick: int
    check: Callable[[], None]


def place_of(what: str) -> str:
    """`what`, and the line that asked for it: outside the stand-in and our launch helpers."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((HERE, *HELPERS)):
        frame = frame.f_back
    if frame is None:
        return what
    file = "/".join(Path(frame.f_code.co_filename).parts[-3:])
    return f"{what} ({file}:{frame.f_lineno})"


def span(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The bytes between its first and last element."""
    low = high = array.__array_interface__["data"][0]
    for size, stride in zip(array.shape, array.strides, strict=True):
        if size == 0:
            return low, low
        low, high = min(low, low + (size - 1) * stride), max(high, high + (size - 1) * stride)
    return low, high + array.itemsize


class Checker:
    """All streams, blocks and copies of a process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._names: dict[int, str] = {NULL: "the NULL stream"}
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self.found: list[str] = []
            self.work: dict[int, list[str]] = {}  # of every stream, in order
            self.moved: Counter[str] = Counter()  # bytes read and written, by what did so
            self.allocations = 0
            self._streams: dict[int, Clock] = {}
            self._host = Clock()
            self._starts: list[int] = []
            self._blocks: list[Block] = []
            self._freed: list[Block] = []
            self._copies: list[Copy] = []

    def name(self, stream: int, name: str) -> None:
        self._names[stream] = name

    # Clocks.

    def _clock(self, stream: int) -> Clock:
        return self._streams.setdefault(stream, Clock())

    def record(self, stream: int) -> Clock:
        """The clock of an event: all that the stream was given so far."""
        with self._lock:
            return Clock(self._clock(stream))

    def wait(self, stream: int, event: Clock) -> None:
        with self._lock:
            self._clock(stream).join(event)

    def host_waits(self, event: Clock) -> None:
        """The host has waited for an event."""
        with self._lock:
            self._host.join(event)
            done = [copy for copy in self._copies if self._host.get(copy.stream, 0) >= copy.tick]
            self._copies = [copy for copy in self._copies if copy not in done]
        for copy in done:
            copy.check()

    def synchronize(self, stream: int | None = None) -> None:
        """The host has waited for a stream, or for all of them."""
        streams = list(self._streams) if stream is None else [stream]
        for one in streams:
            self.host_waits(self.record(one))

    # Work.

    def launched(self, stream: int, what: str, reads: Iterable[Any], writes: Iterable[Any]) -> None:
        """A piece of work is queued; memory is NumPy arrays or (address, bytes)."""
        place = place_of(what)
        with self._lock:
            clock = self._clock(stream)
            clock.join(self._host)
            tick = clock[stream] = clock.get(stream, 0) + 1
            self.work.setdefault(stream, []).append(what)
            for writing, memory in ((False, reads), (True, writes)):
                for part in memory:
                    self.moved[what] += (
                        part[1] - part[0] if isinstance(part, tuple) else part.nbytes
                    )
                    low, high = part if isinstance(part, tuple) else span(part)
                    if low < high:
                        self._access(Access(low, high, writing, stream, tick, place), clock)

    def _access(self, new: Access, clock: Clock) -> None:
        block = self._block_at(new.low)
        if block is None:
            return
        kept = []
        for old in block.accesses:
            meets = old.overlaps(new.low, new.high)
            if meets and (old.writes or new.writes) and not old.before(clock):
                self._report(old, new)
            covered = new.low <= old.low and old.high <= new.high
            replaced = new.writes or (not old.writes and old.stream == new.stream)
            if not (covered and replaced and old.before(clock)):
                kept.append(old)
        block.accesses = [*kept, new]

    def _report(self, old: Access, new: Access) -> None:
        texts = [
            f"{'writes' if a.writes else 'reads'} on {self._names.get(a.stream, a.stream)}: "
            f"{a.place}"
            for a in (old, new)
        ]
        self.fail(f"nothing orders two accesses to {new.high - new.low} bytes\n" + "\n".join(texts))

    def fail(self, text: str) -> None:
        self.found.append(text)
        raise RaceError(text)

    # Memory.

    def allocated(self, array: np.ndarray[Any, Any], stream: int) -> None:
        """The root of device arrays; its memory is freed with it."""
        low, high = span(array)
        with self._lock:
            if self._block_at(low) is not None or low == high:
                return
            self.allocations += 1
            self._reuse(high - low, stream)
            index = bisect.bisect(self._starts, low)
            block = Block(low, high, stream)
            self._starts.insert(index, low)
            self._blocks.insert(index, block)
        weakref.finalize(array, self._free, block).atexit = False

    def _reuse(self, size: int, stream: int) -> None:
        """Any freed block of this arena that is large enough may be what the pool gives."""
        clock = Clock(self._clock(stream))
        clock.join(self._host)
        kept = []
        for block in self._freed:
            if block.arena != stream:
                kept.append(block)
                continue
            late = [access for access in block.accesses if not access.before(clock)]
            if late and block.size >= size:
                self.fail(
                    f"memory of {self._names.get(stream, stream)} is given away again while "
                    f"another stream may use it: {late[0].place}, then {place_of('allocation')}"
                )
            block.accesses = late
            if late:
                kept.append(block)
        self._freed = kept

    def _free(self, block: Block) -> None:
        with self._lock:
            index = bisect.bisect_left(self._starts, block.low)
            if index < len(self._blocks) and self._blocks[index] is block:
                del self._starts[index], self._blocks[index]
                if any(access.stream != block.arena for access in block.accesses):
                    self._freed.append(block)

    def _block_at(self, address: int) -> Block | None:
        index = bisect.bisect(self._starts, address) - 1
        if index >= 0 and address < self._blocks[index].high:
            return self._blocks[index]
        return None

    # Copies of pinned memory.

    def copying(self, stream: int, check: Callable[[], None]) -> None:
        """A copy was queued; `check` runs when the host has waited for it."""
        with self._lock:
            self._copies.append(Copy(stream, self._clock(stream)[stream], check))


checker = Checker()
