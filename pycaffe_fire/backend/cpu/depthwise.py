"""Kernels of a depthwise convolution between two batch normalisations: native/depthwise.c."""

from __future__ import annotations

from .batch_norm import NormKernel
from .library import Floats

TAPS = 9


class WindowKernel(NormKernel):
    """The fields that both kernels share."""

    x: Floats
    w: Floats
    samples: int
    height: int
    width: int
    stride: int

    def need_tensors(self, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        """Check arrays of the sizes before and after the convolution, and those of both norms."""
        if self.stride not in (1, 2):
            self.refuse(f"steps of {self.stride}")
        channels = self.blocks * self.block
        rows, columns = ((size - 1) // self.stride + 1 for size in (self.height, self.width))
        self.need_channels(2, self.samples)
        self.need(w=channels * TAPS)
        self.need(**dict.fromkeys(before, self.samples * channels * self.height * self.width))
        self.need(**dict.fromkeys(after, self.samples * channels * rows * columns))


class WindowForward(WindowKernel):
    name = "window_forward"
    z: Floats
    y: Floats

    def check(self) -> None:
        self.need_tensors(("x",), ("z", "y"))


class WindowBackward(WindowKernel):
    name = "window_backward"
    z: Floats
    dy: Floats
    dx: Floats
    dw: Floats
    partial_dw: Floats
    keep: int

    def check(self) -> None:
        self.need_tensors(("x", "dx"), ("z", "dy"))
        taps = self.blocks * self.block * TAPS
        self.need(dw=taps, partial_dw=self.samples * taps)
