"""MAX and AVE pooling with Caffe's clipped windows."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..blob import Blob
from ..compiled import available, use_threads
from ..kernels.pooling import (
    AS_IN_A_RELU,
    UNROLLED,
    max_backward,
    max_backward_for,
    maxima,
)
from ..kernels.sweeps import WHOLE
from ..numpy.pooling import Pooling as Shifted
from ..plans import PoolingPlan, Rectified, Window
from ..tensor import NATIVE, Array, Layout, Tensor
from ..windows import divisors
from .layouts import Descriptor, Lowered, OneDNNTensor, Program
from .library import (
    BINARY_MULTIPLY,
    FORWARD_TRAINING,
    POOL_AVE_EXCLUDE,
    POOL_AVE_INCLUDE,
    POOL_MAX,
    dims,
)

if TYPE_CHECKING:
    from . import OneDNNBackend


class Pooling(PoolingPlan):
    """AVE divides by the window clipped at the padded border, which oneDNN cannot say in general.

    Without padding that is its exclude-padding mode, with windows inside the padded image its
    include-padding mode; else the latter is corrected by a map of (kernel area / divisor).
    """

    forgets = True

    def __init__(
        self, backend: OneDNNBackend, x: Blob, y: Blob, method: str, window: Window,
        own_backward: bool = True,
    ) -> None:  # fmt: skip
        self.backend, self.library, self.x, self.y = backend, backend.library, x, y
        self.method, self.window = method, window
        self.joins = method != "MAX"  # which does more than a program
        area = int(np.prod(window.kernel))
        counts = divisors(x.shape[2:], y.shape[2:], window)
        self._correction: OneDNNTensor | None = None
        if method == "MAX":
            self._algorithm = POOL_MAX
        elif method == "AVE_INSIDE" or not any(window.pad):
            self._algorithm = POOL_AVE_EXCLUDE
        else:
            self._algorithm = POOL_AVE_INCLUDE
            if (counts != area).any():
                self._correction = self._map(area / counts)
        self._plan_forward()
        self._backward: Program | Lowered | None = None
        self._rectified: set[int] = set()
        self._winners = self._find_winners() if own_backward else None
        self._finds_maxima = False  # by our kernel
        if method == "MAX":
            self._scatter, self._places = max_backward_for(x.shape, y.shape, window)
            if self._winners is not None and self._scatter is max_backward:
                planes = _planes_of(y.value.layout)
                in_vectors = planes is not None and planes[2] % WHOLE == 0
                self._finds_maxima = in_vectors and window.kernel in UNROLLED
            ahead = [maxima] if self._finds_maxima else []
            backend.expect(ahead, [] if self._winners is None else [self._scatter])

    @property
    def rectified(self) -> Rectified:
        return self._rectified if self._finds_maxima else None

    def forward(self) -> None:
        if self._finds_maxima:
            self._find_maxima()
            return
        self._forward.run()
        if self.method == "MAX":
            self._keep_nan()

    def _find_maxima(self) -> None:
        x, y, win = self.x.value, self.y.value, self.window
        x.sync()
        y.allocate()
        use_threads(self.backend.threads)
        assert self._winners is not None
        maxima(
            _planes(x, self.x), _planes(y, self.y), self._winners, win.kernel, win.stride, win.pad
        )
        y.fresh = NATIVE

    def program(self) -> Program:
        return self._forward

    def _keep_nan(self) -> None:
        """oneDNN passes over NaN. A diverged net must show it, so NaN wins over every number."""
        values = self.x.value.buffer
        assert values is not None
        if not self.backend.all_finite(values[: self.x.value.layout.elements]):
            Shifted(self.backend, self.x, self.y, "MAX", self.window, lay_out=False).forward()

    def backward(self) -> None:
        if self._winners is not None:
            self._bring_to(self._winners)
            return
        if self._backward is None:
            self._backward = self._backward_program()
        self._backward.run()

    def _bring_to(self, winners: Array) -> None:
        dy, dx = self.y.gradient, self.x.gradient
        dy.sync()
        dx.allocate()
        use_threads(self.backend.threads)
        places = (*self._places[:-1], AS_IN_A_RELU) if self._rectified else self._places
        self._scatter(_planes(dy, self.y), winners, _planes(dx, self.x), *places)
        dx.fresh = NATIVE

    def _find_winners(self) -> Array | None:
        """The workspace as an array of kernel cells, where it is one and our kernel can use it."""
        y = self.y.value.layout
        alike = _planes_of(self.x.value.layout) == _planes_of(y) is not None
        if self._workspace is None or not available() or not alike or len(self.x.shape) != 4:
            return None
        self._workspace.allocate()
        assert self._workspace.buffer is not None
        cells = self._workspace.buffer.view(np.uint8)
        if self._workspace_bytes != y.elements or not holds_winners(self.backend):
            return None
        return _as_planes(cells[: y.elements], y, self.y)

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
        self._workspace_bytes = self.library.size(handle)
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

    def _backward_program(self) -> Program | Lowered:
        library = self.library
        diff = self.y.gradient.layout
        assert isinstance(diff, Descriptor)
        free = Descriptor.any(library, self.x.shape)
        self.backend.use_threads()
        made = library.new(
            "pooling_backward_primitive_desc_create", library.engine, self._algorithm,
            free.handle, diff.handle, *self._geometry(), self._hint, None,
        )  # fmt: skip
        if library.is_reference(made) and self._algorithm != POOL_MAX:
            library.destroy("primitive_desc", made)
            shifted = Shifted(self.backend, self.x, self.y, self.method, self.window, lay_out=False)
            return Lowered(shifted.backward)
        program = Program(self.backend)
        dy: Any = self.y.gradient
        if self._correction is not None:
            dy = program.scratch(diff)
            self._scale(program, self.y.gradient, dy)
        dx, staged = program.target(self.x.gradient, self._chosen(self.x, made, "diff_src"))
        program.add(made, {"diff_dst": dy, "diff_src": dx, "workspace": self._workspace})
        program.finish(staged)
        return program


def _planes_of(layout: Layout) -> tuple[int, int, int] | None:
    """Samples, blocks of channels and channels of a block; None for other layouts.

    A single pixel may be stored as plain channels where larger images are stored in blocks.
    """
    grid = layout.grid
    return grid and (grid[0], grid[1], grid[3])


def _as_planes(flat: Array, layout: Layout, blob: Blob) -> Array:
    """A flat buffer as (planes, height, width, inner channels)."""
    assert layout.grid is not None
    num, outer, _, inner = layout.grid
    return flat.reshape(num * outer, *blob.shape[2:], inner)


def _planes(tensor: Tensor, blob: Blob) -> Array:
    assert tensor.buffer is not None
    return _as_planes(tensor.buffer[: tensor.layout.elements], tensor.layout, blob)


@cache
def _holds_winners(version: tuple[int, ...], kind: type[OneDNNBackend]) -> bool:
    """Try it once on one image: is a workspace byte the number of the winning cell?

    The API does not promise it, so a library that does otherwise gets its own backward.
    """
    backend = kind(1)
    x, y = Blob(backend, (1, 1, 4, 4)), Blob(backend, (1, 1, 3, 3))
    window = Window((3, 3), (2, 2), (1, 1), (1, 1))
    values = np.arange(16, dtype=np.float32).reshape(4, 4) * 7 % 16
    x.data[...] = values
    plan = Pooling(backend, x, y, "MAX", window, own_backward=False)
    plan.forward()
    if plan._workspace is None or plan._workspace_bytes != 9:
        return False
    assert plan._workspace.buffer is not None
    found = plan._workspace.buffer.view(np.uint8)[:9].reshape(3, 3)
    padded = np.pad(values, 2, constant_values=-1)
    expected = [
        [int(padded[2 * i + 1 : 2 * i + 4, 2 * j + 1 : 2 * j + 4].argmax()) for j in range(3)]
        for i in range(3)
    ]
    return bool((found == expected).all())


def holds_winners(backend: OneDNNBackend) -> bool:
    return _holds_winners(backend.library.version, type(backend))
