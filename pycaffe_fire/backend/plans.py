"""What backends plan: ops for fixed blobs, built once and run many times, and what they are told.

`base.py` has the ops themselves, which return these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from .tensor import Array, Tensor

if TYPE_CHECKING:
    from .blob import Blob


T = TypeVar("T")


@dataclass(frozen=True)
class Window:
    """The geometry of a sliding window, one number per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]


@dataclass(frozen=True)
class Draw:
    """Where in the global random sequence a pass stands (see backend/random.py)."""

    key: int
    step: int
    first_sample: int


# The numbers of inputs that a ReLU without a slope has just worked on in place, and whose gradient
# `backward` is to write as that ReLU would leave it: with 0 where the input is not above 0. Others
# may change the set before each pass. None: a plan that cannot do that.
Rectified = set[int] | None


class Plan(ABC):
    """An op with one input and one output, planned for fixed blobs."""

    joins = False  # does `Backend.joined` take it?

    @property
    def rectified(self) -> Rectified:
        return None

    @abstractmethod
    def forward(self) -> None: ...

    @abstractmethod
    def backward(self) -> None:
        """Write the input's gradient from the output's."""


@dataclass(frozen=True)
class Segment:
    """The place of one parameter in the flat buffers, and its own multipliers."""

    start: int
    stop: int
    lr_mult: float
    decay_mult: float


def pieces(segments: Sequence[Segment], most: int) -> Array:
    """Rows (start, stop, segment) of at most `most` elements that never cross two segments."""
    rows = [
        (start, min(start + most, segment.stop), index)
        for index, segment in enumerate(segments)
        for start in range(segment.start, segment.stop, most)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


@dataclass(frozen=True)
class Formula:
    """An update rule as array code, and the name of kernels that compute the same faster.

    apply(xp, w, g, *history, rate, *numbers) changes w and history in place, with functions that
    NumPy and CuPy both have. They are the flat arrays of one parameter; g is its gradient with
    weight decay. Decoupled, g comes without, and the decay, of the shape of w, is a last argument.
    A backend that has no kernel of that name runs the array code.
    """

    apply: Callable[..., None]
    kernel: str | None = None
    decoupled: bool = False


class UpdateStep(ABC):
    """An update rule planned for the segments of a net."""

    recordable = True  # does a Recorder replay it with the numbers of each iteration?

    @abstractmethod
    def __call__(
        self,
        weights: Array,
        gradients: Array,
        history: Sequence[Array],
        rate: float,
        decay: float,
        l1: bool,
        scale: float,
        numbers: Sequence[float],
        rates: Array | None = None,
    ) -> None:
        """Update flat weights and history in place from gradients * scale; `numbers` are the
        rule's own (momentum and the like); `rates`, one for each segment, replace rate and
        lr_mult."""  # fmt: skip


class SegmentDots(ABC):
    """Inner products of two flat buffers, one for each segment of a net."""

    @abstractmethod
    def __call__(self, a: Array, b: Array) -> Array:
        """In double precision, where the buffers are; the same for any number of threads."""


class LossScale(ABC):
    """A factor on all losses that keeps small gradients from vanishing where 16 bits store them."""

    factor: Any  # a number, or an array that holds it on a device

    @abstractmethod
    def unscale(self, gradients: Array) -> None:
        """Divide by the factor, and choose the next one; after an overflow, the update that
        follows does nothing."""  # fmt: skip

    @abstractmethod
    def state(self) -> list[float]:
        """What snapshots take along."""

    @abstractmethod
    def restore(self, state: list[float]) -> None: ...

    def news(self) -> str | None:
        """What has changed since the last call; a device is waited for."""
        return None


class ImageTransform(ABC):
    """Caffe's transform of images that are handed over as bytes (data/pixels.py)."""

    @abstractmethod
    def __call__(self, records: Array | DeviceRecords, tensor: Tensor) -> None:
        """Give a tensor (N, C, H, W) the values (pixel - mean) * scale; a host array must stay as
        it is until finish_uploads."""


class DeviceRecords(ABC):
    """A host array of records (data/pixels.py), and its copy on a device that decodes some of them
    itself. Only one thread at a time has it in its hands."""

    host: Array
    dtype = np.dtype(np.int32)

    @abstractmethod
    def wait(self) -> None:
        """Until the host array may be written again."""

    @abstractmethod
    def fill(self, decoded: Mapping[int, Any], shape: tuple[int, int, int]) -> None:
        """Begin to bring all records to the device: those of `decoded`, which has their images by
        number, cut to `shape` at the place that the host array tells, others as they are there."""


class ImageDecoder(ABC):
    """A device that decodes JPEGs; called by the threads of loaders."""

    @abstractmethod
    def decode(self, jpegs: Sequence[bytes], shapes: Sequence[tuple[int, int, int]]) -> list[Any]:
        """Begin to decode images of these shapes, all with as many channels; None for each that
        the device refuses."""

    @abstractmethod
    def records(self, host: Array) -> DeviceRecords:
        """What will hold batches of records; `host` is one of the backend's host buffers."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all that was begun is done: a loader is closed, and its memory goes."""


class Recorder(ABC):
    """Work that a device has recorded once and repeats without being told every step again."""

    @abstractmethod
    def record(self, body: Callable[[], T]) -> T:
        """Run `body`, whose work is recorded instead of done, and return what it returns."""

    @abstractmethod
    def changing(self) -> AbstractContextManager[None]:
        """While recording: the numbers of kernels launched inside may differ next time."""

    @abstractmethod
    def refreshing(self) -> AbstractContextManager[None]:
        """Before a replay: the same kernels are launched inside, to give their new numbers."""

    @abstractmethod
    def replay(self, step: int) -> None:
        """Do the work, with random numbers of this step."""

    @abstractmethod
    def copied(self, number: Any) -> Any:
        """A recorded loss as it is after this replay; the next one overwrites it."""


class PoolingPlan(Plan):
    """Pooling, which may have to tell where each maximum came from."""

    forgets = False  # does backward do without the input's value?

    @property
    def mask(self) -> Array:
        """Each winner's index in its flattened image, if the plan was asked for it."""
        raise NotImplementedError


class JoinPlan(ABC):
    """An op with several inputs and one output."""

    @property
    def rectified(self) -> Rectified:
        return None

    @abstractmethod
    def forward(self, activate: bool = True) -> None:
        """Run; `activate=False` leaves out a fused ReLU."""

    @abstractmethod
    def backward(self, wanted: Sequence[bool]) -> None:
        """Write the gradients of the inputs that want one."""

    def places(self) -> Sequence[int] | None:
        """Where inputs must lie in the output's memory for `forward` to have nothing to do: the
        number of elements before each; None: it has something to do wherever they lie."""
        return None

    def share_gradients(self) -> None:  # noqa: B027
        """From now on nobody looks at the output's gradient after `backward`: those of inputs may
        be in its memory."""


class ChannelPlan(ABC):
    """An op with one or two parameters per channel (axis 1)."""

    @abstractmethod
    def forward(self) -> None: ...

    @abstractmethod
    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        """Write the input's gradient, add to those of the parameters."""


@dataclass(frozen=True)
class RunningMoments:
    """Running sums of means and variances, and how much they hold."""

    means: Array
    variances: Array
    weight: Array
    fade: float
    unbiased: float  # a factor on variances

    def let_in(self, mean: Array, variance: Array) -> None:
        """They fade, then take in a mean, a variance, and 1."""
        pairs = ((self.means, mean), (self.variances, self.unbiased * variance), (self.weight, 1))
        for sums, new in pairs:
            sums *= self.fade
            sums += new


class NormPlan(ABC):
    """Batch normalisation with its statistics, one number per channel."""

    mean: Tensor
    variance: Tensor

    @property
    def can_pass(self) -> bool:
        """Can its results lie in memory that others use between passes?"""
        return False

    def pass_on(self, memory: Array) -> None:  # noqa: B027
        """Write results to `memory` from now on, where they last until others use it."""

    def take_back(self) -> None:  # noqa: B027
        """The blob's input is going to be written again: where it was, not to that memory."""

    def show_passed(self) -> None:  # noqa: B027
        """Make the blob hold the last result, in memory of its own."""

    @abstractmethod
    def forward(self, running: RunningMoments | None = None) -> None:
        """Computes `mean` and `variance` of the batch and lets them into running sums, or uses
        them if they are global."""

    @abstractmethod
    def restore(self) -> None:
        """After a forward pass in place: give the blob its input back."""

    @abstractmethod
    def backward(self, data: bool, scale: bool, shift: bool) -> None:
        """Write the input's gradient, add to those of scale and shift."""


@dataclass(frozen=True)
class Norm:
    """How a blob is normalised in place: by statistics of the batch or by given ones, then scaled,
    shifted and rectified (with this slope below 0), where those are there."""

    scale: Blob | None
    shift: Blob | None
    eps: float
    global_stats: bool
    relu: float | None


class Moments(Protocol):
    """What has mean and variance of every channel."""

    mean: Tensor
    variance: Tensor


class NormWindowPlan(ABC):
    """A blob x is normalised in place, a window goes over each of its channels, and the result z is
    normalised in place. What the first norm gives is not written."""

    moments: tuple[Moments, Moments]  # of both norms; to be given where they are global

    @abstractmethod
    def forward(self, running: Sequence[RunningMoments | None]) -> None:
        """As NormPlan's, for both norms."""

    @abstractmethod
    def show(self) -> None:
        """After a forward pass: write what the first norm gives, and keep x elsewhere."""

    @abstractmethod
    def hide(self) -> None:
        """Give x back to a blob that has been shown that."""

    @abstractmethod
    def backward(self, learns: Sequence[Sequence[bool]], weights: bool, keep: bool) -> None:
        """From z's gradient after the second norm write x's before the first, add to those of
        scales and shifts (which of each norm's is in `learns`) and of the weights; `keep`: also
        write z's gradient before the norm."""


class NormSumPlan(ABC):
    """Batch normalisation y of x, added to another blob. Of y only the sum is written."""

    mean: Tensor
    variance: Tensor

    @abstractmethod
    def forward(self, running: RunningMoments | None = None) -> None:
        """As NormPlan's; writes the sum."""

    @abstractmethod
    def show(self) -> None:
        """After a forward pass: write y as it was added, and keep x for backward elsewhere if it is
        the same blob."""  # fmt: skip

    @abstractmethod
    def hide(self) -> None:
        """Give x back to a blob that has been shown y."""

    @abstractmethod
    def backward(self, data: bool, scale: bool, shift: bool, addend: bool, keep: bool) -> None:
        """From the gradients of the sum's readers write those of the sum, of x, and of what was
        added; add to those of scale and shift; `keep`: also write y's before it was scaled."""


class WeightedPlan(ABC):
    """An op with parameters. `backward` accumulates into parameter gradients, as Caffe does."""

    packs = False  # does forward run on a form of the weights that `pack` makes?
    joins = False  # does `Backend.joined` take it?

    @property
    def rectified(self) -> Rectified:
        return None

    @abstractmethod
    def forward(self, activate: bool = True) -> None:
        """Run; `activate=False` leaves out the fused ReLU."""

    @abstractmethod
    def backward(self, data: bool, weights: bool, bias: bool) -> None: ...

    def plan_ahead(self) -> None:  # noqa: B027
        """All blobs lie where they will while the net runs: plan what depends on it."""

    def pack(self) -> None:  # noqa: B027
        """If it `packs`: take over the weights as they are now, in the form that forward likes
        best; later changes count only when this is called again."""


@dataclass(frozen=True)
class LabelLoss:
    """How predictions are compared with class labels."""

    labels: Blob
    ignore: int | None  # a label that does not count
    smoothing: float
    weights: Array | None  # one for each class
    normalizer: float | None  # what the sum is divided by; None: the number of labels that count
    refuse: Callable[[float, int], None]  # raises the error of a wrong label, given its sample


class LossPlan(Plan):
    """A loss; `backward` multiplies by the loss's own gradient."""

    prob: Array  # the probabilities of the last forward


class MaskedPlan(ABC):
    """An op whose forward pass draws random numbers."""

    @abstractmethod
    def forward(self, draw: Draw) -> None: ...

    @abstractmethod
    def backward(self) -> None:
        """Uses the same draw as the last forward."""
