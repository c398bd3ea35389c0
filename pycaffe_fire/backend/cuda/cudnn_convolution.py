"""Our convolution with its three products by cuDNN."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import Window
from ..tensor import FLOAT32, Array, ChannelsLast
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
    Product,
    Refused,
    pitched,
    products,
)
from .cudnn import fused as with_fused
from .launch import KINDS, kind_of, words
from .layouts import Rows
from .tensor import cannot_move, own, source

if TYPE_CHECKING:
    from . import CudaBackend

ALIGNMENT = 64  # elements


class CudnnConvolution(Convolution):
    """Bias and ReLU are fused to the forward product where cuDNN has a good engine for that, and
    a pass of their own where it has not. Raises Refused where cuDNN lacks one of the products.

    With channels last, weights lie that way too, for as long as the net lives.
    """

    makes_patches = False

    def __init__(
        self, backend: CudaBackend, planner: Planner, x: Blob, w: Blob, b: Blob | None, y: Blob,
        window: Window, groups: int, relu: float | None, transposed: bool, last: bool,
    ) -> None:  # fmt: skip
        super().__init__(backend, x, w, b, y, window, groups, relu, transposed, last)
        if last and w.value.shape != w.shape and prod(window.kernel) > 1:
            raise Refused("these weights have another shape for another layer")
        self._planner = planner
        axes = len(window.kernel)
        image, small = (y, x) if transposed else (x, y)
        shapes = (
            (self._samples, self._channels, *image.shape[-axes:]),
            (self._maps, self._channels // groups, *window.kernel),
            (self._samples, self._maps, *small.shape[-axes:]),
        )
        self._products: dict[tuple[str, str], Product] = {}
        for kind in {tensor.kind for tensor in (y.value, y.gradient, x.gradient)}:
            for direction, product in products(kind, *shapes, window, last).items():
                self._products[direction, kind] = product
        self._fuses = not transposed and (b is not None or relu is not None)
        self._plans: dict[tuple[str, str, int], CudnnPlan] = {}
        self._fused: dict[int, CudnnPlan | None] = {}
        self._make_plans(0)
        if last and w.value.shape == w.shape:
            w.lay_out(ChannelsLast(w.shape))

    def plan_ahead(self) -> None:
        """Plans for maps that lie in the memory of a larger blob; if cuDNN has none, they leave."""
        for tensor in (self.y.value, self.y.gradient):
            try:
                self._make_plans(own(tensor).pitch)
            except Refused:
                cannot_move(self.y.value, self.y.gradient)

    def _make_plans(self, pitch: int) -> None:
        if pitch in self._fused:
            return
        made = {
            (*key, pitch): self._planner.plan(pitched(product, pitch))
            for key, product in self._products.items()
        }
        fused = self._with_bias_and_relu(pitch)
        self._plans.update(made)
        self._fused[pitch] = fused
        plans = [*made.values(), *([fused] if fused else [])]
        self.backend.reserve(max(_words(plan) for plan in plans) + self.w.count)

    def _with_bias_and_relu(self, pitch: int) -> CudnnPlan | None:
        if not self._fuses:
            return None
        plain = pitched(self._products[FORWARD, self.y.value.kind], pitch)
        try:
            return self._planner.plan(with_fused(plain, self.b is not None, self.relu))
        except Refused:
            return None

    def forward(self, activate: bool = True) -> None:
        self.plan_ahead()
        fused = self._fused[own(self.y.value).pitch]
        if fused is None or not (activate or self.relu is None):
            super().forward(activate)
            return
        kind = self.y.value.kind
        tensors = {IMAGES: self._images_of(self.x.value, kind), WEIGHTS: self._weights(kind)}
        if self.b is not None:
            tensors[BIAS] = source(self.b.value, kind)
        self._run(fused, {**tensors, MAPS: self._new_maps(self.y.value).array})

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        self.plan_ahead()
        super().backward(data, weights, bias)

    def _weights(self, kind: str) -> Array:
        return own(self.w.value).read_flat(kind, self._last)

    def _lower(self, images: Array, w: Array, maps: Rows) -> None:
        plan = self._plans[FORWARD, kind_of(images), maps.pitch]
        self._run(plan, {IMAGES: images, WEIGHTS: w, MAPS: maps.array})

    def _raise(self, maps: Rows, w: Array, images: Array) -> None:
        plan = self._plans[DATA, kind_of(images), maps.pitch]
        self._run(plan, {IMAGES: images, WEIGHTS: w, MAPS: maps.array})

    def _correlate(self, images: Array, maps: Rows, dw: Array, keep: float) -> None:
        """cuDNN overwrites, and stores gradients of weights as it stores the blobs."""
        kind = kind_of(images)
        plan = self._plans[FILTER, kind, maps.pitch]
        if kind == FLOAT32 and not keep:
            self._run(plan, {IMAGES: images, WEIGHTS: dw, MAPS: maps.array})
            return
        space = _words(plan)
        both = self.backend.scratch(space + words(dw.size, kind))
        made = both[space:].view(KINDS[kind])[: dw.size]
        self._run(plan, {IMAGES: images, WEIGHTS: made, MAPS: maps.array}, both)
        self.kernels["add_widened", kind](dw.size, made, keep, dw)

    def _run(
        self, plan: CudnnPlan, tensors: dict[int, Array], workspace: Array | None = None
    ) -> None:
        if workspace is None and plan.workspace:
            workspace = self.backend.scratch(_words(plan))
        addresses = {uid: int(array.data.ptr) for uid, array in tensors.items()}
        at = int(workspace.data.ptr) if workspace is not None else 0
        plan.run(addresses, at)


def _words(plan: CudnnPlan) -> int:
    """Its workspace in elements of scratch memory; what comes after it is aligned, too."""
    return -(-plan.workspace // (4 * ALIGNMENT)) * ALIGNMENT
