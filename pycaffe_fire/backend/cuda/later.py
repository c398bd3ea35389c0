"""Numbers that are still being computed: a loss is copied to the host when it is read, not before.

Reading a number from a device waits for all work before it. A training loop that read its loss in
every iteration would leave the device idle each time; so the loss stays there as a `Later`, which
can be added, scaled and averaged, and becomes a float when it is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST_TERMS = 256  # a sum that grows without anybody looking is read when it gets this long


class Scalar:
    """One number in device memory, read at most once."""

    def __init__(self, array: Any, read: Callable[[Any], float]) -> None:
        self._array, self._read = array, read
        self._value: float | None = None

    @property
    def known(self) -> bool:
        return self._value is not None

    def copied(self) -> Scalar:
        """The number as it is now, whatever will be written to its memory."""
        return Scalar(self._array.copy(), self._read)

    @property
    def value(self) -> float:
        if self._value is None:
            self._value = self._read(self._array)
            self._array = None
        return self._value


class Later:
    """A constant plus multiples of scalars."""

    def __init__(self, constant: float, terms: tuple[tuple[float, Scalar], ...]) -> None:
        fold = len(terms) > MOST_TERMS
        self._constant = constant + sum(c * s.value for c, s in terms if s.known or fold)
        self._terms = tuple((c, s) for c, s in terms if not (s.known or fold))

    def __float__(self) -> float:
        return self._constant + sum(c * s.value for c, s in self._terms)

    def copied(self) -> Later:
        return Later(self._constant, tuple((c, s.copied()) for c, s in self._terms))

    def __add__(self, other: Any) -> Later:
        if isinstance(other, Later):
            return Later(self._constant + other._constant, self._terms + other._terms)
        return Later(self._constant + other, self._terms)

    def __mul__(self, factor: float) -> Later:
        return Later(self._constant * factor, tuple((c * factor, s) for c, s in self._terms))

    def __truediv__(self, divisor: float) -> Later:
        return Later(self._constant / divisor, tuple((c / divisor, s) for c, s in self._terms))

    __radd__ = __add__
    __rmul__ = __mul__

    def __format__(self, form: str) -> str:
        return format(float(self), form)

    def __repr__(self) -> str:
        return repr(float(self))
