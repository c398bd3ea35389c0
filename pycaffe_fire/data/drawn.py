"""Databases of images that are drawn by code: written once, and left alone where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ..errors import DataError
from .db import open_database
from .work import progress
from .writer import DatabaseWriter

_CHUNK = 500

Draw = Callable[[int, int], Iterable[bytes]]  # records from a first number on, so many


def make_database(path: Path, name: str, count: int, draw: Draw, chunk: int = _CHUNK) -> str:
    """Write `count` records of a kind ("digits"), keys being their numbers; returns a sentence."""
    if path.exists():
        found = len(open_database(path))
        if found != count:
            raise DataError(
                f"{path}: holds {found:,} records, the {name} have {count:,}; "
                "delete it or choose another folder"
            )
        return f"{path}: complete already ({count:,} records), left alone"
    with DatabaseWriter(path) as writer, progress(f"drawing {name}", count) as advance:
        for first in range(0, count, chunk):
            size = min(chunk, count - first)
            for i, record in enumerate(draw(first, size)):
                writer.put(b"%08d" % (first + i), record)
            advance(size)
    return f"{path}: {count:,} records"
