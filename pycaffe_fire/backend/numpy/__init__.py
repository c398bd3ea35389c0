"""The fallback backend: every op on plain arrays, written against `xp` alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import random
from ..base import Backend
from ..blob import Blob
from ..plans import (
    ChannelPlan,
    Draw,
    Formula,
    JoinPlan,
    MaskedPlan,
    NormPlan,
    Plan,
    PoolingPlan,
    Segment,
    SegmentDots,
    UpdateStep,
    WeightedPlan,
    Window,
)
from ..tensor import Array, Tensor
from .activation import ReLU
from .add import Sum
from .batch_norm import BatchNorm
from .channelwise import PReLU, ScaleShift
from .concat import Concat
from .convolution import Convolution
from .dropout import Dropout
from .inner_product import InnerProduct
from .lrn import LRN
from .pooling import Pooling
from .softmax import Softmax
from .update import Dots, Update
from .weighted_sum import WeightedSum


class NumPyBackend(Backend):
    """Slow and sure; also the float64 reference for gradient checks."""

    name = "numpy"

    def __init__(self, threads: int = 1, dtype: Any = np.float32) -> None:
        super().__init__(threads, dtype)
        self._scratch: Array | None = None

    def another(self, threads: int) -> NumPyBackend:
        return type(self)(threads, self.dtype)

    def scratch(self, elements: int) -> Array:
        """Uninitialised flat memory for one op at a time; all plans share it."""
        if self._scratch is None or self._scratch.size < elements:
            self._scratch = self.empty(elements)
        return self._scratch[:elements]

    def uniform(self, draw: Draw, samples: int, n: int) -> Array:
        """(samples, n) numbers in [0, 1) at this place of the global random sequence."""
        out = np.empty((samples, n), np.float32)
        if out.size:
            random.uniform_batch(draw.key, draw.step, draw.first_sample, samples, n, out)
        return self.xp.asarray(out)

    # Ops.

    def convolution(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window, groups: int,
        relu: float | None = None, transposed: bool = False,
    ) -> WeightedPlan:  # fmt: skip
        return Convolution(self, x, w, b, y, window, groups, relu, transposed)

    def inner_product(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int, transpose: bool,
        relu: float | None = None,
    ) -> WeightedPlan:  # fmt: skip
        return InnerProduct(self, x, w, b, y, axis, transpose, relu)

    def pooling(
        self, x: Blob, y: Blob, method: str, window: Window, mask: bool = False
    ) -> PoolingPlan:
        return Pooling(self, x, y, method, window)

    def lrn(
        self, x: Blob, y: Blob, size: int, alpha: float, beta: float, k: float, across: bool
    ) -> Plan:
        return LRN(self, x, y, size, alpha, beta, k, across)

    def relu(self, x: Blob, y: Blob, slope: float) -> Plan:
        return ReLU(self, x, y, slope)

    def prelu(self, x: Blob, y: Blob, slope: Blob) -> ChannelPlan:
        return PReLU(self, x, y, slope)

    def scale_shift(self, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None) -> ChannelPlan:
        return ScaleShift(self, x, y, scale, shift)

    def dropout(self, x: Blob, y: Blob, ratio: float, scale: float) -> MaskedPlan:
        return Dropout(self, x, y, ratio, scale)

    def batch_norm(
        self, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None, eps: float,
        global_stats: bool, relu: bool,
    ) -> NormPlan:  # fmt: skip
        return BatchNorm(self, x, y, scale, shift, eps, global_stats, relu)

    def weighted_sum(
        self, xs: Sequence[Blob], y: Blob, coefficients: Sequence[float], relu: float | None
    ) -> JoinPlan:
        return WeightedSum(self, xs, y, coefficients, relu)

    def concat(self, xs: Sequence[Blob], y: Blob, axis: int) -> JoinPlan:
        return Concat(self, xs, y, axis)

    def softmax(self, x: Array, axis: int) -> Array:
        exps = self.xp.exp(x - x.max(axis=axis, keepdims=True))
        return exps / exps.sum(axis=axis, keepdims=True)

    def softmax_plan(self, x: Blob, y: Blob, axis: int) -> Plan:
        return Softmax(self, x, y, axis)

    def update(self, formula: Formula, segments: Sequence[Segment]) -> UpdateStep:
        return Update(self.xp, formula, segments)

    def dots(self, segments: Sequence[Segment]) -> SegmentDots:
        return Dots(self.xp, segments)

    def sum_of_squares(self, values: Array) -> float:
        return float((values.astype(np.float64) ** 2).sum())

    def accumulate(self, total: Array, part: Array) -> None:
        total += part

    def add(self, parts: Sequence[Tensor], total: Tensor) -> Callable[[], None]:
        return Sum(self, parts, total)
