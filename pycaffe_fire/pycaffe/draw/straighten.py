"""Places across for ordered ranks, after Brandes and Köpf: chains of nodes stand in straight lines.

Every node is aligned with a median neighbour of the rank before, giving blocks that move as one;
this is done in four ways (from above or below, to the left or right), of which the mean is taken.
"""

from __future__ import annotations

from itertools import pairwise

NODE_GAP = 26.0

Rows = list[list[int]]
Neighbours = list[list[int]]


def place(
    rows: Rows, above: Neighbours, below: Neighbours, extents: list[float], real: int
) -> list[float]:
    """Where each node's centre goes; nodes from `real` on are points of long arrows."""
    if not extents:
        return []
    crossed = _crossed(rows, below, real)
    found: list[list[float]] = []
    for downward in (True, False):
        for leftward in (True, False):
            turned = rows if downward else rows[::-1]
            turned = turned if leftward else [row[::-1] for row in turned]
            roots = _align(turned, above if downward else below, crossed)
            across = _compact(turned, roots, extents)
            found.append(across if leftward else [-x for x in across])
    _bring_together(found, extents)
    # The mean of the two in the middle, which keeps distances and order.
    middle = [sum(sorted(each)[1:3]) / 2 for each in zip(*found, strict=True)]
    left = min(x - extent / 2 for x, extent in zip(middle, extents, strict=True))
    return [x - left for x in middle]


def _crossed(rows: Rows, below: Neighbours, real: int) -> set[tuple[int, int]]:
    """Links that cross the inside of a long arrow, and so must not pull it out of line."""
    found: set[tuple[int, int]] = set()
    for row, following in pairwise(rows):
        upper = {n: i for i, n in enumerate(row)}
        lower = {n: i for i, n in enumerate(following)}
        links = [(n, m) for n in row for m in below[n]]
        inner = [(n, m) for n, m in links if n >= real and m >= real]
        for n, m in links:
            if n >= real and m >= real:
                continue
            for a, b in inner:
                if (upper[n] - upper[a]) * (lower[m] - lower[b]) < 0:
                    found |= {(n, m), (m, n)}
    return found


def _align(rows: Rows, before: Neighbours, crossed: set[tuple[int, int]]) -> dict[int, int]:
    """Each node's block, by the number of its first member."""
    root = {n: n for row in rows for n in row}
    place = {n: i for row in rows for i, n in enumerate(row)}
    joined: set[int] = set()  # boxes that another one is aligned with already
    for row in rows:
        last = -1
        for n in row:
            near = sorted(before[n], key=place.__getitem__)
            medians = near[(len(near) - 1) // 2 : len(near) // 2 + 1]
            for m in medians:
                if m not in joined and place[m] > last and (m, n) not in crossed:
                    root[n] = root[m]
                    joined.add(m)
                    last = place[m]
                    break
    return root


def _compact(rows: Rows, root: dict[int, int], extents: list[float]) -> list[float]:
    """All blocks as far left as their neighbours allow, then closer to those on their right."""
    gaps: dict[int, dict[int, float]] = {block: {} for block in root.values()}
    waiting = dict.fromkeys(gaps, 0)
    for row in rows:
        for left, right in pairwise(row):
            apart = (extents[left] + extents[right]) / 2 + NODE_GAP
            after = gaps[root[left]]
            waiting[root[right]] += root[right] not in after
            after[root[right]] = max(after.get(root[right], 0.0), apart)
    at = dict.fromkeys(gaps, 0.0)
    order = [block for block, count in waiting.items() if not count]
    for block in order:  # grows while it is read
        for right, apart in gaps[block].items():
            at[right] = max(at[right], at[block] + apart)
            waiting[right] -= 1
            if not waiting[right]:
                order.append(right)
    for block in reversed(order):
        if gaps[block]:
            at[block] = max(at[block], min(at[r] - apart for r, apart in gaps[block].items()))
    return [at[root[n]] for n in range(len(extents))]


def _bring_together(found: list[list[float]], extents: list[float]) -> None:
    """Shift all four to the narrowest: leftward ones by left ends, others by right ends."""

    def ends(across: list[float]) -> tuple[float, float]:
        left = min(x - extent / 2 for x, extent in zip(across, extents, strict=True))
        return left, max(x + extent / 2 for x, extent in zip(across, extents, strict=True))

    low, high = min((ends(across) for across in found), key=lambda e: e[1] - e[0])
    for i, across in enumerate(found):
        left, right = ends(across)
        shift = low - left if i % 2 == 0 else high - right
        found[i] = [x + shift for x in across]
