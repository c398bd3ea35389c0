"""Local response normalisation: native/lrn.c.

oneDNN's is fast for one exponent and some sizes on some machines, keeps a workspace of twice the
tensor and falls to a reference loop elsewhere; ours serves every case alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import Plan
from . import library
from .grid import run_on
from .library import Floats, Kernel

if TYPE_CHECKING:
    from .backend import CpuBackend


class Lrn(Kernel):
    """Across channels, or within each; forward where dy is None."""

    name = "lrn"
    samples: int
    outer: int
    height: int
    width: int
    inner: int
    half: int
    across: int
    x: Floats
    dy: Floats | None
    out: Floats
    alpha: float
    beta: float
    k: float

    def check(self) -> None:
        elements = self.samples * self.outer * self.height * self.width * self.inner
        self.need(x=elements, dy=elements, out=elements)


class LRN(Plan):
    """y = x * (k + alpha/n * sum of squares of the region)^-beta, n = size or size^2."""

    @staticmethod
    def supports(x: Blob) -> bool:
        return library.available() and x.value.layout.grid is not None and 0 not in x.shape

    def __init__(
        self, backend: CpuBackend, x: Blob, y: Blob, size: int, alpha: float, beta: float,
        k: float, across: bool,
    ) -> None:  # fmt: skip
        self.x, self.y = x, y
        y.lay_out(x.value.layout)
        grid = x.value.layout.grid
        assert grid is not None
        samples, outer, _, inner = grid
        height, width = x.shape[2:]
        self._forward, self._backward = (
            Lrn(
                threads=backend.threads, samples=samples, outer=outer, height=height, width=width,
                inner=inner, half=(size - 1) // 2, across=across, beta=beta, k=k,
                alpha=alpha / (size if across else size * size),
            )
            for _ in range(2)
        )  # fmt: skip

    def forward(self) -> None:
        run_on(self._forward, {"x": self.x.value}, {"out": self.y.value})

    def backward(self) -> None:
        read = {"x": self.x.value, "dy": self.y.gradient}
        run_on(self._backward, read, {"out": self.x.gradient})
