"""Records that stay in memory once they were read, as far as memory goes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from ..backend import host

log = logging.getLogger("pycaffe_fire")
T = TypeVar("T")

SHARE = 0.5  # of the free memory; the rest is for the net and the system


class Cache(Generic[T]):
    """Bytes or arrays by key. Once `limit` bytes are full the others are read again every time.

    A limit is needed, because a data set may be larger than memory: half of what is free now,
    divided by the processes on this host that fill a cache of their own.
    """

    def __init__(self, source: str, limit: int | None = None, processes: int = 1) -> None:
        self._source = source
        free = host.free_bytes() if limit is None else None
        self._limit = int(SHARE * free / processes) if free is not None else limit
        self._kept: dict[Hashable, T] = {}
        self._size = 0
        self._full = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """The value of `key`, read if it is not there."""
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        value = read()
        self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: Any) -> None:
        size = memoryview(value).nbytes
        with self._lock:
            if self._full or key in self._kept:
                return
            if self._limit is None or self._size + size <= self._limit:
                self._kept[key] = value
                self._size += size
                return
            self._full = True
        log.warning(
            "%s: the cache is full with %d records (%d MiB, half of the free memory); the others "
            "are read again every epoch",
            self._source, len(self._kept), self._size >> 20,
        )  # fmt: skip
