"""Guard zones around every buffer that kernels write, and poison in uninitialized memory.

Memory of the backend comes from `aligned` in backend/tensor.py or from NumPy inside the backend's
modules; both are replaced. A zone before and after each buffer must hold its pattern after every
action; fresh memory is filled with NaN, so that a value that was never written shows.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np

from pycaffe_fire.backend import tensor as tensors

from . import execute, oracle
from .case import Case
from .oracle import Verdict

ZONE = 4096  # bytes on each side; a multiple of every alignment
PATTERN, POISON = 0xA5, 0xFF  # four bytes of 0xFF are a NaN
_guarded: list[tuple[Any, Any]] = []  # (whole memory with zones, weak view) of one case


class Overflow(Exception):
    """A kernel wrote outside of its buffer."""


def _with_zones(size: int) -> Any:
    """Memory of `size` bytes between two zones, filled with poison."""
    whole = np.empty(size + 2 * ZONE + 64, np.uint8)
    start = ZONE + (-(whole.ctypes.data + ZONE)) % 64
    whole[...] = PATTERN
    whole[start : start + size] = POISON
    _guarded.append((whole, (start, start + size)))
    return whole[start : start + size]


def guarded_aligned(elements: int, dtype: np.dtype[Any], alignment: int = 64) -> Any:
    return _with_zones(elements * dtype.itemsize).view(dtype)


class GuardedNumPy:
    """NumPy as backend modules see it, whose new arrays have guard zones."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def empty(shape: Any, dtype: Any = float, **options: Any) -> Any:
        kind = np.dtype(dtype)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        return _with_zones(prod(sizes) * kind.itemsize).view(kind).reshape(sizes)

    @classmethod
    def zeros(cls, shape: Any, dtype: Any = float, **options: Any) -> Any:
        made = cls.empty(shape, dtype)
        made[...] = 0
        return made


def install() -> None:
    """Replace the ways in which the backend gets memory."""
    original = tensors.aligned
    for name, module in list(sys.modules.items()):
        if not name.startswith("pycaffe_fire"):
            continue
        if getattr(module, "aligned", None) is original:
            module.aligned = guarded_aligned  # type: ignore[attr-defined]
        if ".backend." in name and getattr(module, "np", None) is np:
            if "kernels" in name or name.endswith(("instructions", "compiled", "random")):
                continue  # compiled code, which knows NumPy's own functions
            module.np = GuardedNumPy()  # type: ignore[attr-defined]


def check() -> None:
    """Raise Overflow if a zone was written."""
    for whole, (start, stop) in _guarded:
        for place, zone in (("before", whole[:start]), ("after", whole[stop:])):
            changed = np.flatnonzero(zone != PATTERN)
            if changed.size:
                far = changed[-1] + 1 if place == "after" else start - changed[0]
                raise Overflow(f"{far} bytes {place} a buffer of {stop - start} bytes")


class GuardedRun(execute.Run):
    """A run that looks at all zones after every action."""

    def _record(self, what: str, values: Any) -> None:
        check()
        super()._record(what, values)

    def run(self) -> list[execute.Record]:
        records = super().run()
        check()
        return records


def judge(case: Case, *variants: Any) -> Verdict:
    """As the oracle's, with guard zones."""
    _guarded.clear()
    return oracle.judge(case, *variants)


def start() -> None:
    """Import the backends, then watch their memory."""
    from pycaffe_fire.backend import cpu_backend

    cpu_backend(1)
    install()
    oracle.Run = GuardedRun  # type: ignore[attr-defined]
