"""The CPU backend: oneDNN primitives on blocked layouts, and compiled kernels beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from ..blob import Blob
from ..cpu import library as native
from ..cpu.backend import CpuBackend
from ..plans import (
    JoinPlan,
    Norm,
    NormPlan,
    NormSumPlan,
    NormWindowPlan,
    Plan,
    PoolingPlan,
    WeightedPlan,
    Window,
)
from ..tensor import BFLOAT16, FLOAT32, Array, Tensor
from .activation import ReLU
from .add import Sum
from .batch_norm import BatchNorm, NormInCache
from .concat import Concat
from .convolution import Convolution
from .inner_product import InnerProduct, RowBlocks
from .layouts import Descriptor, OneDNNTensor, Program, Workspace
from .library import BF16, BINARY_ADD, F32, RELU, Library
from .norm_sum import NormSum
from .norm_window import NormWindow
from .plan_trials import faster_if_packed, fastest_convolution
from .pointwise import Pointwise
from .pooling import Pooling
from .softmax import Softmax
from .strided import Strided
from .weighted import Joinable
from .weighted_sum import WeightedSum
from .winograd import Winograd

# In the environment: pay for results that do not depend on the batch, in TEST phase.
SAME_IN_EVERY_BATCH = "PYCAFFE_FIRE_SAME_IN_EVERY_BATCH"
MOST_CONCAT_AXES = 6  # with more, oneDNN 3.2 divides by zero and ends the process


@cache
def library() -> Library:
    """The one loaded libdnnl of this process."""
    return Library()


class OneDNNBackend(CpuBackend):
    """Plans are oneDNN primitives; what it lacks is inherited or compiled."""

    name = "onednn"

    def __init__(self, threads: int = 1, products: str = FLOAT32) -> None:
        """`products` is the type of the operands of convolutions and inner products; sums and all
        else are float32. Where the CPU cannot multiply bfloat16, float32 numbers are rounded to it:
        that gives the same numbers, slowly."""
        super().__init__(threads)
        self.library = library()
        self.products = products
        in_16_bits = products == BFLOAT16
        self.operand_kind = BF16 if in_16_bits and self.library.multiplies_bf16 else F32
        self.rounds_operands = in_16_bits and self.operand_kind == F32
        self.workspace = Workspace(self)
        self._per_sample = False  # while plans are made that must not depend on the batch

    @property
    def sums_norms(self) -> bool:
        return native.available()

    def another(self, threads: int) -> OneDNNBackend:
        return OneDNNBackend(threads, self.products)

    def describe(self) -> str:
        name = f"oneDNN {'.'.join(map(str, self.library.version))}, {super().describe()[8:]}"
        return name if self.products == FLOAT32 else f"{name}, products in {self.products}"

    def use_threads(self) -> None:
        """Primitives created next run on this backend's number of threads."""
        self.library.set_threads(self.threads)

    @contextmanager
    def attributes(
        self, relu: float | None = None, add: bool = False, addends: Sequence[Descriptor] = ()
    ) -> Iterator[int | None]:
        """Primitive attributes with a fused ReLU, adding to what is there, or adding other tensors
        (the arguments `addend(i)`), or none."""
        if relu is None and not add and not addends:
            yield None
            return
        lib = self.library
        attributes, operations = lib.new("primitive_attr_create"), lib.new("post_ops_create")
        if add:
            lib.call("post_ops_append_sum", operations, 1.0, 0, F32)
        for addend in addends:
            lib.call("post_ops_append_binary", operations, BINARY_ADD, addend.handle)
        if relu is not None:
            lib.call("post_ops_append_eltwise", operations, RELU, relu, 0.0)
        lib.call("primitive_attr_set_post_ops", attributes, operations)
        yield attributes
        lib.destroy("post_ops", operations)
        lib.destroy("primitive_attr", attributes)

    # Memory.

    def tensor(self, shape: Sequence[int]) -> OneDNNTensor:
        return OneDNNTensor(self, shape)

    def plain_layout(self, shape: Sequence[int]) -> Descriptor:
        return Descriptor.contiguous(self.library, shape)

    def upload(self, tensor: Tensor, values: Array) -> None:
        super().upload(tensor, values)
        assert isinstance(tensor, OneDNNTensor)
        tensor.lent = True

    def to_plain(self, tensor: Tensor, out: Array) -> None:
        layout = tensor.layout
        assert isinstance(layout, Descriptor)
        if layout.has_plain_order:  # as scores have; no need to set up a primitive
            assert tensor.buffer is not None
            out[...] = tensor.buffer[: out.size].reshape(out.shape)
        else:
            self._copy(tensor, out, inward=False)

    def from_plain(self, tensor: Tensor, source: Array) -> None:
        self._copy(tensor, source, inward=True)

    def _copy(self, tensor: Tensor, plain: np.ndarray[Any, Any], inward: bool) -> None:
        layout = tensor.layout
        assert isinstance(layout, Descriptor)
        other = OneDNNTensor(self, layout.plain.shape)
        other.bind(plain)
        other.fresh = tensor.fresh = 1
        program = Program(self)
        if inward:
            program.reorder(other, tensor, source_layout=layout.plain)
        else:
            program.reorder(tensor, other, target_layout=layout.plain)
        program.run()

    # Ops.

    @contextmanager
    def per_sample(self, wanted: bool) -> Iterator[None]:
        self._per_sample = wanted and bool(os.environ.get(SAME_IN_EVERY_BATCH))
        try:
            yield
        finally:
            self._per_sample = False

    @property
    def _may_transform(self) -> bool:
        """Winograd's transforms round what they multiply more often than 16 bits allow."""
        return not self._direct and self.products == FLOAT32

    def convolution(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window, groups: int,
        relu: float | None = None, transposed: bool = False,
    ) -> WeightedPlan:  # fmt: skip
        if not 1 <= len(window.kernel) <= 3 or 0 in x.shape:
            return super().convolution(x, w, b, y, window, groups, relu, transposed)
        of_one_pixel = (c for c in (Pointwise, Strided) if c.is_one(window, groups, transposed))
        kind = next(of_one_pixel, Convolution)
        direct = kind(self, x, w, b, y, window, groups, relu, transposed)
        if not self._may_transform or not Winograd.suits(direct, self._per_sample):
            return direct
        return Winograd(direct, self._per_sample)

    def packed_convolution(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window, groups: int,
        relu: float | None,
    ) -> WeightedPlan | None:  # fmt: skip
        if self._per_sample or len(window.kernel) != 2 or 0 in x.shape:
            return None
        direct = Convolution(self, x, w, b, y, window, groups, relu, transposed=False)
        return fastest_convolution(direct) if self._may_transform else direct

    def joined(self, plans: Sequence[WeightedPlan | Plan]) -> Callable[[], None]:
        programs = [plan.program() for plan in plans if isinstance(plan, Joinable)]
        whole = [program for program in programs if isinstance(program, Program)]
        if len(whole) == len(plans):
            return Program.joined(whole).run

        def one_by_one() -> None:
            for program in programs:
                program.run()

        return one_by_one

    def convolution_sum(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window, groups: int,
        relu: float | None, addend: Blob,
    ) -> WeightedPlan | None:  # fmt: skip
        if len(window.kernel) != 2 or 0 in x.shape or addend.value.layout != y.value.layout:
            return None
        plan = Convolution(self, x, w, b, y, window, groups, relu, False, addend)
        if plan.is_slow or (self._may_transform and Winograd.suits(plan, self._per_sample)):
            return None
        return plan

    def inner_product(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int, transpose: bool,
        relu: float | None = None,
    ) -> WeightedPlan:  # fmt: skip
        if 0 in x.shape:
            return super().inner_product(x, w, b, y, axis, transpose, relu)
        kind = RowBlocks if self._per_sample else InnerProduct
        return kind(self, x, w, b, y, axis, transpose, relu)

    def packed_inner_product(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int, transpose: bool,
        relu: float | None,
    ) -> WeightedPlan | None:  # fmt: skip
        if self._per_sample or self.products != FLOAT32 or 0 in x.shape:
            return None
        if w.value.common or not y.value.layout.is_plain:
            return None
        return faster_if_packed(InnerProduct(self, x, w, b, y, axis, transpose, relu))

    def pooling(
        self, x: Blob, y: Blob, method: str, window: Window, mask: bool = False
    ) -> PoolingPlan:
        if mask or 0 in x.shape:
            return super().pooling(x, y, method, window, mask)
        return Pooling(self, x, y, method, window)

    def relu(self, x: Blob, y: Blob, slope: float) -> Plan:
        if slope < 0 or 0 in x.shape:
            return super().relu(x, y, slope)
        return ReLU(self, x, y, slope)

    def batch_norm(
        self, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None, eps: float,
        global_stats: bool, relu: bool,
    ) -> NormPlan:  # fmt: skip
        if not 2 <= len(x.shape) <= 5 or 0 in x.shape:
            return super().batch_norm(x, y, scale, shift, eps, global_stats, relu)
        kind = NormInCache if NormInCache.suits(x) else BatchNorm
        return kind(self, x, y, scale, shift, eps, global_stats, relu)

    def batch_norm_sum(
        self, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None, eps: float,
        global_stats: bool, addend: Blob, total: Blob, relu: float | None, readers: Sequence[Blob],
    ) -> NormSumPlan | None:  # fmt: skip
        if not NormSum.supports(x, addend, total):
            return None
        return NormSum(
            self, x, y, scale, shift, eps, global_stats, addend, total, relu, readers
        )  # fmt: skip

    def norm_window(
        self, x: Blob, before: Norm, w: Blob, window: Window, z: Blob, after: Norm
    ) -> NormWindowPlan | None:
        if self.products != FLOAT32 or not NormWindow.supports(x, w, window, z):
            return None
        return NormWindow(self, x, before, w, window, z, after)

    def inference_softmax(self, x: Blob, y: Blob, axis: int) -> Plan | None:
        if 0 in x.shape or x.value.layout != y.value.layout:
            return None
        plan = Softmax(self, x, y, axis)
        return None if plan.is_slow else plan

    def weighted_sum(
        self, xs: Sequence[Blob], y: Blob, coefficients: Sequence[float], relu: float | None
    ) -> JoinPlan:
        if any(y is x for x in xs) or 0 in y.shape:
            return super().weighted_sum(xs, y, coefficients, relu)
        return WeightedSum(self, xs, y, coefficients, relu)

    def concat(self, xs: Sequence[Blob], y: Blob, axis: int) -> JoinPlan:
        if any(0 in x.shape for x in xs) or len(y.shape) > MOST_CONCAT_AXES:
            return super().concat(xs, y, axis)
        return Concat(self, xs, y, axis)

    def add(self, parts: Sequence[Tensor], total: Tensor) -> Any:
        return Sum(self, parts, total)
