"""The fallback backend: every op on plain arrays, written against `xp` alone."""

from __future__ import annotations

from ..base import Backend


class NumPyBackend(Backend):
    """Slow and sure; also the float64 reference for gradient checks."""

    name = "numpy"

    def another(self, threads: int) -> NumPyBackend:
        return type(self)(threads)
