"""What happens to a record that cannot be used: the run fails (the default), or it is skipped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from ..errors import DataError

FAIL, SKIP = "fail", "skip"
T = TypeVar("T")

log = logging.getLogger("pycaffe_fire")


def check_policy(policy: str) -> str:
    """The policy itself, or an error that lists those there are."""
    if policy not in (FAIL, SKIP):
        raise DataError(f'unknown policy "{policy}" for bad records; known: {FAIL}, {SKIP}')
    return policy


class BadRecords:
    """Applies the policy for one source and counts what was skipped."""

    def __init__(self, policy: str = FAIL) -> None:
        self._policy = check_policy(policy)
        self._known: set[int] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def first_good(self, candidates: Iterable[int], read: Callable[[int], T]) -> T:
        """`read` of the first record that can be read; a function of the data alone."""
        for record in candidates:
            try:
                return read(record)
            except DataError as error:
                if self._policy == FAIL:
                    raise
                self._note(record, error)
                last = error
        raise DataError(f"no usable record is left; the last one: {last}")

    def _note(self, record: int, error: DataError) -> None:
        with self._lock:
            if record in self._known:
                return
            self._known.add(record)
            count = len(self._known)
        log.warning("skipped (%d so far): %s", count, error)
