"""The GPU backend: CuPy arrays, our CUDA C kernels, and cuBLAS.

An op without a kernel here runs as array code on the device, inherited from the NumPy backend.
Nothing in a training pass waits for the device; numbers come back when they are read.
"""

from __future__ import annotations

import importlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from math import fsum, prod
from typing import Any

import numpy as np

from ..blob import Blob
from ..numpy import NumPyBackend
from ..plans import (
    ChannelPlan,
    Draw,
    Formula,
    ImageDecoder,
    ImageTransform,
    JoinPlan,
    LabelLoss,
    LossPlan,
    LossScale,
    MaskedPlan,
    NormPlan,
    Plan,
    PoolingPlan,
    Recorder,
    Segment,
    SegmentDots,
    UpdateStep,
    WeightedPlan,
    Window,
)
from ..tensor import FLOAT32, NATIVE, Array, Tensor
from .activation import ReLU
from .add import Sum
from .batch_norm import BatchNorm
from .blas import Blas
from .channels import arrivals
from .channelwise import PReLU, ScaleShift
from .concat import Concat
from .convolution import Convolution
from .cudnn import Choose, Engines, Planner, Refused, first_allowed
from .cudnn_convolution import CudnnConvolution
from .device import open_device, probe
from .dropout import Dropout
from .graph import GraphRecorder
from .images import DeviceTransform
from .inner_product import InnerProduct
from .jpeg import JpegDecoder
from .kept import Kept
from .later import Later, Scalar
from .launch import KINDS, Kernels, kernel_names, kind_of, words
from .loss_scale import DynamicScale
from .lrn import LRN
from .plan_trials import Trials
from .pooling import Pooling
from .softmax_loss import SoftmaxLoss
from .staging import Staging
from .tensor import CudaTensor, HostBlob, cannot_move, own
from .update import ArrayUpdate, Dots, SkippableUpdate, Update
from .uploads import Uploads
from .weight_copies import WeightCopies
from .weighted_sum import WeightedSum, add_up

__all__ = ["CudaBackend", "probe"]

SQUARES_CHUNK = 65536
MOST_CHECKS = 512  # conditions that may wait until numbers are read


class _Views(threading.local):
    """Tensors of which array code holds float32 arrays: a thread writes back its own, since leaves
    that go in step are in the middle of a layer while others run."""

    def __init__(self) -> None:
        self.tensors: list[CudaTensor] = []


class CudaBackend(NumPyBackend):
    """One device with three streams: for computing, for batches, for gradients of other ranks."""

    name = "cuda"
    on_host = False
    kinds = tuple(KINDS)
    engines = ("CUDNN",)

    def __init__(
        self, device: int = 0, cudnn: bool | None = None, tf32: bool = False,
        precision: str = FLOAT32, jpeg: bool = False, time_plans: bool = False,
        timed: str | None = None,
    ) -> None:  # fmt: skip
        """`cudnn`: use it, do not, or (None) use it where it loads; `tf32`: let tensor cores
        multiply float32 numbers, rounded to 11 bits; `precision`: one of `kinds`; `jpeg`: decode
        images here; `time_plans`, `timed`: see plan_trials."""
        super().__init__(1)
        self.device, self.precision = device, precision
        self.xp = open_device(device)
        self._device = self.xp.cuda.Device(device)
        self._device.use()
        self.compute = self.xp.cuda.Stream(non_blocking=True)
        self.uploads = Uploads(self.xp, self.compute)
        self._staging = Staging(self.xp, self.compute, self.host_buffer)
        self.kernels, self.blas = Kernels(self.xp), Blas(self.xp, tf32)
        self._time_plans, self._timed = time_plans, timed
        self._engines = Engines(self.compute, cudnn, tf32, self._chooser)
        self._reserved = 0
        self._kept: weakref.WeakSet[Kept] = weakref.WeakSet()
        self._weight_copies: weakref.WeakValueDictionary[tuple[int, int], WeightCopies] = (
            weakref.WeakValueDictionary()
        )
        self._deferred_checks: list[tuple[Array, Callable[[], None]]] = []
        self._watched: list[weakref.ref[SoftmaxLoss]] = []
        self.unwatched = False  # has one of them run since the last look?
        self._recorder: GraphRecorder | None = None  # while it records
        self._places: weakref.WeakKeyDictionary[Tensor, Array] | None = None
        self._views = _Views()
        self.deferred: list[CudaTensor] = []  # that may have yet to go back through a ReLU
        self.activate()
        self.arrivals = arrivals(self.xp)
        self._jpegs = JpegDecoder(self) if jpeg else None

    def another(self, threads: int) -> CudaBackend:
        """Leaves of one device run one after the other, so one context serves all of them."""
        return self

    def describe(self) -> str:
        properties = self.xp.cuda.runtime.getDeviceProperties(self.device)
        cudnn = self._engines.chosen
        engine = f", cuDNN {cudnn.version}" if cudnn is not None else ""
        if cudnn is not None and self._time_plans:
            engine += " with timed plans"
        blobs = f", blobs in {self.precision}" if self.precision != FLOAT32 else ""
        if self._jpegs is not None:
            blobs += f", JPEG by nvImageCodec {self._jpegs.version} (not the CPU's pixels)"
        return f"cuda, device {self.device}: {_text(properties['name'])}{engine}{blobs}"

    def _chooser(self, planner: Planner) -> Choose:
        """Who chooses among cuDNN's plans."""
        if not self._time_plans:
            return first_allowed
        name = _text(self.xp.cuda.runtime.getDeviceProperties(self.device)["name"])
        about = f"{name}, cuDNN {planner.version}, {'tf32' if planner.tf32 else 'fp32'}"
        return Trials(self.xp, self.compute, about, self._timed).choose

    def activate(self) -> None:
        self.use_device()
        self.compute.use()

    def use_device(self) -> None:
        """For this thread, whatever stream it uses."""
        self._device.use()

    # Memory.

    def tensor(self, shape: Sequence[int]) -> CudaTensor:
        return CudaTensor(self, shape)

    def empty(self, elements: int) -> Array:
        return self.xp.empty(elements, self.dtype)

    def host_buffer(self, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Pinned memory, which copies can leave while the processor does something else."""
        pinned: np.ndarray[Any, np.dtype[np.float32]] = importlib.import_module(
            "cupyx"
        ).empty_pinned(shape, np.float32)
        return pinned

    def to_plain(self, tensor: Tensor, out: Array) -> None:
        self.activate()
        out.reshape(-1)[...] = own(tensor).as_float32().get()
        self.confirm()

    def from_plain(self, tensor: Tensor, source: Array) -> None:
        self.activate()
        flat = np.ascontiguousarray(source, self.dtype).reshape(-1)
        own(tensor).upload(flat)

    def convert(self, given: Array, made: Array) -> None:
        """Copy flat values to memory that stores them in another way."""
        before, after = kind_of(given), kind_of(made)
        if before == FLOAT32:
            self.kernels["narrow", after](given.size, given, 1.0, made)
        elif after == FLOAT32:
            self.kernels["widen", before](given.size, given, 1.0, made)
        else:
            self.convert(self.converted(given, FLOAT32), made)

    def converted(self, given: Array, kind: str) -> Array:
        """Flat values stored as `kind`: a new array, unless they are already."""
        if kind_of(given) == kind:
            return given
        made = self.xp.empty(given.size, KINDS[kind])
        self.convert(given, made)
        return made

    @property
    def viewed(self) -> list[CudaTensor]:
        return self._views.tensors

    def mark(self) -> int:
        return len(self.viewed)

    def write_back(self, mark: int) -> None:
        for tensor in self.viewed[mark:]:
            tensor.write_back()
        del self.viewed[mark:]

    def run_deferred(self) -> None:
        for tensor in self.deferred:
            tensor.sync()
        self.deferred.clear()

    def weight_copies(self, flat: Array) -> WeightCopies:
        """Of the weights in a flat buffer, as long as one of them wants to know."""
        key = (int(flat.data.ptr), int(flat.size))
        found = self._weight_copies.get(key)
        if found is None:
            found = self._weight_copies[key] = WeightCopies(self, flat)
        return found

    def host_view(self, blob: Blob) -> Blob:
        return HostBlob(blob)

    def upload(self, tensor: Tensor, values: Array) -> None:
        buffer = self.uploads.start(tensor, values.reshape(-1))
        tensor.bind(buffer if self._places is None else self._written_back(tensor, buffer))
        tensor.fresh = NATIVE

    def image_transform(self, mean: Array, scale: float) -> ImageTransform | None:
        self.activate()
        return DeviceTransform(self, mean, scale)

    def image_decoder(self) -> ImageDecoder | None:
        return self._jpegs

    def _written_back(self, tensor: Tensor, buffer: Array) -> Array:
        """A copy of a batch in memory that does not move from batch to batch."""
        assert self._places is not None
        place = self._places.get(tensor)
        if place is None or place.size != buffer.size:
            place = self._places[tensor] = self.empty(buffer.size)
        add_up(self.kernels, [(buffer, 1.0)], place)
        return place

    def recorder(self) -> Recorder:
        self._places = self._places or weakref.WeakKeyDictionary()
        return GraphRecorder(self)

    @contextmanager
    def recording(self, recorder: GraphRecorder) -> Iterator[None]:
        """Kernels and checks inside are this recorder's business."""
        self.kernels.recorder = self._recorder = recorder
        try:
            with self.blas.recording(self.compute):
                yield
        finally:
            self.kernels.recorder = self._recorder = None

    def wait(self) -> None:
        self._device.synchronize()

    def finish_uploads(self) -> None:
        self.uploads.finish()

    def keep(self, elements: int, dtype: Any = np.float32) -> Kept:
        """Memory that a plan holds between its passes."""
        kept = Kept(self.xp, elements, dtype)
        self._kept.add(kept)
        return kept

    def download(self, values: Array) -> Array:
        self.activate()
        return self._staging.out(values)

    def bring_back(self, pairs: Sequence[tuple[Array, Array]]) -> None:
        self.activate()
        self._staging.back(pairs)

    def reserve(self, elements: int, kind: str = FLOAT32) -> None:
        """A plan will want this much scratch memory; all plans share one piece."""
        self._reserved = max(self._reserved, words(elements, kind))

    def planned_bytes(self) -> int:
        return sum(kept.nbytes for kept in self._kept) + 4 * self._reserved

    def scratch(self, elements: int, kind: str = FLOAT32) -> Array:
        size = words(elements, kind)
        if self._scratch is None or self._scratch.size < size:
            self._scratch = self.empty(max(size, self._reserved))
        return self._scratch[:size].view(KINDS[kind])[:elements]

    # Numbers and checks that wait until they are read.

    def total(self, values: Array) -> Any:
        return Later(0.0, ((1.0, Scalar(values.sum(), self._read)),))

    def _read(self, number: Array) -> float:
        """Any thread may look: a display has one of its own."""
        self.activate()
        value = float(number.get())
        self.confirm()
        return value

    def require(self, condition: Array, on_failure: Callable[[], None]) -> None:
        if self._recorder is not None:
            self._recorder.deferred_checks.append((condition, on_failure))
            return
        self._deferred_checks.append((condition, on_failure))
        if len(self._deferred_checks) >= MOST_CHECKS:
            self.confirm()

    def confirm(self) -> None:
        """Raise the error of the first condition that did not hold since the last look."""
        watched, self.unwatched = tuple(self._watched) if self.unwatched else (), False
        for plan in filter(None, (each() for each in watched)):
            plan.confirm()
        checks, self._deferred_checks = self._deferred_checks, []
        if not checks:
            return
        held = self.xp.stack([condition for condition, _ in checks]).get()
        for good, (_, on_failure) in zip(held, checks, strict=True):
            if not good:
                on_failure()

    def watch(self, plan: SoftmaxLoss) -> None:
        """Ask this plan, too, whether all was well, while it lives."""
        self._watched.append(weakref.ref(plan, self._watched.remove))

    def uniform(self, draw: Draw, samples: int, n: int) -> Array:
        out = self.xp.empty((samples, n), np.float32)
        self.kernels["uniform"](out.size, n, draw.key, draw.step, draw.first_sample, out)
        return out

    # Ops.

    def engine(self, name: str) -> AbstractContextManager[None]:
        return self._engines.choosing(name)

    def convolution(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window, groups: int,
        relu: float | None = None, transposed: bool = False,
    ) -> WeightedPlan:  # fmt: skip
        if not Convolution.supports(x, y, window):
            return super().convolution(x, w, b, y, window, groups, relu, transposed)
        planner, place = self._engines.chosen, (x, w, b, y, window, groups, relu, transposed)
        if planner is not None:
            for last in (True, False) if y.value.kind != FLOAT32 else (False,):
                with suppress(Refused):
                    return CudnnConvolution(self, planner, *place, last)
        return Convolution(self, *place)

    def inner_product(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int, transpose: bool,
        relu: float | None = None,
    ) -> WeightedPlan:  # fmt: skip
        if 0 in x.shape:
            return super().inner_product(x, w, b, y, axis, transpose, relu)
        return InnerProduct(self, x, w, b, y, axis, transpose, relu)

    def pooling(
        self, x: Blob, y: Blob, method: str, window: Window, mask: bool = False
    ) -> PoolingPlan:
        if not Pooling.supports(x, method, window):
            return super().pooling(x, y, method, window, mask)
        return Pooling(self, x, y, method, window)

    def lrn(
        self, x: Blob, y: Blob, size: int, alpha: float, beta: float, k: float, across: bool
    ) -> Plan:
        if not LRN.supports(x):
            return super().lrn(x, y, size, alpha, beta, k, across)
        return LRN(self, x, y, size, alpha, beta, k, across)

    def relu(self, x: Blob, y: Blob, slope: float) -> Plan:
        return ReLU(self, x, y, slope)

    def prelu(self, x: Blob, y: Blob, slope: Blob) -> ChannelPlan:
        if 0 in x.shape:
            return super().prelu(x, y, slope)
        return PReLU(self, x, y, slope)

    def scale_shift(self, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None) -> ChannelPlan:
        if 0 in x.shape:
            return super().scale_shift(x, y, scale, shift)
        return ScaleShift(self, x, y, scale, shift)

    def dropout(self, x: Blob, y: Blob, ratio: float, scale: float) -> MaskedPlan:
        if x.value is y.value:
            cannot_move(y.value, y.gradient)
        return Dropout(self, x, y, ratio, scale)

    def batch_norm(
        self, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None, eps: float,
        global_stats: bool, relu: bool,
    ) -> NormPlan:  # fmt: skip
        if 0 in x.shape:
            return super().batch_norm(x, y, scale, shift, eps, global_stats, relu)
        return BatchNorm(self, x, y, scale, shift, eps, global_stats, relu)

    def weighted_sum(
        self, xs: Sequence[Blob], y: Blob, coefficients: Sequence[float], relu: float | None
    ) -> JoinPlan:
        if any(y is x for x in xs):
            return super().weighted_sum(xs, y, coefficients, relu)
        return WeightedSum(self, xs, y, coefficients, relu)

    def concat(self, xs: Sequence[Blob], y: Blob, axis: int) -> JoinPlan:
        return Concat(self, xs, y, axis)

    def softmax(self, x: Array, axis: int) -> Array:
        if not x.size or x.dtype != np.float32 or not x.flags.c_contiguous:
            return super().softmax(x, axis)
        y, classes = self.xp.empty_like(x), x.shape[axis]
        inner = prod(x.shape[axis % x.ndim + 1 :])
        self.kernels["softmax"](x.size // classes, x, classes, inner, y)
        return y

    def softmax_loss(self, x: Blob, loss: Blob, case: LabelLoss) -> LossPlan | None:
        return SoftmaxLoss(self, x, loss, case) if SoftmaxLoss.supports(x, case) else None

    def update(self, formula: Formula, segments: Sequence[Segment]) -> UpdateStep:
        if formula.kernel not in kernel_names("update"):
            return ArrayUpdate(self, formula, segments)
        return Update(self, formula.kernel, segments)

    def dots(self, segments: Sequence[Segment]) -> SegmentDots:
        return Dots(self, segments)

    def dynamic_scale(self, first: float, update: UpdateStep) -> LossScale:
        assert isinstance(update, SkippableUpdate)
        return DynamicScale(self, first, update)

    def sum_of_squares(self, values: Array) -> float:
        """Waits for the device: clipping gradients needs the number at once."""
        chunks = -(-values.size // SQUARES_CHUNK)
        sums = self.xp.empty(chunks, np.float64)
        self.kernels["square_sums"].blocks(chunks, values, values.size, SQUARES_CHUNK, sums)
        return fsum(sums.get())

    def accumulate(self, total: Array, part: Array) -> None:
        self.activate()  # buckets are merged on a thread of their own
        self.add_on_stream(total, part)

    def add_on_stream(self, total: Array, part: Array) -> None:
        """The same, on whichever stream is the current one."""
        add_up(self.kernels, [(total, 1.0), (part, 1.0)], total)

    def tree_sum(self, rows: Array, merges: Array, total: Array) -> None:
        """On the current stream: rows, one after the other, summed along the canonical tree;
        `merges` says how many pairs are due after each (parallel/tree.py)."""
        kernel = self.kernels["tree_sum", kind_of(rows)]
        kernel(total.size, rows, merges, merges.size, total)

    def add(self, parts: Sequence[Tensor], total: Tensor) -> Callable[[], None]:
        return Sum(self, parts, total)


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
