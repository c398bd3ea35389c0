"""Values for the inputs of a case; the name of an input says what it must look like.

`data3` holds normal numbers, `label5_2` classes below 5, `positive1` positive numbers, and
`row7_0` what bottom 0 of row 7 of the layer table wants (tests/layers/rows_*.py).
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.layers import case as table

Array = np.ndarray[Any, Any]
_LAYERS = Path(table.__file__).parent


@cache
def rows() -> tuple[table.Case, ...]:
    """All rows of the layer table, in a fixed order."""
    names = sorted(path.stem for path in _LAYERS.glob("rows_*.py"))
    return tuple(
        row for name in names for row in importlib.import_module(f"tests.layers.{name}").ROWS
    )


@cache
def row_named(name: str) -> table.Case:
    return next(row for row in rows() if _slug(row.name) == name)


def row_input(row: table.Case, bottom: int) -> str:
    """The name of the input that feeds a bottom of a row."""
    return f"row.{_slug(row.name)}.{bottom}"


def _slug(name: str) -> str:
    return re.sub(r"\W+", "_", name)


def values_for(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Values that suit an input of this name."""
    if name.startswith("row."):
        _, slug, bottom = name.split(".")[:3]
        row = row_named(slug)
        fill = row.fill_of(int(bottom))
        kinks = () if row.has_labels(int(bottom)) else row.kinks
        return table.filled(fill, rng, shape, kinks)
    if match := re.match(r"label(\d+)_", name):
        return rng.integers(0, int(match[1]), shape).astype(float)
    if name.startswith("positive"):
        return rng.uniform(0.5, 2.0, shape)
    return rng.normal(size=shape)
