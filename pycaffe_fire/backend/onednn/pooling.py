"""MAX and AVE pooling with Caffe's clipped windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...blob import Blob
from ..base import PoolingPlan, Window
from ..windows import divisors
from .library import (
    BINARY_MULTIPLY,
    FORWARD_TRAINING,
    POOL_AVE_EXCLUDE,
    POOL_AVE_INCLUDE,
    POOL_MAX,
    dims,
)
from .memory import Descriptor, OneDNNTensor, Program

if TYPE_CHECKING:
    from . import OneDNNBackend


class Pooling(PoolingPlan):
    """AVE divides by the window clipped at the padded border, which oneDNN cannot say in general.

    Without padding that is its exclude-padding mode, with windows inside the padded image its
    include-padding mode; else the latter is corrected by a map of (kernel area / divisor).
    """

    def __init__(
        self, backend: OneDNNBackend, x: Blob, y: Blob, method: str, window: Window
    ) -> None:
        self.backend, self.library, self.x, self.y = backend, backend.library, x, y
        self.window = window
        area = int(np.prod(window.kernel))
        counts = divisors(x.shape[2:], y.shape[2:], window)
        self._correction: OneDNNTensor | None = None
        if method == "MAX":
            self._algorithm = POOL_MAX
        elif not any(window.pad):
            self._algorithm = POOL_AVE_EXCLUDE
        else:
            self._algorithm = POOL_AVE_INCLUDE
            if (counts != area).any():
                self._correction = self._map(area / counts)
        self._plan_forward()
        self._backward: Program | None = None

    def forward(self) -> None:
        self._forward.run()

    def backward(self) -> None:
        if self._backward is None:
            self._backward = self._backward_program()
        self._backward.run()

    def _map(self, factors: np.ndarray[Any, Any]) -> OneDNNTensor:
        tensor = self.backend.tensor((1, 1, *factors.shape))
        tensor.array[...] = factors
        return tensor

    def _geometry(self) -> list[Any]:
        win, n = self.window, len(self.window.kernel)
        right = [
            (self.y.shape[2 + i] - 1) * win.stride[i] + win.kernel[i]
            - self.x.shape[2 + i] - win.pad[i]
            for i in range(n)
        ]  # fmt: skip
        return [dims(v) for v in (win.stride, win.kernel, [0] * n, win.pad, right)]

    def _chosen(self, blob: Blob, made: int, what: str) -> Descriptor:
        plain = Descriptor.contiguous(self.library, blob.shape)
        return Descriptor.chosen(blob.shape, made, what, plain)

    def _plan_forward(self) -> None:
        library, source = self.library, self.x.value.layout
        assert isinstance(source, Descriptor)
        free = Descriptor.any(library, self.y.shape)
        self.backend.use_threads()
        made = self._hint = library.new(
            "pooling_forward_primitive_desc_create", library.engine, FORWARD_TRAINING,
            self._algorithm, source.handle, free.handle, *self._geometry(), None,
        )  # fmt: skip
        self.y.lay_out(self._chosen(self.y, made, "dst"))
        self._workspace = self._make_workspace(made)
        self._forward = Program(self.backend)
        self._forward.add(
            made, {"src": self.x.value, "dst": self.y.value, "workspace": self._workspace}
        )
        if self._correction is not None:
            self._scale(self._forward, self.y.value, self.y.value)

    def _make_workspace(self, made: int) -> OneDNNTensor | None:
        handle = self.library.query_descriptor(made, "workspace")
        if handle is None:
            return None
        layout = Descriptor(self.library, self.y.shape, handle, self.backend.plain_layout(()))
        tensor = OneDNNTensor(self.backend, self.y.shape)
        tensor.lay_out(layout)
        return tensor

    def _scale(self, program: Program, source: Any, target: Any) -> None:
        assert self._correction is not None and isinstance(self._correction.layout, Descriptor)
        layout, factors = source.layout.handle, self._correction.layout.handle
        self.backend.use_threads()
        made = self.library.new(
            "binary_primitive_desc_create", self.library.engine, BINARY_MULTIPLY, layout, factors,
            layout, None,
        )  # fmt: skip
        program.add(made, {"src": source, "src1": self._correction, "dst": target})

    def _backward_program(self) -> Program:
        library = self.library
        diff = self.y.gradient.layout
        assert isinstance(diff, Descriptor)
        free = Descriptor.any(library, self.x.shape)
        self.backend.use_threads()
        made = library.new(
            "pooling_backward_primitive_desc_create", library.engine, self._algorithm,
            free.handle, diff.handle, *self._geometry(), self._hint, None,
        )  # fmt: skip
        program = Program(self.backend)
        dy: Any = self.y.gradient
        if self._correction is not None:
            dy = program.scratch(diff)
            self._scale(program, self.y.gradient, dy)
        dx, staged = program.target(self.x.gradient, self._chosen(self.x, made, "diff_src"))
        program.add(made, {"diff_dst": dy, "diff_src": dx, "workspace": self._workspace})
        program.finish(staged)
        return program
