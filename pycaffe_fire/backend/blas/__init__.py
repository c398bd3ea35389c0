"""The CPU backend where no oneDNN loads: NumPy's BLAS on matrices of pixels and channels, and
compiled kernels between the products."""  # fmt: skip

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from math import prod

import numpy as np

from ..blob import Blob
from ..compiled import use_threads
from ..cpu.backend import CpuBackend
from ..numpy.batch_norm import BatchNorm
from ..numpy.weighted_sum import WeightedSum
from ..plans import JoinPlan, NormPlan, Plan, PoolingPlan, WeightedPlan, Window
from ..tensor import Array, ChannelsLast, Tensor
from .batch_norm import RowsBatchNorm, VectorBatchNorm
from .convolution import Convolution, Depthwise, Patches, Pointwise
from .elementwise import Concat, ReLU, RowsWeightedSum, Sum
from .inner_product import InnerProduct
from .layouts import rows_of, turn, turned
from .pooling import AveragePooling, MaxPooling
from .products import single_threaded_products
from .winograd import Winograd


class BlasBackend(CpuBackend):
    """Images are channels last from the first convolution on; what is not here is NumPy's."""

    name = "blas"

    def __init__(self, threads: int = 1) -> None:
        super().__init__(threads)
        self._own = threading.local()

    @property
    def part_threads(self) -> int:
        """How many threads a kernel may use now: one inside a part of `share`."""
        return getattr(self._own, "threads", self.threads)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.threads - 1, "blas")

    def parts(self, count: int) -> list[tuple[int, int]]:
        """0 .. count cut into parts (first, stop), one for each thread."""
        parts = max(1, min(self.threads, count))
        return [(count * n // parts, count * (n + 1) // parts) for n in range(parts)]

    def share(self, count: int, run: Callable[[int, int], None]) -> None:
        """run(first, stop) for parts of 0 .. count, one on each thread, where kernels and BLAS then
        keep to one; a single part may use them all."""
        first, *others = self.parts(count)
        if not others and self.threads > 1:
            use_threads(self.threads)
            return run(*first)

        def part(bounds: tuple[int, int]) -> None:
            use_threads(1)
            self._own.threads = 1
            try:
                run(*bounds)
            finally:
                del self._own.threads

        with single_threaded_products:
            elsewhere = [self._pool.submit(part, bounds) for bounds in others]
            part(first)
            for other in elsewhere:
                other.result()
        return None

    def scratch(self, elements: int, purpose: str = "patches") -> Array:
        """Uninitialised flat memory of a thread for this purpose, of one op at a time."""
        memory: Array | None = getattr(self._own, purpose, None)
        if memory is None or memory.size < elements:
            memory = self.empty(elements)
            setattr(self._own, purpose, memory)
        return memory[:elements]

    def another(self, threads: int) -> BlasBackend:
        return BlasBackend(threads)

    def describe(self) -> str:
        return f"NumPy's BLAS and compiled kernels, {super().describe()[6:]}"

    def to_plain(self, tensor: Tensor, out: Array) -> None:
        turned(out)[...] = rows_of(tensor).reshape(tensor.shape[0], -1, tensor.shape[1])

    def from_plain(self, tensor: Tensor, source: Array) -> None:
        turn(source, rows_of(tensor))

    def convolution(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window, groups: int,
        relu: float | None = None, transposed: bool = False,
    ) -> WeightedPlan:  # fmt: skip
        if transposed or len(window.kernel) != 2 or len(x.shape) != 4 or 0 in (*x.shape, *y.shape):
            return super().convolution(x, w, b, y, window, groups, relu, transposed)
        kind: type[Convolution] = Patches
        if prod(window.kernel) == 1 and {*window.stride} == {1} and not any(window.pad):
            kind = Pointwise if groups == 1 else Patches
        elif not self._direct and Winograd.suits(x, w, y, window, groups):
            kind = Winograd
        if groups == x.shape[1] == y.shape[1]:
            kind = Depthwise
        return kind(self, x, w, b, y, window, groups, relu)

    def inner_product(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int, transpose: bool,
        relu: float | None = None,
    ) -> WeightedPlan:  # fmt: skip
        return InnerProduct(self, x, w, b, y, axis, transpose, relu)

    def pooling(
        self, x: Blob, y: Blob, method: str, window: Window, mask: bool = False
    ) -> PoolingPlan:
        if not _is_last(x) or mask or len(window.kernel) != 2:
            return super().pooling(x, y, method, window, mask)
        if method != "MAX":
            return AveragePooling(x, y, window, method == "AVE_INSIDE")
        if prod(window.kernel) > np.iinfo(np.uint8).max:
            return super().pooling(x, y, method, window, mask)
        return MaxPooling(self, x, y, window)

    def relu(self, x: Blob, y: Blob, slope: float) -> Plan:
        if slope < 0 or 0 in x.shape:
            return super().relu(x, y, slope)
        return ReLU(self, x, y, slope)

    def batch_norm(
        self, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None, eps: float,
        global_stats: bool, relu: bool,
    ) -> NormPlan:  # fmt: skip
        kind: type[BatchNorm] | type[VectorBatchNorm] = BatchNorm
        if _is_last(x):
            kind = VectorBatchNorm if VectorBatchNorm.suits(x) else RowsBatchNorm
        return kind(self, x, y, scale, shift, eps, global_stats, relu)

    def weighted_sum(
        self, xs: Sequence[Blob], y: Blob, coefficients: Sequence[float], relu: float | None
    ) -> JoinPlan:
        kind = RowsWeightedSum if all(map(_is_last, xs)) else WeightedSum
        return kind(self, xs, y, coefficients, relu)

    def concat(self, xs: Sequence[Blob], y: Blob, axis: int) -> JoinPlan:
        if axis != 1 or not all(map(_is_last, xs)):
            return super().concat(xs, y, axis)
        return Concat(self, xs, y)

    def add(self, parts: Sequence[Tensor], total: Tensor) -> Callable[[], None]:
        return Sum(self, parts, total)


def _is_last(blob: Blob) -> bool:
    return isinstance(blob.value.layout, ChannelsLast) and 0 not in blob.shape
