"""Blobs and weights by their names, with a suggestion where a name is mistyped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NoReturn, TypeVar

from ..errors import BlobNameError
from ..registry import did_you_mean

V = TypeVar("V")

LISTED = 20  # names; large nets have hundreds


class ByName(OrderedDict[str, V]):
    """An ordered dictionary whose KeyError is a sentence; `what` names its things."""

    def __init__(self, what: str, items: Iterable[tuple[str, V]] = ()) -> None:
        super().__init__(items)
        self._what = what

    def __missing__(self, name: str) -> NoReturn:
        known = list(self)
        listed = ", ".join([*known[:LISTED], *(["..."] if len(known) > LISTED else [])]) or "none"
        raise BlobNameError(
            f'no {self._what} "{name}" in this net{did_you_mean(name, known)}; there are: {listed}'
        )

    def __reduce__(self) -> tuple[object, ...]:
        return OrderedDict, (list(self.items()),)
