"""Channels last: a blob as rows (pixels of all samples, channels), a matrix for BLAS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import numpy as np

from ..blob import Blob
from ..tensor import NATIVE, Array, ChannelsLast, Tensor

FEW = 8  # channels, as of images


def turned(plain: Array) -> Array:
    """(N, C, S...) seen as (N, pixels, C)."""
    return plain.reshape(plain.shape[0], plain.shape[1], -1).swapaxes(1, 2)


def rows_of(tensor: Tensor) -> Array:
    """The storage of a tensor whose channels lie last, whatever it holds."""
    tensor.allocate()
    assert tensor.buffer is not None
    return tensor.buffer[: tensor.layout.elements].reshape(-1, tensor.shape[1])


def some(rows: Array, blob: Blob, first: int, stop: int) -> Array:
    """The rows of some of a blob's images."""
    pixels = prod(blob.shape[2:])
    return rows[first * pixels : stop * pixels]


def images(rows: Array, blob: Blob) -> Array:
    """Rows of whole images as (images, height, width, channels)."""
    return rows.reshape(-1, *blob.shape[2:], blob.shape[1])


def read(tensor: Tensor) -> Array:
    """The value as rows, which are not to be written."""
    if isinstance(tensor.layout, ChannelsLast):
        tensor.sync()
        return rows_of(tensor)
    rows = np.empty((tensor.layout.elements // tensor.shape[1], tensor.shape[1]), np.float32)
    turn(tensor.array, rows)
    return rows


def turn(plain: Array, rows: Array) -> None:
    """rows = a plain array."""
    out, source = rows.reshape(len(plain), -1, plain.shape[1]), turned(plain)
    if plain.shape[1] > FEW:
        out[...] = source
    else:  # NumPy would take them pixel by pixel
        for c in range(plain.shape[1]):
            out[:, :, c] = source[:, :, c]


@contextmanager
def writing(tensor: Tensor) -> Iterator[Array]:
    """Rows to be written as a whole."""
    if isinstance(tensor.layout, ChannelsLast):
        yield rows_of(tensor)
        tensor.fresh = NATIVE
    else:  # somebody counts on its layout
        rows = np.empty((tensor.layout.elements // tensor.shape[1], tensor.shape[1]), np.float32)
        yield rows
        turned(tensor.array)[...] = rows.reshape(tensor.shape[0], -1, tensor.shape[1])
