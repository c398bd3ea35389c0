"""The table of --summary: what every layer makes, holds and computes, and what training takes."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.sizes import mebibytes
from ..net import Net
from ..net.summary import BYTES, NetFacts, facts
from ..solver.capacity import Need, free_bytes, largest_batch

TRAINING = 3  # forward passes' worth of arithmetic: backward computes two products for each
WIDEST_NAME, WIDEST_SHAPE = 44, 40


def summary_lines(net: Net, need: Need, ranks: int) -> list[str]:
    """All of it, for a training net on one of `ranks` ranks."""
    found, context = facts(net), net.context
    leaves = f" (one of {context.leaves} leaves)" if context.leaves > 1 else ""
    passes = context.leaves * context.iter_size
    weights, free = BYTES * net.parameters.size, free_bytes(net.backend)
    sample = gigaflop(found.multiply_adds) / max(1, found.samples)
    iteration = gigaflop(found.multiply_adds) * TRAINING * passes
    return [
        f"{found.name or 'unnamed net'}, batch {found.samples}{leaves}",
        *_table(found),
        "",
        f"Parameters: {found.parameters:,} ({mebibytes(weights)})",
        f"One sample: {sample:.4g} GFLOP forward, {TRAINING * sample:.4g} forward and backward",
        f"One iteration: {iteration:,.4g} GFLOP over {ranks} rank{'s' if ranks > 1 else ''}",
        f"Memory on a rank: {mebibytes(weights + need.total)} (weights {mebibytes(weights)}, "
        f"{need.text()})",
        *([_room(need, free, found.samples)] if free is not None else []),
    ]


def _room(need: Need, free: int, samples: int) -> str:
    return (
        f"Memory free: {mebibytes(free)}, enough for batches of about "
        f"{largest_batch(need, free, samples):,}"
    )


def _table(found: NetFacts) -> list[str]:
    names = [f"{layer.name} ({layer.type})" for layer in found.layers]
    shapes = [shapes_text(layer.tops) for layer in found.layers]
    wide, deep = _width(["layer", *names], WIDEST_NAME), _width(["tops", *shapes], WIDEST_SHAPE)
    head = f"{'layer':<{wide}}  {'tops':<{deep}}  {'parameters':>12}  {'memory':>10}  {'GFLOP':>9}"
    lines = [head, "-" * len(head)]
    for layer, name, shape in zip(found.layers, names, shapes, strict=True):
        count = f"{layer.parameters:,}" if layer.parameters else ""
        work = f"{gigaflop(layer.multiply_adds):,.3f}" if layer.multiply_adds else ""
        size = mebibytes(layer.memory) if layer.memory else ""
        lines.append(
            f"{name:<{wide}}  {shape:<{deep}}  {count:>12}  {size:>10}  {work:>9}".rstrip()
        )
    return lines


def shapes_text(shapes: Sequence[Sequence[int]]) -> str:
    """`64x20x24x24, 64`"""
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def gigaflop(multiply_adds: int) -> float:
    return 2e-9 * multiply_adds


def _width(texts: Sequence[str], most: int) -> int:
    return min(most, max(map(len, texts)))
