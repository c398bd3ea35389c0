"""A layered layout of a directed graph, after Sugiyama: ranks, an order with few crossings, places.

Coordinates are (across, along): `along` runs with the arrows. Arrows over several ranks pass
through points of their own, which keep them off the boxes.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .straighten import place

RANK_GAP, POINT_ROOM = 34.0, 10.0
ORDER_SWEEPS = 24

Size = tuple[float, float]
Point = tuple[float, float]


@dataclass
class Layout:
    """Centres of the nodes, the way of every edge, and the size of it all."""

    centres: list[Point]
    ways: list[list[Point]]  # through the middle of each rank that the edge passes
    bands: list[tuple[float, float]]  # where each rank begins and ends, along
    ranks: list[int]
    size: Size


def lay_out(sizes: Sequence[Size], edges: Sequence[tuple[int, int]]) -> Layout:
    """Places for nodes of these sizes; edges go from lower to higher numbers."""
    ranks = _rank(len(sizes), edges)
    chains, extents, rows = _with_points(sizes, edges, ranks)
    links = [link for chain in chains for link in zip(chain, chain[1:], strict=False)]
    above: list[list[int]] = [[] for _ in extents]
    below: list[list[int]] = [[] for _ in extents]
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    rows = _order(rows, above, below)
    across = place(rows, above, below, extents, len(sizes))
    bands, at = [], 0.0
    for row in rows:
        thickness = max((sizes[n][1] for n in row if n < len(sizes)), default=0.0)
        bands.append((at, at + thickness))
        at += thickness + RANK_GAP
    middle = [(start + end) / 2 for start, end in bands]
    rank_of = {n: r for r, row in enumerate(rows) for n in row}
    points = [(across[n], middle[rank_of[n]]) for n in range(len(extents))]
    width = max((across[n] + extents[n] / 2 for n in range(len(extents))), default=0.0)
    ways = [[points[n] for n in chain] for chain in chains]
    return Layout(points[: len(sizes)], ways, bands, ranks, (width, max(0.0, at - RANK_GAP)))


def _rank(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest way from a source; sources themselves move down to their first reader."""
    ranks = [0] * count
    for upper, lower in sorted(edges, key=lambda edge: edge[1]):
        ranks[lower] = max(ranks[lower], ranks[upper] + 1)
    targets = {lower for _, lower in edges}
    for node in range(count):
        readers = [lower for upper, lower in edges if upper == node]
        if node not in targets and readers:
            ranks[node] = min(ranks[reader] for reader in readers) - 1
    return ranks


def _with_points(
    sizes: Sequence[Size], edges: Sequence[tuple[int, int]], ranks: list[int]
) -> tuple[list[list[int]], list[float], list[list[int]]]:
    """Edges as chains from rank to rank, everybody's extent across, and who stands in each rank."""
    extents = [width for width, _ in sizes]
    rows: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for node, rank in enumerate(ranks):
        rows[rank].append(node)
    chains = []
    for upper, lower in edges:
        chain = [upper]
        for rank in range(ranks[upper] + 1, ranks[lower]):
            chain.append(len(extents))
            rows[rank].append(len(extents))
            extents.append(POINT_ROOM)
        chains.append([*chain, lower])
    return chains, extents, rows


def _order(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]]
) -> list[list[int]]:
    """Sweep down and up, sorting each rank by its neighbours' means; keep the best order seen."""
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(ORDER_SWEEPS):
        down = sweep % 2 == 0
        around = above if down else below
        order = range(1, len(rows)) if down else range(len(rows) - 2, -1, -1)
        for r in order:
            fixed = {n: i for i, n in enumerate(rows[r - 1 if down else r + 1])}
            here = {n: i for i, n in enumerate(rows[r])}
            rows[r].sort(key=_mean_of(around, fixed, here))
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _mean_of(
    around: list[list[int]], fixed: dict[int, int], here: dict[int, int]
) -> Callable[[int], float]:
    def mean(node: int) -> float:
        seen = [fixed[n] for n in around[node]]
        return sum(seen) / len(seen) if seen else float(here[node])

    return mean


def _crossings(rows: list[list[int]], below: list[list[int]]) -> int:
    total = 0
    for row, following in zip(rows, rows[1:], strict=False):
        place = {n: i for i, n in enumerate(following)}
        passed: list[int] = []
        for node in row:
            ends = sorted(place[n] for n in below[node])
            total += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return total
