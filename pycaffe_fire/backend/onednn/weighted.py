"""What ops with parameters share: programs made when first needed, gradients written or added."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..blob import Blob
from ..plans import WeightedPlan
from ..tensor import ZERO
from .layouts import Descriptor

if TYPE_CHECKING:
    from . import OneDNNBackend


class Runnable(Protocol):
    """A program, or what stands for one."""

    @property
    def run(self) -> Callable[[], None]: ...


@runtime_checkable
class Joinable(Protocol):
    """A plan whose forward pass is a program."""

    def program(self) -> Runnable: ...


class Weighted(WeightedPlan):
    """A subclass describes its primitives; `kind` is their name in the library."""

    joins = True
    kind: str
    _hint: int  # the forward primitive's descriptor, which the backward ones ask for

    def __init__(
        self, backend: OneDNNBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, relu: float | None
    ) -> None:
        self.backend, self.library = backend, backend.library
        self.x, self.w, self.b, self.y, self.relu = x, w, b, y, relu
        self._forward: dict[bool, Runnable] = {}
        self._parameters: dict[tuple[bool, ...], Runnable] = {}
        self._data: Runnable | None = None

    @abstractmethod
    def _forward_program(self, relu: float | None) -> Runnable: ...

    @abstractmethod
    def _data_program(self) -> Runnable: ...

    @abstractmethod
    def _weights_program(self, weights: bool, bias: bool, add_w: bool, add_b: bool) -> Runnable: ...

    def forward(self, activate: bool = True) -> None:
        self.program(activate).run()

    def program(self, activate: bool = True) -> Runnable:
        """What forward runs."""
        fused = activate and self.relu is not None
        if fused not in self._forward:
            self._forward[fused] = self._forward_program(self.relu if fused else None)
        return self._forward[fused]

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        if weights or bias:
            add_w = weights and self.w.gradient.fresh != ZERO
            add_b = bias and self.b is not None and self.b.gradient.fresh != ZERO
            key = (weights, bias, add_w, add_b)
            if key not in self._parameters:
                self._parameters[key] = self._weights_program(*key)
            self._parameters[key].run()
        if data:
            if self._data is None:
                self._data = self._data_program()
            self._data.run()

    def __del__(self) -> None:
        if hasattr(self, "_hint"):
            self.library.destroy("primitive_desc", self._hint)

    def _create(self, what: str, *arguments: Any) -> int:
        """A primitive descriptor of this op."""
        self.backend.use_threads()
        handles = [a.handle if isinstance(a, Descriptor) else a for a in arguments]
        name = f"{self.kind}_{what}_primitive_desc_create"
        return self.library.new(name, self.library.engine, *handles)
