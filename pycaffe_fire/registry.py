"""One small registry serves layers, solvers, fillers, rate policies and communicators."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_ENDING = "_param"
_LONGEST_NAME = 200


def did_you_mean(name: str, known: list[str]) -> str:
    """A hint to append to an error: ' (did you mean "X"?)', or nothing."""
    close = near_names(name, known, 1)
    return f' (did you mean "{close[0]}"?)' if close else ""


def near_names(name: str, known: Iterable[str], most: int) -> list[str]:
    """Names that one may have meant, the nearest first.

    An ending that many names share counts for nothing: "lstm_param" is not like "loss_param".
    """
    if len(name) > _LONGEST_NAME:  # comparing takes time, and nobody mistypes that much
        return []
    ending = _ENDING if name.lower().endswith(_ENDING) else ""
    stems = {k.lower().removesuffix(ending): k for k in known}
    stem = name.lower().removesuffix(ending)
    return [stems[s] for s in difflib.get_close_matches(stem, list(stems), n=most, cutoff=0.6)]


class Registry(Generic[T]):
    """Names to implementations; an unknown name raises `error` listing what there is."""

    def __init__(self, what: str, error: type[Exception]) -> None:
        self.what = what
        self.error = error
        self._items: dict[str, T] = {}

    def register(self, *names: str) -> Callable[[T], T]:
        """Decorator that files its object under every given name."""

        def add(item: T) -> T:
            for name in names:
                self._items[name] = item
            return item

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._items:
            shown = name[:_LONGEST_NAME]
            raise self.error(f'unknown {self.what} "{shown}"{self.alternatives(name)}')
        return self._items[name]

    def alternatives(self, name: str) -> str:
        """What to say after an unknown name."""
        known = list(self)
        return f"{did_you_mean(name, known)}; known: {', '.join(known)}"

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._items))
