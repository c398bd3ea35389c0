"""Threads of NumPy's BLAS, and objects that each of our threads has for itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

import threadpoolctl

T = TypeVar("T")


class PerThread(threading.local, Generic[T]):
    """An object that every thread makes for itself, such as a kernel inside a part of `share`."""

    def __init__(self, make: Callable[[], T]) -> None:  # called by each thread that looks at it
        self.own = make()


class _SingleThreaded:
    """While any thread of the process is inside, products keep to the threads that ask for them."""

    def __init__(self) -> None:
        self._inside = 0
        self._lock = threading.Lock()
        self._limit: Any = None

    @cached_property
    def _libraries(self) -> Any:
        return threadpoolctl.ThreadpoolController().select(user_api="blas")

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = self._libraries.limit(limits=1)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()


single_threaded_products = _SingleThreaded()
