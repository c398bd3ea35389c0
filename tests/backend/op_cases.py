"""Geometries that every backend must get right, and how to make blobs for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.blob import Blob, BlobView
from pycaffe_fire.backend.plans import Window
from pycaffe_fire.errors import BackendError
from tests.random_numbers import RNG

Array = np.ndarray[Any, Any]


def window(
    kernel: Sequence[int],
    stride: Sequence[int] | int = 1,
    pad: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
) -> Window:
    def each(value: Sequence[int] | int) -> tuple[int, ...]:
        return (value,) * len(kernel) if isinstance(value, int) else tuple(value)

    return Window(tuple(kernel), each(stride), each(pad), each(dilation))


class Conv(NamedTuple):
    shape: tuple[int, ...]
    outputs: int
    window: Window
    groups: int = 1
    transposed: bool = False

    @property
    def weights(self) -> tuple[int, ...]:
        pair = (self.shape[1], self.outputs) if self.transposed else (self.outputs, self.shape[1])
        return (pair[0], pair[1] // self.groups, *self.window.kernel)

    @property
    def out(self) -> tuple[int, ...]:
        win = self.window
        sizes = []
        for size, k, s, p, d in zip(
            self.shape[2:], win.kernel, win.stride, win.pad, win.dilation, strict=True
        ):
            extent = d * (k - 1) + 1
            down = (size + 2 * p - extent) // s + 1
            sizes.append(s * (size - 1) + extent - 2 * p if self.transposed else down)
        return (self.shape[0], self.outputs, *sizes)


CONVS = {
    "basic": Conv((2, 3, 5, 6), 4, window((3, 3), pad=1)),
    "one pixel kernel": Conv((2, 4, 3, 5), 6, window((1, 1)), 2),
    "strided one pixel": Conv((2, 3, 5, 5), 2, window((1, 1), 2)),
    "cut remainder": Conv((1, 2, 8, 7), 3, window((3, 3), 2)),
    "rectangular": Conv((1, 2, 6, 7), 3, window((3, 1), (2, 1), (2, 0))),
    "groups": Conv((2, 4, 5, 4), 6, window((3, 2), pad=(1, 0)), 2),
    "depthwise": Conv((2, 3, 4, 4), 3, window((3, 3), pad=1), 3),
    "dilated": Conv((1, 2, 9, 8), 2, window((3, 2), (2, 1), (2, 1), (2, 3))),
    "kernel in padding": Conv((1, 2, 2, 1), 2, window((3, 5), 1, (1, 2))),
    "1-D": Conv((3, 2, 9), 4, window((4,), 2, 1)),
    "3-D": Conv((2, 2, 4, 3, 5), 2, window((2, 3, 3), (1, 2, 2), (0, 1, 1))),
    "deconvolution": Conv((2, 4, 3, 4), 2, window((3, 3), 2, 1), 1, True),
    "grouped deconvolution": Conv((1, 4, 3, 3), 6, window((4, 2), (2, 1), (1, 0)), 2, True),
    "dilated deconvolution": Conv((1, 2, 3, 3), 2, window((3, 3), 2, 1, 2), 1, True),
    "bilinear": Conv((1, 3, 3, 3), 3, window((4, 4), 2, 1), 3, True),
    "1-D deconvolution": Conv((2, 2, 5), 3, window((3,), 3), 1, True),
    "1x1 deconvolution": Conv((2, 4, 3, 2), 2, window((1, 1)), 2, True),
}


class Pool(NamedTuple):
    shape: tuple[int, ...]
    window: Window

    @property
    def out(self) -> tuple[int, ...]:
        """Caffe rounds up, and drops a last window that would start beyond the image."""
        win = self.window
        sizes = []
        for size, k, s, p in zip(self.shape[2:], win.kernel, win.stride, win.pad, strict=True):
            pooled = -(-(size + 2 * p - k) // s) + 1
            if p and (pooled - 1) * s >= size + p:
                pooled -= 1
            sizes.append(pooled)
        return (*self.shape[:2], *sizes)


POOLS = {
    "tiles": Pool((2, 3, 4, 6), window((2, 2), 2)),
    "overlapping": Pool((2, 2, 7, 7), window((3, 3), 2)),
    "overhanging": Pool((1, 2, 6, 8), window((3, 3), 2)),
    "padded": Pool((2, 2, 5, 5), window((3, 3), 1, 1)),
    "padded and overhanging": Pool((1, 3, 6, 7), window((3, 3), 2, 1)),
    "far overhang": Pool((1, 2, 5, 6), window((4, 2), (3, 5), (2, 1))),
    "rectangular": Pool((2, 1, 5, 9), window((2, 3), (1, 2), (0, 1))),
    "gaps": Pool((1, 2, 7, 7), window((2, 2), 3)),
    "whole image": Pool((2, 3, 3, 4), window((3, 4))),
    "1-D": Pool((2, 3, 7), window((3,), 2, 1)),
    "3-D": Pool((1, 2, 4, 3, 5), window((2, 2, 3), (2, 1, 2), (1, 0, 1))),
}


def onednn(threads: int) -> Backend:
    try:
        from pycaffe_fire.backend.onednn import OneDNNBackend

        return OneDNNBackend(threads)
    except BackendError as error:
        pytest.skip(str(error))


def blas(threads: int) -> Backend:
    pytest.importorskip("numba")
    from pycaffe_fire.backend.blas import BlasBackend

    return BlasBackend(threads)


def blob(backend: Backend, values: Array | Sequence[int]) -> Blob:
    """A blob holding `values`, or zeros of that shape."""
    made = backend.host_view(
        Blob(backend, values.shape if isinstance(values, np.ndarray) else values)
    )
    if isinstance(values, np.ndarray):
        made.data[...] = values
    return made


class Planner:
    """A backend whose ops get the blobs themselves, as from layers, where tests hold host views."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found):
            return found
        return lambda *given: found(*(_itself(value) for value in given))


def _itself(value: Any) -> Any:
    if isinstance(value, list):
        return [_itself(each) for each in value]
    return value._blob if isinstance(value, BlobView) else value


def distinct(shape: Sequence[int]) -> Array:
    """Values far enough apart, and from 0, that a small step changes no maximum and no sign."""
    count = int(np.prod(shape))
    return ((RNG.permutation(count) - count // 2 + 0.5) / 8).reshape(shape)
