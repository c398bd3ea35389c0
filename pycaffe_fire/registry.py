"""One small registry serves layers, solvers, fillers, rate policies and communicators."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def did_you_mean(name: str, known: list[str]) -> str:
    """A hint to append to an error: ' (did you mean "X"?)', or nothing."""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return f' (did you mean "{by_lower[close[0]]}"?)' if close else ""


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
            known = list(self)
            raise self.error(
                f'unknown {self.what} "{name}"{did_you_mean(name, known)}; '
                f"known: {', '.join(known)}"
            )
        return self._items[name]

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._items))
