"""The weighted sum of several inputs: one pass forward, with the ReLU after it fused in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..blob import Blob
from ..plans import JoinPlan
from .layouts import Descriptor, Program

if TYPE_CHECKING:
    from . import OneDNNBackend


class WeightedSum(JoinPlan):
    """The output lies as the first input does that is not plain."""

    def __init__(
        self, backend: OneDNNBackend, xs: Sequence[Blob], y: Blob, coefficients: Sequence[float],
        relu: float | None,
    ) -> None:  # fmt: skip
        self.backend, self.xs, self.y = backend, list(xs), y
        self.coefficients, self.relu = list(coefficients), relu
        layouts = sorted((x.value.layout for x in xs), key=lambda layout: layout.is_plain)
        y.lay_out(layouts[0])
        layout = y.value.layout
        assert isinstance(layout, Descriptor)
        self._layout = layout
        self._forward: dict[bool, Program] = {}
        self._backward: dict[int, Program] = {}

    def forward(self, activate: bool = True) -> None:
        fused = activate and self.relu is not None
        if fused not in self._forward:
            self._forward[fused] = self._program(self.relu if fused else None)
        self._forward[fused].run()

    def _program(self, relu: float | None) -> Program:
        program = Program(self.backend)
        parts = [program.source(x.value, self._layout) for x in self.xs]
        program.sum(parts, (self.y.value, self._layout), self.coefficients, relu)
        return program

    def backward(self, wanted: Sequence[bool]) -> None:
        for i in range(len(self.xs)):
            if wanted[i]:
                if i not in self._backward:
                    self._backward[i] = self._backward_program(i)
                self._backward[i].run()

    def _backward_program(self, index: int) -> Program:
        program = Program(self.backend)
        dx: Any = self.xs[index].gradient
        dy = (self.y.gradient, self._layout)
        if self.coefficients[index] == 1:
            program.reorder(self.y.gradient, dx)
        else:
            assert isinstance(dx.layout, Descriptor)
            program.sum([dy], (dx, dx.layout), [self.coefficients[index]])
        return program
