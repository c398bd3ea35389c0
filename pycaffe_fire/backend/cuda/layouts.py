"""How blobs lie in device memory: their channels in the middle or last, in rows with or without
gaps between them; and copies from one way to another."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ..tensor import FLOAT32, Array
from .launch import Kernels, kind_of

TILE = 32  # rows and columns that a block of `turn` takes (kernels/rearrange.cu)


class Rows(NamedTuple):
    """Device memory in rows: samples, or with channels last the pixels of all samples."""

    array: Array
    pitch: int  # from row to row, or 0 where there are no gaps


class Order(NamedTuple):
    """The rows of a shape in one of the two orders."""

    last: bool  # are channels last?
    rows: int
    width: int

    @classmethod
    def of(cls, shape: Sequence[int], last: bool) -> Order:
        """With one pixel, or none but channels, both orders are the same."""
        count, pixels = prod(shape), prod(shape[2:])
        if last and len(shape) > 2 and pixels > 1:
            return cls(True, shape[0] * pixels, shape[1])
        rows = shape[0] if shape else 1
        return cls(False, rows, count // max(rows, 1))


def shared_width(order: Order, *pitches: int) -> int:
    """The width of rows as elementwise kernels take it: 0 where no array has gaps."""
    return order.width if any(pitches) else 0


def rearrange(
    kernels: Kernels, shape: Sequence[int], given: Rows, given_last: bool, made: Rows,
    made_last: bool,
) -> None:  # fmt: skip
    """Copy a value to memory that has it in another order, with other gaps or stored otherwise."""
    before, after = kind_of(given.array), kind_of(made.array)
    if FLOAT32 not in (before, after) and before != after:
        between = Rows(kernels.xp.empty(prod(shape), "float32"), 0)
        rearrange(kernels, shape, given, given_last, between, made_last)
        rearrange(kernels, shape, between, made_last, made, made_last)
        return
    ours, theirs = Order.of(shape, given_last), Order.of(shape, made_last)
    if ours.last == theirs.last:
        _copy_rows(kernels, ours, given, made)
    else:
        _turn(kernels, shape, ours, given, made)


def _variant(given: Rows, made: Rows, same: str, narrow: str, wide: str) -> tuple[str, str]:
    """The name and kind of the kernel among three."""
    before, after = kind_of(given.array), kind_of(made.array)
    if before == after:
        return same, after
    return (narrow, after) if before == FLOAT32 else (wide, before)


def _copy_rows(kernels: Kernels, order: Order, given: Rows, made: Rows) -> None:
    kernel = kernels[_variant(given, made, "copy_rows", "narrow_rows", "widen_rows")]
    width = shared_width(order, given.pitch, made.pitch)
    count = order.rows * order.width
    kernel(count, given.array, width, given.pitch, made.pitch, made.array)


def _turn(
    kernels: Kernels, shape: Sequence[int], given_order: Order, given: Rows, made: Rows
) -> None:
    samples, channels, pixels = shape[0], shape[1], prod(shape[2:])
    kernel = kernels[_variant(given, made, "turn", "turn_narrow", "turn_wide")]
    whole = channels * pixels
    if given_order.last:
        rows, columns = pixels, channels
        pitch = given.pitch or channels
        strides = (pitch, pitch * pixels, pixels, made.pitch or whole)
    else:
        rows, columns = channels, pixels
        pitch = made.pitch or channels
        strides = (pixels, given.pitch or whole, pitch, pitch * pixels)
    tiles = samples * -(-rows // TILE) * -(-columns // TILE)
    kernel.blocks(tiles, given.array, rows, columns, *strides, made.array)
