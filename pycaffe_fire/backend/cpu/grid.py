"""Kernels on any layout N [C/b] S [b], and how plans run them on tensors."""

from __future__ import annotations

from collections.abc import Mapping

from ..tensor import NATIVE, Tensor
from .library import Kernel

Grid = tuple[int, int, int, int]  # samples, outer channels, pixels, inner channels


class GridKernel(Kernel):
    """Arrays are (samples, outer, pixels, inner): blocks of `inner` channels side by side."""

    samples: int
    outer: int
    pixels: int
    inner: int

    @property
    def elements(self) -> int:
        return self.samples * self.outer * self.pixels * self.inner

    @property
    def table(self) -> int:
        """The elements of a table of channels, with those of the padding."""
        return self.outer * self.inner

    @staticmethod
    def sizes(grid: Grid) -> dict[str, int]:
        """Return the fields that describe a grid."""
        return dict(zip(("samples", "outer", "pixels", "inner"), grid, strict=True))


def run_on(kernel: Kernel, read: Mapping[str, Tensor], written: Mapping[str, Tensor]) -> None:
    """Run a kernel whose fields of these names are the memory of tensors."""
    for name, tensor in read.items():
        tensor.sync()
        setattr(kernel, name, tensor.buffer)
    for name, tensor in written.items():
        tensor.allocate()
        setattr(kernel, name, tensor.buffer)
    kernel.run()
    for tensor in written.values():
        tensor.fresh = NATIVE
