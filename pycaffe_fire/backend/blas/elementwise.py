"""Ops that take elements or channels one by one, channels last: ReLU, LRN, joins and sums."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..cpu.update import add_into
from ..kernels import rows as kernels
from ..numpy.add import Sum as PlainSum
from ..numpy.weighted_sum import WeightedSum
from ..plans import JoinPlan, Plan
from ..tensor import NATIVE, Array, ChannelsLast, Tensor
from .layouts import read, writing

if TYPE_CHECKING:
    from . import BlasBackend

BLOCK = 1 << 16  # elements of a sum that stay in a cache while its parts are added


def _flat(tensor: Tensor, written: bool = False) -> Array:
    """A tensor's own storage."""
    if written:
        tensor.allocate()
    else:
        tensor.sync()
    assert tensor.buffer is not None
    return tensor.buffer[: tensor.layout.elements]


class ReLU(Plan):
    """Right in place too: for slope >= 0 the output has the input's sign."""

    def __init__(self, backend: BlasBackend, x: Blob, y: Blob, slope: float) -> None:
        self.backend, self.x, self.y, self._slope = backend, x, y, np.float32(slope)
        y.lay_out(x.value.layout)
        backend.expect([kernels.relu_backward])

    def forward(self) -> None:
        x, y = _flat(self.x.value), _flat(self.y.value, written=True)
        self._run(x, x, y)
        self.y.value.fresh = NATIVE

    def backward(self) -> None:
        y, dy = _flat(self.y.value), _flat(self.y.gradient)
        dx = _flat(self.x.gradient, written=True)
        self._run(y, dy, dx)
        self.x.gradient.fresh = NATIVE

    def _run(self, sign: Array, source: Array, target: Array) -> None:
        def run(first: int, stop: int) -> None:
            part = slice(first, stop)
            kernels.relu_backward(sign[part], source[part], target[part], self._slope)

        self.backend.share(sign.size, run)


class LRN(Plan):
    """Across channels: y = x * (k + alpha/size * sum of squares of the region)^-beta."""

    def __init__(
        self, backend: BlasBackend, x: Blob, y: Blob, size: int, alpha: float, beta: float, k: float
    ) -> None:
        self.backend, self.x, self.y = backend, x, y
        self._half = (size - 1) // 2
        self._numbers = np.float32(alpha / size), np.float32(-beta), np.float32(k)
        y.lay_out(ChannelsLast(y.shape))
        backend.expect([kernels.lrn_forward], [kernels.lrn_backward])

    def forward(self) -> None:
        x = read(self.x.value)
        with writing(self.y.value) as y:

            def run(first: int, stop: int) -> None:
                part = slice(first, stop)
                kernels.lrn_forward(x[part], y[part], self._half, self._numbers)

            self.backend.share(len(x), run)

    def backward(self) -> None:
        x, dy = read(self.x.value), read(self.y.gradient)
        with writing(self.x.gradient) as dx:

            def run(first: int, stop: int) -> None:
                part = slice(first, stop)
                kernels.lrn_backward(x[part], dy[part], dx[part], self._half, self._numbers)

            self.backend.share(len(x), run)


class Concat(JoinPlan):
    """Along channels: columns of y are copies of the inputs."""

    def __init__(self, backend: BlasBackend, xs: Sequence[Blob], y: Blob) -> None:
        self.backend, self.xs, self.y = backend, list(xs), y
        y.lay_out(ChannelsLast(y.shape))

    def forward(self, activate: bool = True) -> None:
        xs = [read(x.value) for x in self.xs]
        with writing(self.y.value) as y:

            def run(first: int, stop: int) -> None:
                start = 0
                for x in xs:
                    kernels.copy_columns(x[first:stop], 0, y[first:stop], start, x.shape[1])
                    start += x.shape[1]

            self.backend.share(len(y), run)

    def backward(self, wanted: Sequence[bool]) -> None:
        dy, start = read(self.y.gradient), 0
        with ExitStack() as stack:
            targets = []
            for x, is_wanted in zip(self.xs, wanted, strict=True):
                if is_wanted:
                    targets.append((start, stack.enter_context(writing(x.gradient))))
                start += x.shape[1]

            def run(first: int, stop: int) -> None:
                for column, dx in targets:
                    count = dx.shape[1]
                    kernels.copy_columns(dy[first:stop], column, dx[first:stop], 0, count)

            self.backend.share(len(dy), run)


class Rows:
    """A plan of NumPy's, on rows in place of plain arrays."""

    y: Blob

    def _lay_out(self, backend: object) -> None:
        self.y.lay_out(ChannelsLast(self.y.shape))

    def _values(self, tensor: Tensor) -> Array:
        return read(tensor)[:, :, None]

    def _store(self, tensor: Tensor, values: Array) -> None:
        with writing(tensor) as rows:
            rows[...] = values[:, :, 0]


class RowsWeightedSum(Rows, WeightedSum):
    """Elements are alike wherever they lie: threads take runs of them."""

    def __init__(
        self, backend: BlasBackend, xs: Sequence[Blob], y: Blob, coefficients: Sequence[float],
        relu: float | None,
    ) -> None:  # fmt: skip
        super().__init__(backend, xs, y, coefficients, relu)
        self.backend = backend

    def forward(self, activate: bool = True) -> None:
        xs = [read(x.value).reshape(-1) for x in self.xs]
        slope = np.float32(1 if self.relu is None or not activate else self.relu)
        with writing(self.y.value) as rows:
            y = rows.reshape(-1)

            def run(first: int, stop: int) -> None:
                for start in range(first, stop, BLOCK):
                    part = slice(start, min(start + BLOCK, stop))
                    total = self.backend.scratch(part.stop - start)
                    np.multiply(xs[0][part], np.float32(self.coefficients[0]), out=total)
                    for x, coefficient in zip(xs[1:], self.coefficients[1:], strict=True):
                        add_into(total, _times(x[part], coefficient))
                    kernels.relu_backward(total, total, y[part], slope)

            self.backend.share(y.size, run)

    def backward(self, wanted: Sequence[bool]) -> None:
        dy = read(self.y.gradient).reshape(-1)
        for i in reversed(range(len(self.xs))):  # in place, the first gradient is dy itself
            if wanted[i]:
                with writing(self.xs[i].gradient) as dx:
                    self._scale(dy, self.coefficients[i], dx.reshape(-1))

    def _scale(self, dy: Array, coefficient: float, dx: Array) -> None:
        def run(first: int, stop: int) -> None:
            np.multiply(dy[first:stop], np.float32(coefficient), out=dx[first:stop])

        self.backend.share(dx.size, run)


def _times(values: Array, factor: float) -> Array:
    return values if factor == 1 else values * np.float32(factor)


class Sum:
    """total = sum of parts; total may be one of them and then goes first."""

    def __init__(self, backend: BlasBackend, parts: Sequence[Tensor], total: Tensor) -> None:
        self.backend, self.total = backend, total
        self.parts = sorted(parts, key=lambda part: part is not total)
        self._plain = PlainSum(backend, parts, total)

    def __call__(self) -> None:
        total = self.total
        if any(part.layout != total.layout for part in self.parts) or total.layout.is_plain:
            return self._plain()
        first, *others = self.parts
        source = _flat(first)
        out = source if first is total else _flat(total, written=True)
        self._add(source, [*map(_flat, others)], out)
        total.fresh = NATIVE

    def _add(self, source: Array, others: list[Array], out: Array) -> None:
        def run(first: int, stop: int) -> None:
            for start in range(first, stop, BLOCK):
                part = slice(start, min(start + BLOCK, stop))
                if out is not source:
                    out[part] = source[part]
                for other in others:
                    add_into(out[part], other[part])

        self.backend.share(out.size, run)
