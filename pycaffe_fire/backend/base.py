"""The seam between layers and hardware: what every backend offers.

A backend instance is one execution context (a thread count, a workspace, a stream). It makes
tensors, moves them between layouts, and plans ops: a plan is built once for given blobs and run
many times. `numpy/` implements every op on plain arrays; faster backends inherit from it and
replace what they do better.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .plans import (
    ChannelPlan,
    Formula,
    ImageDecoder,
    ImageTransform,
    JoinPlan,
    LabelLoss,
    LossPlan,
    LossScale,
    MaskedPlan,
    Norm,
    NormPlan,
    NormSumPlan,
    NormWindowPlan,
    Plan,
    PoolingPlan,
    Recorder,
    Segment,
    SegmentDots,
    UpdateStep,
    WeightedPlan,
    Window,
)
from .tensor import FLOAT32, NATIVE, Array, Layout, Tensor, aligned, aligned_array

if TYPE_CHECKING:
    from .blob import Blob


class Backend(ABC):
    """Tensors and planned ops on one kind of hardware."""

    name = "abstract"
    xp: Any = np
    on_host = True  # can others (an MPI library) read and write its arrays?
    kinds: ClassVar[tuple[str, ...]] = (FLOAT32,)  # ways to store blobs
    precision = FLOAT32  # one of them, for nets that do not say
    engines: ClassVar[tuple[str, ...]] = ()  # of a layer's `engine` field, that make a difference

    def __init__(self, threads: int = 1, dtype: Any = np.float32) -> None:
        self.threads = threads
        self.dtype = np.dtype(dtype)
        self.exported: weakref.WeakSet[Tensor] = weakref.WeakSet()

    @abstractmethod
    def another(self, threads: int) -> Backend:
        """A second execution context of the same kind, for a leaf that runs beside this one."""

    def describe(self) -> str:
        """One phrase for the run header."""
        return f"{self.name}, {self.threads} thread{'s' if self.threads != 1 else ''}"

    # Memory.

    def tensor(self, shape: Sequence[int]) -> Tensor:
        return Tensor(self, shape)

    def empty(self, elements: int) -> Array:
        """Uninitialised flat storage."""
        return aligned(elements, self.dtype)

    def plain_layout(self, shape: Sequence[int]) -> Layout:
        return Layout(shape)

    def activate(self) -> None:  # noqa: B027
        """Called before running: ops of this thread go to this backend's device."""

    def host_buffer(self, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Uninitialised host memory that `upload` takes well."""
        return aligned_array(shape)

    def upload(self, tensor: Tensor, values: Array) -> None:
        """Give a tensor these values; the host array must stay as it is until finish_uploads."""
        tensor.bind(values.reshape(-1))
        tensor.fresh = NATIVE

    def image_transform(self, mean: Array, scale: float) -> ImageTransform | None:
        """For batches that come as bytes, where the device transforms them itself."""
        return None

    def image_decoder(self) -> ImageDecoder | None:
        """For JPEGs, where the device is to decode them."""
        return None

    def finish_uploads(self) -> None:  # noqa: B027
        """Wait until host arrays given to `upload` may be written again."""

    def download(self, values: Array) -> Array:
        """A flat buffer as a NumPy array that a communicator may send and add to."""
        return values

    def bring_back(self, pairs: Sequence[tuple[Array, Array]]) -> None:  # noqa: B027
        """Copy (host, device) pairs of what `download` gave back to where it came from."""

    def recorder(self) -> Recorder | None:
        """For work that is to be replayed, where the device can; inputs stay in place from now."""
        return None

    def host_view(self, blob: Blob) -> Blob:
        """The blob as the outside sees it, with NumPy arrays for data and diff."""
        return blob

    def to_plain(self, tensor: Tensor, out: Array) -> None:
        """Copy a tensor's native storage to a plain array."""
        raise NotImplementedError  # only called for layouts that the backend itself made

    def from_plain(self, tensor: Tensor, source: Array) -> None:
        """Copy a plain array to a tensor's native storage."""
        raise NotImplementedError  # only called for layouts that the backend itself made

    def mark(self) -> int:
        """A moment before a layer runs, for `write_back`."""
        return 0

    def write_back(self, mark: int) -> None:  # noqa: B027
        """Store what was written into arrays given out since `mark`; they count no longer."""

    def run_deferred(self) -> None:  # noqa: B027
        """Do what plans have put off, so that others might do it in passing."""

    def wait(self) -> None:  # noqa: B027
        """Until all that was asked of a device is done."""

    def planned_bytes(self) -> int:
        """What the plans made so far keep and share on a device, besides blobs."""
        return 0

    # Looking at results. A device answers later, so that nothing waits for it in between.

    def total(self, values: Array) -> Any:
        """The sum of an array: a float, or something that becomes one when looked at."""
        return float(values.sum())

    def require(self, condition: Array, on_failure: Callable[[], None]) -> None:
        """Call `on_failure`, which raises, if a computed condition does not hold."""
        if not condition:
            on_failure()

    def expect_backward(self) -> None:  # noqa: B027
        """The plans made so far will run backward: begin with what that takes long to prepare."""

    # Ops. Each lays out its output blob as it likes best and returns a plan.

    def engine(self, name: str) -> AbstractContextManager[None]:
        """Plans made inside use what a layer's `engine` field names, if there is such a thing."""
        return nullcontext()

    def per_sample(self, wanted: bool) -> AbstractContextManager[None]:
        """Plans made inside give a sample the same result in every batch, where the backend can and
        the user asks for it: it costs speed."""  # fmt: skip
        return nullcontext()

    @abstractmethod
    def convolution(
        self,
        x: Blob,
        w: Blob,
        b: Blob | None,
        y: Blob,
        window: Window,
        groups: int,
        relu: float | None = None,
        transposed: bool = False,
    ) -> WeightedPlan:
        """y = x * w + b over 1 to 3 spatial axes, then ReLU with slope `relu` if given.

        Weights are (O, I/groups, k...) as Caffe has them, and (I, O/groups, k...) when transposed
        (deconvolution). y has its shape already.
        """  # fmt: skip

    def packed_convolution(
        self,
        x: Blob,
        w: Blob,
        b: Blob | None,
        y: Blob,
        window: Window,
        groups: int,
        relu: float | None,
    ) -> WeightedPlan | None:
        """The same, forward only, for weights that rarely change: its `pack` is called whenever
        they do. What method it takes may depend on how long each takes here. None: no other."""
        return None

    def joined(self, plans: Sequence[WeightedPlan | Plan]) -> Callable[[], None]:
        """One call for the forward passes of several plans that `join`, in this order."""
        raise NotImplementedError  # none does

    def convolution_sum(
        self,
        x: Blob,
        w: Blob,
        b: Blob | None,
        y: Blob,
        window: Window,
        groups: int,
        relu: float | None,
        addend: Blob,
    ) -> WeightedPlan | None:
        """y = x * w + b + addend, then ReLU, forward only; None where one pass does not do it, or
        not faster than two."""  # fmt: skip
        return None

    @abstractmethod
    def inner_product(
        self,
        x: Blob,
        w: Blob,
        b: Blob | None,
        y: Blob,
        axis: int,
        transpose: bool,
        relu: float | None = None,
    ) -> WeightedPlan:
        """y = x w^T + b with x flattened to (before axis, from axis on)."""  # fmt: skip

    def packed_inner_product(
        self,
        x: Blob,
        w: Blob,
        b: Blob | None,
        y: Blob,
        axis: int,
        transpose: bool,
        relu: float | None,
    ) -> WeightedPlan | None:
        """The same, forward only, for weights that rarely change, as `packed_convolution`."""
        return None

    @abstractmethod
    def pooling(
        self, x: Blob, y: Blob, method: str, window: Window, mask: bool = False
    ) -> PoolingPlan:
        """MAX or AVE over 2 spatial axes, with Caffe's clipped windows; AVE_INSIDE divides by the
        cells that are no padding. `mask` asks for one."""

    @abstractmethod
    def lrn(
        self, x: Blob, y: Blob, size: int, alpha: float, beta: float, k: float, across: bool
    ) -> Plan:
        """y = x * (k + alpha/n * sum of squares in the region)^-beta; n = size or size^2."""

    @abstractmethod
    def relu(self, x: Blob, y: Blob, slope: float) -> Plan:
        """y = max(x, 0) + slope * min(x, 0); x and y may be one blob."""

    @abstractmethod
    def prelu(self, x: Blob, y: Blob, slope: Blob) -> ChannelPlan:
        """y = x for x > 0, slope * x otherwise, with a slope per channel or one (of shape ()) for
        all; x and y may be one blob: its input is kept for backward."""  # fmt: skip

    @abstractmethod
    def scale_shift(self, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None) -> ChannelPlan:
        """y = x * scale + shift per channel; x and y may be one blob, as above."""

    @abstractmethod
    def dropout(self, x: Blob, y: Blob, ratio: float, scale: float) -> MaskedPlan:
        """y = x * scale where a uniform draw per element is >= ratio, else 0; may be in place."""

    @abstractmethod
    def batch_norm(
        self,
        x: Blob,
        y: Blob,
        scale: Blob | None,
        shift: Blob | None,
        eps: float,
        global_stats: bool,
        relu: bool,
    ) -> NormPlan:
        """y = (x - mean) / sqrt(variance + eps) per channel (axis 1), then * scale + shift and
        ReLU where asked; x and y may be one blob: its input is kept for backward."""  # fmt: skip

    @property
    def sums_norms(self) -> bool:
        """May `batch_norm_sum` have plans?"""
        return False

    def batch_norm_sum(
        self,
        x: Blob,
        y: Blob,
        scale: Blob | None,
        shift: Blob | None,
        eps: float,
        global_stats: bool,
        addend: Blob,
        total: Blob,
        relu: float | None,
        readers: Sequence[Blob],
    ) -> NormSumPlan | None:
        """total = ReLU of (y + addend), for y as of `batch_norm`; the gradients of `readers`, which
        may be total alone, make up that of total. None where one op does not do it."""
        return None

    def norm_window(
        self, x: Blob, before: Norm, w: Blob, window: Window, z: Blob, after: Norm
    ) -> NormWindowPlan | None:
        """x, normalised as `before` says, a window over each channel of it, with weights of its
        own, and that, z, normalised as `after` says; all in place. None where one op does not do
        it."""
        return None

    @abstractmethod
    def weighted_sum(
        self, xs: Sequence[Blob], y: Blob, coefficients: Sequence[float], relu: float | None
    ) -> JoinPlan:
        """y = sum of coefficient * x, then ReLU with slope `relu` if given."""

    @abstractmethod
    def concat(self, xs: Sequence[Blob], y: Blob, axis: int) -> JoinPlan:
        """y = the xs one after the other."""

    @abstractmethod
    def softmax(self, x: Array, axis: int) -> Array:
        """exp(x) / sum of exp(x) along an axis, safe for large x; a new array."""

    @abstractmethod
    def softmax_plan(self, x: Blob, y: Blob, axis: int) -> Plan:
        """The same from blob to blob, with its gradient; x and y may be one blob."""

    def inference_softmax(self, x: Blob, y: Blob, axis: int) -> Plan | None:
        """The same, forward only, for blobs as they lie, if it is a plan that `joins`."""
        return None

    @abstractmethod
    def update(self, formula: Formula, segments: Sequence[Segment]) -> UpdateStep:
        """An update rule over flat buffers, by a kernel if there is one."""

    @abstractmethod
    def dots(self, segments: Sequence[Segment]) -> SegmentDots:
        """Inner products of flat buffers, segment by segment: norms and the like."""

    def dynamic_scale(self, first: float, update: UpdateStep) -> LossScale:
        """A loss scale that follows what the gradients allow, for a device that stores blobs in
        16 bits."""  # fmt: skip
        raise NotImplementedError  # `kinds` says that this is not called

    def softmax_loss(self, x: Blob, loss: Blob, case: LabelLoss) -> LossPlan | None:
        """The mean over samples of -log softmax(x)[label]; None: array code does it as well."""
        return None

    @abstractmethod
    def sum_of_squares(self, values: Array) -> float:
        """Of a flat buffer, in double precision, the same for any number of threads."""

    def all_finite(self, values: Array) -> bool:
        """Is no number of a flat buffer infinite or NaN?"""
        return isfinite(self.sum_of_squares(values))  # double precision holds all squares

    @abstractmethod
    def accumulate(self, total: Array, part: Array) -> None:
        """total += part, flat buffers."""

    @abstractmethod
    def add(self, parts: Sequence[Tensor], total: Tensor) -> Any:
        """A callable that sums `parts` into `total`, which may be one of them."""
