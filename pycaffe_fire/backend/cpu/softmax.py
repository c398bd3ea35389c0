"""Softmax and its gradient, for which oneDNN has no fast primitive: native/softmax.c."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ...errors import BackendError
from ..blob import Blob
from ..plans import Plan
from ..tensor import Array
from . import library
from .grid import Grid, GridKernel, run_on
from .library import Floats

if TYPE_CHECKING:
    from .backend import CpuBackend


class _OverChannels(GridKernel):
    """The first `channels` of the outer * inner channels count; results are 0 for the others."""

    channels: int

    def check(self) -> None:
        are_apart = self.inner == 1 and self.pixels > 1  # then all of them count
        if not are_apart * self.outer <= self.channels <= self.outer * self.inner:
            raise BackendError(
                f"kernel {self.name}: {self.channels} channels in {self.outer} blocks of "
                f"{self.inner}"
            )
        own = self.fields[len(_OverChannels.fields) :]
        self.need(**dict.fromkeys(own, self.elements))


class SoftmaxForward(_OverChannels):
    name = "softmax"
    x: Floats
    y: Floats


class SoftmaxBackward(_OverChannels):
    name = "softmax_backward"
    y: Floats
    dy: Floats
    dx: Floats


def _plain_grid(shape: tuple[int, ...], axis: int) -> Grid:
    """See a plain array as a grid whose channels are one of its axes."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]), 1


def softmax(x: Array, axis: int, threads: int) -> Array:
    """Return a new array: the softmax of a plain one along an axis."""
    source = np.ascontiguousarray(x, np.float32)
    y = np.empty_like(source)
    sizes, channels = SoftmaxForward.sizes(_plain_grid(x.shape, axis)), x.shape[axis]
    SoftmaxForward(threads=threads, **sizes, channels=channels, x=source, y=y).run()
    return y


class Softmax(Plan):
    """On blocked layouts over channels, on plain ones over any axis; backward needs y alone."""

    @staticmethod
    def supports(x: Blob, axis: int) -> bool:
        layout = x.value.layout
        if not library.available() or 0 in x.shape or not x.shape:
            return False
        return layout.is_plain or (layout.grid is not None and axis == 1)

    def __init__(self, backend: CpuBackend, x: Blob, y: Blob, axis: int) -> None:
        self.x, self.y = x, y
        layout = x.value.layout
        y.lay_out(layout)
        grid = _plain_grid(x.shape, axis) if layout.is_plain else layout.grid
        assert grid is not None
        sizes = {"threads": backend.threads, **GridKernel.sizes(grid), "channels": x.shape[axis]}
        self._forward, self._backward = SoftmaxForward(**sizes), SoftmaxBackward(**sizes)

    def forward(self) -> None:
        run_on(self._forward, {"x": self.x.value}, {"y": self.y.value})

    def backward(self) -> None:
        read = {"y": self.y.value, "dy": self.y.gradient}
        run_on(self._backward, read, {"dx": self.x.gradient})
