"""Adding rows to places that may repeat, the same way on every array library."""

from __future__ import annotations

from typing import Any


def add_rows(xp: Any, target: Any, places: Any, rows: Any) -> None:
    """target[places[i]] += rows[i] for every i; a place may occur many times.

    Sums are made in float64, so that their order hardly matters where it is not fixed.
    """
    if not places.size:
        return
    used, which = xp.unique(places, return_inverse=True)
    rows = rows.reshape(places.size, -1)
    width = rows.shape[1]
    cells = which.reshape(-1, 1) * width + xp.arange(width)
    sums = xp.bincount(cells.reshape(-1), weights=rows.reshape(-1), minlength=used.size * width)
    target[used] += sums.reshape(used.size, *target.shape[1:]).astype(target.dtype)
