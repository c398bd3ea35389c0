"""Our convolution with its three products by cuDNN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base import Window
from ..blob import Blob
from ..tensor import FLOAT32, Array
from .convolution import Convolution
from .cudnn import (
    BIAS,
    DATA,
    FILTER,
    FORWARD,
    IMAGES,
    MAPS,
    WEIGHTS,
    CudnnPlan,
    Planner,
    Refused,
    products,
)
from .cudnn import fused as with_fused
from .launch import KINDS, kind_of, words
from .tensor import source, target

if TYPE_CHECKING:
    from . import CudaBackend

ALIGNMENT = 64  # elements


class CudnnConvolution(Convolution):
    """Bias and ReLU are fused to the forward product where cuDNN has a good engine for that, and
    a pass of their own where it has not. Raises Refused where cuDNN lacks one of the products."""

    makes_patches = False

    def __init__(
        self, backend: CudaBackend, planner: Planner, x: Blob, w: Blob, b: Blob | None, y: Blob,
        window: Window, groups: int, relu: float | None, transposed: bool,
    ) -> None:  # fmt: skip
        super().__init__(backend, x, w, b, y, window, groups, relu, transposed)
        self._handle = planner.handle
        axes = len(window.kernel)
        image, small = (y, x) if transposed else (x, y)
        shapes = (
            (self._samples, self._channels, *image.shape[-axes:]),
            (self._maps, self._channels // groups, *window.kernel),
            (self._samples, self._maps, *small.shape[-axes:]),
        )
        self._plans: dict[tuple[str, str], CudnnPlan] = {}
        for kind in {tensor.kind for tensor in (y.value, y.gradient, x.gradient)}:
            for direction, product in products(kind, *shapes, window).items():
                self._plans[direction, kind] = planner.plan(product)
        self._fused = None if transposed else self._with_bias_and_relu(planner)
        plans = [*self._plans.values(), *([self._fused] if self._fused else [])]
        backend.reserve(max(_words(plan) for plan in plans) + w.count)

    def _with_bias_and_relu(self, planner: Planner) -> CudnnPlan | None:
        if self.b is None and self.relu is None:
            return None
        plain = self._plans[FORWARD, self.y.value.kind].product
        try:
            return planner.plan(with_fused(plain, self.b is not None, self.relu))
        except Refused:
            return None

    def forward(self, activate: bool = True) -> None:
        if self._fused is None or not (activate or self.relu is None):
            super().forward(activate)
            return
        kind = self.y.value.kind
        tensors = {IMAGES: source(self.x.value, kind), WEIGHTS: source(self.w.value, kind)}
        if self.b is not None:
            tensors[BIAS] = source(self.b.value, kind)
        self._run(self._fused, {**tensors, MAPS: target(self.y.value)})

    def _weights(self, kind: str) -> Array:
        return source(self.w.value, kind)

    def _lower(self, images: Array, w: Array, maps: Array) -> None:
        plan = self._plans[FORWARD, kind_of(images)]
        self._run(plan, {IMAGES: images, WEIGHTS: w, MAPS: maps})

    def _raise(self, maps: Array, w: Array, images: Array) -> None:
        plan = self._plans[DATA, kind_of(images)]
        self._run(plan, {IMAGES: images, WEIGHTS: w, MAPS: maps})

    def _correlate(self, images: Array, maps: Array, dw: Array, keep: float) -> None:
        """cuDNN overwrites, and stores gradients of weights as it stores the blobs."""
        kind = kind_of(images)
        plan = self._plans[FILTER, kind]
        if kind == FLOAT32 and not keep:
            self._run(plan, {IMAGES: images, WEIGHTS: dw, MAPS: maps})
            return
        space = _words(plan)
        both = self.backend.scratch(space + words(dw.size, kind))
        made = both[space:].view(KINDS[kind])[: dw.size]
        self._run(plan, {IMAGES: images, WEIGHTS: made, MAPS: maps}, both)
        self.kernels["add_widened", kind](dw.size, made, keep, dw)

    def _run(
        self, plan: CudnnPlan, tensors: dict[int, Array], workspace: Array | None = None
    ) -> None:
        if workspace is None and plan.workspace:
            workspace = self.backend.scratch(_words(plan))
        addresses = {uid: int(array.data.ptr) for uid, array in tensors.items()}
        plan.run(self._handle, addresses, int(workspace.data.ptr) if workspace is not None else 0)


def _words(plan: CudnnPlan) -> int:
    """Its workspace in elements of scratch memory; what comes after it is aligned, too."""
    return -(-plan.workspace // (4 * ALIGNMENT)) * ALIGNMENT
