"""A layout that is too long becomes several rows, as lines of text do.

Rows break between ranks, where few arrows pass; those that do run around the end of the row and
through the gap to the beginning of the next, those of one box together. Coordinates are those of a
layout: (across, along).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .layout import POINT_ROOM, Layout, Point, Size

LONGEST = 2400.0  # of a row
SHORTEST = 0.6  # of a row that is not the last, as a share of what it might be
ROW_GAP, LANE = 64.0, 7.0  # between rows; between arrows that run around their ends
ROUND = 8.0  # of corners


@dataclass
class Rows:
    """Which row each rank is in, where rows begin, and how large it all is."""

    row_of: list[int]
    starts: list[float]  # along, in the layout
    lengths: list[float]
    shifts: list[float]  # across: added to the layout's
    tops: list[float]  # across: where each row begins
    lead: float  # along: room for arrows before and after rows
    size: Size

    def place(self, rank: int, point: Point) -> Point:
        """Where a point of the layout goes that lies in a rank."""
        row = self.row_of[rank]
        return point[0] + self.shifts[row], point[1] - self.starts[row] + self.lead

    def turn(self, row: int, start: Point, end: Point, lane: int) -> list[Point]:
        """Corners of the way from the end of a row to a point in the next."""
        beyond = self.lead + self.lengths[row] + LANE * (lane + 1)
        gap = self.tops[row + 1] - ROW_GAP / 2 + LANE * lane
        before = self.lead - LANE * (lane + 1)
        return [start, (start[0], beyond), (gap, beyond), (gap, before), (end[0], before), end]


def wrap(
    found: Layout, extents: Sequence[float], edges: Sequence[tuple[int, int]],
    longest: float = LONGEST,
) -> Rows:  # fmt: skip
    """Rows of at most about `longest`; one row if everything fits."""
    sources: list[set[int]] = [set() for _ in found.bands]  # of arrows that pass into a rank
    for upper, lower in edges:
        for rank in range(found.ranks[upper] + 1, found.ranks[lower] + 1):
            sources[rank].add(upper)
    crossing = [len(each) for each in sources]
    firsts = _breaks(found.bands, crossing, longest)
    row_of, row = [], -1
    for rank in range(len(found.bands)):
        row += rank in firsts
        row_of.append(row)
    lanes = max((crossing[first] for first in firsts[1:]), default=0)
    lead = LANE * (lanes + 2) if lanes else 0.0
    starts = [found.bands[first][0] for first in firsts]
    lasts = [*(first - 1 for first in firsts[1:]), len(found.bands) - 1]
    lengths = [found.bands[last][1] - start for last, start in zip(lasts, starts, strict=True)]
    shifts, tops, at = [], [], 0.0
    for low, high in _spans(found, extents, row_of, len(firsts)):
        tops.append(at)
        shifts.append(at - low)
        at += high - low + ROW_GAP + LANE * lanes
    across = at - ROW_GAP - LANE * lanes if shifts else 0.0
    along = max(lengths, default=0.0) + 2 * lead
    return Rows(row_of, starts, lengths, shifts, tops, lead, (across, along))


def _breaks(
    bands: Sequence[tuple[float, float]], crossing: Sequence[int], longest: float
) -> list[int]:
    """The ranks that begin rows, all rows about as long, where the fewest arrows pass."""
    if not bands:
        return []
    firsts, total = [0], bands[-1][1]
    rows = -(-total // longest)
    while rows > 1:
        start = bands[firsts[-1]][0]
        room = min(longest, 1.15 * (total - start) / rows)
        fitting = [
            rank
            for rank in range(firsts[-1] + 1, len(bands))
            if SHORTEST * room <= bands[rank - 1][1] - start <= room
        ]
        if not fitting:
            break
        firsts.append(min(fitting, key=lambda rank: (crossing[rank], -rank)))
        rows = -(-(total - bands[firsts[-1]][0]) // longest)
    return firsts


def _spans(
    found: Layout, extents: Sequence[float], row_of: Sequence[int], rows: int
) -> list[tuple[float, float]]:
    """From where to where the boxes and arrows of each row reach, across."""
    reach: list[list[float]] = [[] for _ in range(rows)]
    for rank, (x, _), extent in zip(found.ranks, found.centres, extents, strict=True):
        reach[row_of[rank]] += [x - extent / 2, x + extent / 2]
    for row, way in zip(reach, _ways_by_row(found, row_of, rows), strict=True):
        row += [x + side * POINT_ROOM / 2 for x in way for side in (-1, 1)]
    return [(min(row), max(row)) for row in reach]


def _ways_by_row(found: Layout, row_of: Sequence[int], rows: int) -> list[list[float]]:
    middle = {round((start + end) / 2, 3): rank for rank, (start, end) in enumerate(found.bands)}
    ways: list[list[float]] = [[] for _ in range(rows)]
    for way in found.ways:
        for x, along in way[1:-1]:
            ways[row_of[middle[round(along, 3)]]].append(x)
    return ways


def rounded(corners: Sequence[Point]) -> list[Point]:
    """A way with right angles as pieces of a Bézier curve, without its first point."""
    points: list[Point] = []
    at = corners[0]
    for corner, following in zip(corners[1:], corners[2:], strict=False):
        into, out = _toward(corner, at), _toward(corner, following)
        points += [at, into, into, corner, corner, out]
        at = out
    return [*points, at, corners[-1], corners[-1]]


def _toward(start: Point, end: Point) -> Point:
    """A little way from one point to another, at most half of it."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = abs(dx) + abs(dy)
    part = min(ROUND, length / 2) / length if length else 0.0
    return start[0] + dx * part, start[1] + dy * part
