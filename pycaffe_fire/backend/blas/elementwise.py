"""Ops that take elements one by one, channels last: ReLU, joins and sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..cpu.grid import run_on
from ..cpu.rows import CopyColumns, ReLUBackward
from ..cpu.rows import WeightedSum as SumKernel
from ..numpy.add import Sum as PlainSum
from ..numpy.weighted_sum import WeightedSum
from ..plans import JoinPlan, Plan
from ..tensor import NATIVE, Array, ChannelsLast, Tensor
from .layouts import read, writing

if TYPE_CHECKING:
    from . import BlasBackend


class ReLU(Plan):
    """Right in place too: for slope >= 0 the output has the input's sign."""

    def __init__(self, backend: BlasBackend, x: Blob, y: Blob, slope: float) -> None:
        self.x, self.y = x, y
        y.lay_out(x.value.layout)
        fields = {"threads": backend.threads, "count": x.value.layout.elements, "slope": slope}
        self._forward, self._backward = ReLUBackward(**fields), ReLUBackward(**fields)

    def forward(self) -> None:
        run_on(self._forward, {"y": self.x.value, "dy": self.x.value}, {"dx": self.y.value})

    def backward(self) -> None:
        read = {"y": self.y.value, "dy": self.y.gradient}
        run_on(self._backward, read, {"dx": self.x.gradient})


class Concat(JoinPlan):
    """Along channels: columns of y are copies of the inputs."""

    def __init__(self, backend: BlasBackend, xs: Sequence[Blob], y: Blob) -> None:
        self.xs, self.y = list(xs), y
        y.lay_out(ChannelsLast(y.shape))
        rows, columns = y.count // y.shape[1], y.shape[1]
        self._forward, self._backward, start = [], [], 0
        for x in self.xs:
            fields = {"threads": backend.threads, "rows": rows, "count": x.shape[1]}
            self._forward.append(
                CopyColumns(
                    **fields, source_columns=x.shape[1], target_columns=columns, to=start
                )
            )  # fmt: skip
            self._backward.append(
                CopyColumns(
                    **fields, source_columns=columns, target_columns=x.shape[1], start=start
                )
            )  # fmt: skip
            start += x.shape[1]

    def forward(self, activate: bool = True) -> None:
        with writing(self.y.value) as y:
            for x, kernel in zip(self.xs, self._forward, strict=True):
                kernel.source, kernel.target = read(x.value), y
                kernel.run()

    def backward(self, wanted: Sequence[bool]) -> None:
        dy = read(self.y.gradient)
        for x, kernel, is_wanted in zip(self.xs, self._backward, wanted, strict=True):
            if is_wanted:
                with writing(x.gradient) as dx:
                    kernel.source, kernel.target = dy, dx
                    kernel.run()


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
    """Elements are alike wherever they are stored."""

    def __init__(
        self, backend: BlasBackend, xs: Sequence[Blob], y: Blob, coefficients: Sequence[float],
        relu: float | None,
    ) -> None:  # fmt: skip
        super().__init__(backend, xs, y, coefficients, relu)
        factors = np.array(coefficients, np.float32)
        fields = {"threads": backend.threads, "count": y.count}
        self._sum = SumKernel(**fields, coefficients=factors, inputs=len(xs))
        self._scales = [
            SumKernel(**fields, coefficients=factors[i : i + 1], inputs=1, slope=1)
            for i in range(len(xs))
        ]

    def forward(self, activate: bool = True) -> None:
        kernel = self._sum
        kernel.xs = [read(x.value) for x in self.xs]
        kernel.slope = 1 if self.relu is None or not activate else self.relu
        with writing(self.y.value) as rows:
            kernel.y = rows
            kernel.run()

    def backward(self, wanted: Sequence[bool]) -> None:
        dy = read(self.y.gradient)
        for i in reversed(range(len(self.xs))):  # in place, the first gradient is dy itself
            if wanted[i]:
                kernel = self._scales[i]
                with writing(self.xs[i].gradient) as dx:
                    kernel.xs, kernel.y = [dy], dx
                    kernel.run()


class Sum:
    """total = sum of parts; total may be one of them and then goes first."""

    def __init__(self, backend: BlasBackend, parts: Sequence[Tensor], total: Tensor) -> None:
        self.total, self.parts = total, sorted(parts, key=lambda part: part is not total)
        self._plain = PlainSum(backend, parts, total)
        self._kernel = SumKernel(
            threads=backend.threads, coefficients=np.ones(len(parts), np.float32),
            inputs=len(parts), slope=1,
        )  # fmt: skip

    def __call__(self) -> None:
        total, kernel = self.total, self._kernel
        if any(part.layout != total.layout for part in self.parts) or total.layout.is_plain:
            return self._plain()
        for part in self.parts:
            part.sync()
        total.allocate()
        kernel.xs, kernel.y = [part.buffer for part in self.parts], total.buffer
        kernel.count = total.layout.elements
        kernel.run()
        total.fresh = NATIVE
        return None
