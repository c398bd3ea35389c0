"""Ops of the native kernels on the CPU, beside oneDNN or beside NumPy's BLAS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..blob import Blob
from ..compiled import expect
from ..kernel_workers import workers
from ..numpy import NumPyBackend
from ..plans import ChannelPlan, Formula, MaskedPlan, Plan, Segment, SegmentDots, UpdateStep
from ..tensor import Array
from . import library, update
from .channelwise import Channelwise, PReLU, ScaleShift
from .dropout import Dropout
from .lrn import LRN
from .softmax import Softmax, softmax

CompiledKernel = Callable[..., None]  # of kernels/


class CpuBackend(NumPyBackend):
    """Ops on any layout of the family N [C/b] S [b]; NumPy's where the library does not load."""

    def __init__(self, threads: int = 1) -> None:
        super().__init__(threads)
        self._direct = False  # while plans are made whose sums are to be taken as they stand
        self._trains = False
        self._of_backward: dict[CompiledKernel, None] = {}  # in the order of their plans
        workers.be_ready()

    def expect(
        self, forward: Sequence[CompiledKernel], backward: Sequence[CompiledKernel] = ()
    ) -> None:
        """A plan will call these kernels, if it runs."""
        expect(*forward)
        self._of_backward.update(dict.fromkeys(backward))
        if self._trains:  # some plans are made by the first pass
            expect(*backward)

    def expect_backward(self) -> None:
        self._trains = True
        expect(*self._of_backward)

    @contextmanager
    def engine(self, name: str) -> Iterator[None]:
        """Caffe's own engine sums products as they stand, without Winograd's method."""
        self._direct = name == "CAFFE"
        try:
            yield
        finally:
            self._direct = False

    def lrn(
        self, x: Blob, y: Blob, size: int, alpha: float, beta: float, k: float, across: bool
    ) -> Plan:
        if not LRN.supports(x):
            return super().lrn(x, y, size, alpha, beta, k, across)
        return LRN(self, x, y, size, alpha, beta, k, across)

    def prelu(self, x: Blob, y: Blob, slope: Blob) -> ChannelPlan:
        if not Channelwise.supports(x):
            return super().prelu(x, y, slope)
        return PReLU(self, x, y, slope)

    def scale_shift(self, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None) -> ChannelPlan:
        if not Channelwise.supports(x):
            return super().scale_shift(x, y, scale, shift)
        return ScaleShift(self, x, y, scale, shift)

    def dropout(self, x: Blob, y: Blob, ratio: float, scale: float) -> MaskedPlan:
        if not Dropout.supports(x):
            return super().dropout(x, y, ratio, scale)
        return Dropout(self, x, y, ratio, scale)

    def softmax(self, x: Array, axis: int) -> Array:
        if not library.available() or not x.size:
            return super().softmax(x, axis)
        return softmax(x, axis, self.threads)

    def softmax_plan(self, x: Blob, y: Blob, axis: int) -> Plan:
        if not Softmax.supports(x, axis):
            return super().softmax_plan(x, y, axis)
        return Softmax(self, x, y, axis)

    def update(self, formula: Formula, segments: Sequence[Segment]) -> UpdateStep:
        if not library.available() or formula.kernel not in update.RULES:
            return super().update(formula, segments)
        return update.Update(self.threads, formula.kernel, segments)

    def dots(self, segments: Sequence[Segment]) -> SegmentDots:
        if not library.available():
            return super().dots(segments)
        return update.Dots(self.threads, segments)

    def sum_of_squares(self, values: Array) -> float:
        if not library.available():
            return super().sum_of_squares(values)
        return update.sum_of_squares(values, self.threads)

    def all_finite(self, values: Array) -> bool:
        if not library.available():
            return super().all_finite(values)
        return update.all_finite(values, self.threads)

    def accumulate(self, total: Array, part: Array) -> None:
        if not library.available():
            return super().accumulate(total, part)
        update.add_into(total, part, self.threads)
