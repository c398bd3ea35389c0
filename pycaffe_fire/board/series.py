"""One curve of a run, as long as it likes, and what a chart needs of it: a thousand points.

Of every bucket of points its smallest and its largest are kept, so that no peak is lost.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

AXES = ("iteration", "epoch", "hours")


@dataclass(frozen=True)
class View:
    """What a chart shows: the axis, the part of it, how many points, and over how many points each
    is averaged. `per_iteration` is the part of an epoch that an iteration takes."""

    by: str = "iteration"
    low: float = -np.inf
    high: float = np.inf
    points: int = 800
    smooth: int = 1
    per_iteration: float = 0.0


class Series:
    """Points by rising iteration; where a run was resumed, what it did again counts."""

    def __init__(self) -> None:
        self._iterations, self._seconds = array("d"), array("d")
        self._values = array("d")

    def __len__(self) -> int:
        return len(self._values)

    def add(self, iteration: int, seconds: float, value: float) -> None:
        if self._iterations and self._iterations[-1] >= iteration:
            keep = int(np.searchsorted(np.frombuffer(self._iterations), iteration))
            for column in (self._iterations, self._seconds, self._values):
                del column[keep:]
        self._iterations.append(iteration)
        self._seconds.append(seconds)
        self._values.append(value)

    @property
    def last(self) -> tuple[int, float, float]:
        return int(self._iterations[-1]), self._seconds[-1], self._values[-1]

    def best(self, low: bool) -> tuple[int, float]:
        """Where it was lowest or highest, and how low or high."""
        values = np.frombuffer(self._values)
        at = int(values.argmin() if low else values.argmax())
        return int(self._iterations[at]), float(values[at])

    def recent(self, count: int) -> Floats:
        """The last values."""
        return np.array(self._values[-count:])

    def speed(self, count: int) -> float | None:
        """Seconds for an iteration, over the last points."""
        count = min(count, len(self._iterations))
        iterations = self._iterations[-1] - self._iterations[-count] if count > 1 else 0
        return (self._seconds[-1] - self._seconds[-count]) / iterations if iterations else None

    def view(self, view: View) -> dict[str, list[float]]:
        """Coordinates for a chart; `raw` are the values without smoothing, where there is any."""
        along = np.frombuffer(self._seconds if view.by == "hours" else self._iterations)
        factor = {"iteration": 1.0, "hours": 1 / 3600, "epoch": view.per_iteration}[view.by]
        values = np.frombuffer(self._values)
        # One point more on each side, so that a line runs out of the chart and not into nothing.
        first = max(0, int(np.searchsorted(along, view.low / factor if factor else 0)) - 1)
        last = int(np.searchsorted(along, view.high / factor if factor else 0, "right")) + 1
        along, shown = along[first:last], values[first:last]
        raw = decimated(shown, view.points)
        found = {"x": (along[raw] * factor).tolist(), "y": shown[raw].tolist()}
        if view.smooth < 2:
            return found
        start = max(0, first - view.smooth)
        smooth = moving_mean(values[start : last + view.smooth], view.smooth)[first - start :]
        kept = decimated(smooth[: len(shown)], view.points)
        return {
            "x": (along[kept] * factor).tolist(), "y": smooth[kept].tolist(),
            "raw_x": found["x"], "raw": found["y"],
        }  # fmt: skip


def moving_mean(values: Floats, window: int) -> Floats:
    """The mean of up to `window` points around each."""
    count, before, after = len(values), window // 2, (window + 1) // 2
    sums = np.concatenate(([0.0], np.cumsum(values)))
    padded = np.pad(sums, (before, after), "edge")
    found: Floats = padded[window : window + count] - padded[:count]
    sizes = np.full(count, float(window))  # less where the curve begins and ends
    head, tail = min(before, count), min(after, count)
    sizes[:head] -= before - np.arange(head)
    sizes[count - tail :] -= np.arange(count - tail, count) + after - count
    found /= sizes
    return found


def decimated(values: Floats, points: int) -> NDArray[np.intp]:
    """Which of the values to draw: all, or the first, the last, and two of every bucket."""
    count, buckets = len(values), max(1, points // 2)
    size = count // buckets
    if size < 3:
        return np.arange(count)
    whole = values[: size * buckets].reshape(buckets, size)
    starts = np.arange(buckets) * size
    ends: Any = np.stack([starts + whole.argmin(1), starts + whole.argmax(1)])
    tail = np.arange(size * buckets, count)
    rest = [tail[values[tail].argmin()], tail[values[tail].argmax()]] if len(tail) else []
    return np.unique(np.concatenate([ends.reshape(-1), rest, [0, count - 1]]).astype(np.intp))
