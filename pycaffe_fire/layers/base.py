"""What a layer is: declared counts of bottoms and tops, set up once, reshaped when shapes change.

The order is Caffe's and is fixed here, so a subclass never writes a constructor: check the counts,
`setup`, `reshape`, then many times `forward` and `backward`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

from .. import schema
from ..backend.base import Backend, Draw
from ..backend.blob import Blob, SharedBlob
from ..backend.random import key
from ..backend.tensor import Layout, Tensor
from ..data.bad_records import FAIL
from ..errors import LayerError, NetError
from .fillers import fill
from .plugins import PluginRegistry

Count = tuple[int, "int | None"]  # at least, at most (None: no limit)


@dataclass
class Context:
    """Where in the training a net stands; layers that draw numbers or read records look here.

    A pass (`step`) is one forward over the global batch, cut into `leaves` leaves; this net runs
    the leaves of `own_leaves` in turn and stands at `leaf`.
    """

    seed: int = 0
    step: int = 0
    leaf: int = 0
    leaves: int = 1
    own_leaves: tuple[int, ...] = (0,)
    iter_size: int = 1
    bad_records: str = FAIL  # or SKIP: what a record that cannot be used does
    python_modules: bool = False  # may a prototxt import the module of a Python layer?

    def on_leaves(self, own: Sequence[int], leaves: int) -> Context:
        """The same, for a net that runs these of all leaves."""
        return replace(self, leaf=own[0], leaves=leaves, own_leaves=tuple(own))


class Layer:
    """Base of all layers. Subclasses override what they need of setup/reshape/forward/backward."""

    bottoms: ClassVar[Count] = (1, 1)
    tops: ClassVar[Count] = (1, 1)
    equal_counts: ClassVar[bool] = False  # as many tops as bottoms
    auto_tops: ClassVar[bool] = False  # missing tops are added without a name (losses)
    default_loss_weight: ClassVar[float] = 0.0
    # Types of in-place layers behind this one whose work its own ops can do, in that order.
    fuses: ClassVar[tuple[str, ...]] = ()
    fuses_backward: ClassVar[bool] = False

    def __init__(self, param: Any, phase: int, backend: Backend, context: Context) -> None:
        self.param = param
        self.name: str = param.name
        self.type: str = param.type
        self.phase = phase
        self.backend = backend
        self.xp = backend.xp
        self.context = context
        self.blobs: list[Blob] = []
        self.donors: Sequence[Blob] = ()
        self.param_propagate_down: list[bool] = []
        self.loss_weights: list[float] = []
        self.follower_params: list[Any] = []
        self.followers: list[Layer] = []
        self.leads = False  # does this pass do the followers' work?
        self.fades: dict[int, float] = {}  # running averages with values waiting for `fold_average`
        # What a pass leaves for the next one, by leaf; snapshots take it along. None: nothing ever.
        self.memory: dict[int, list[Any]] | None = None
        self._planned: list[Layout] = []

    # For subclasses to override.

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read and check parameters, create weights. Called once."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops and plan; called again whenever a bottom changes."""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the tops."""

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        """Compute the bottoms' gradients where asked, and add to the weights' gradients."""

    def separate(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """After a pass that did the followers' work: redo this layer's own part of it alone.

        Only for layers with `fuses_backward`; what a pass does besides its tops stays done.
        """
        raise NotImplementedError

    def remember(self, index: int, new: Any, fade: float) -> None:
        """Let a new value into a running average: blob = fade * blob + new.

        Where leaves run side by side, the blob waits: new values travel with the gradients, in the
        blob's own place, and `fold_average` lets their mean in once the leaves have been summed.
        """
        alone = self.context.leaves == 1
        sums = self.blobs[index].data if alone else self.blobs[index].diff
        sums *= fade
        sums += new
        if not alone:
            self.fades[index] = fade * self.fades.get(index, 1.0)

    def fold_average(self, index: int, mean: Any) -> None:
        """The mean over all leaves of what `remember` collected in one iteration."""
        average = self.blobs[index].data
        average *= self.fades.pop(index, 1.0)
        average += mean

    def allow_force_backward(self, bottom_index: int) -> bool:
        """May force_backward send gradients to this bottom? (Not to labels.)"""
        return True

    def close(self) -> None:
        """Give back threads and files."""

    # For subclasses to call.

    def fail(self, message: str) -> NoReturn:
        raise LayerError(self.name, self.type, message)

    def add_param(self, shape: Sequence[int], filler: Any) -> Blob:
        """The next weight blob, filled, or taken from the net that lends its weights to ours."""
        index = len(self.blobs)
        blob = Blob(self.backend, shape, f"{self.name}[{index}]")
        if index < len(self.donors):
            blob = self.borrow(index, blob, self.donors[index])
        else:
            try:
                fill(blob, filler, key(self.context.seed, f"fill {self.name} {index}"))
            except ValueError as error:
                self.fail(str(error))
        self.blobs.append(blob)
        return blob

    def borrow(self, index: int, blob: Blob, donor: Blob) -> Blob:
        """Let a weight blob use the values of another net's."""
        if donor.shape != blob.shape:
            self.fail(
                f"weight {index} has shape {list(blob.shape)}, but the net that shares "
                f"its weights has {list(donor.shape)}"
            )
        if isinstance(donor, SharedBlob):  # its storage has the shape of another layer's blob
            return SharedBlob(donor, donor.shape, blob.name)
        blob.value = donor.value
        blob.gradient.lay_out(donor.value.layout)
        return blob

    @property
    def fused_relu(self) -> float | None:
        """The slope of a ReLU among the followers."""
        relus = [p.relu_param.negative_slope for p in self.follower_params if p.type == "ReLU"]
        return relus[0] if relus else None

    def draw(self, num: int) -> Draw:
        """Random numbers for this pass, for `num` samples of this leaf."""
        ctx = self.context
        return Draw(key(ctx.seed, f"layer {self.name}"), ctx.step, ctx.leaf * num)

    def axis(self, blob: Blob, axis: int, field: str = "axis") -> int:
        """`axis` counted from the front, or the named error."""
        try:
            return blob.canonical_axis(axis)
        except IndexError as error:
            self.fail(f"{field}: {error}")

    @property
    def bottom(self) -> list[str]:
        """The names of its bottoms."""
        return list(self.param.bottom)

    @property
    def top(self) -> list[str]:
        return list(self.param.top)

    # For the net.

    def check_counts(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for what, blobs, (low, high) in (
            ("bottom", bottom, self.bottoms),
            ("top", top, self.tops),
        ):
            if len(blobs) < low or (high is not None and len(blobs) > high):
                expected = _count_phrase(low, high, what)
                names = ", ".join(b.name for b in blobs) or "none"
                self.fail(f"expects {expected}, got {len(blobs)} ({names})")
        if self.equal_counts and len(bottom) != len(top):
            self.fail(f"expects as many tops as bottoms, got {len(top)} and {len(bottom)}")

    def plan(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Reshape, and remember for which layouts, so that `stale` can tell."""
        self.reshape(bottom, top)
        self._planned = [t.layout for t in self._watched(bottom)]

    def stale(self, bottom: Sequence[Blob]) -> bool:
        return any(
            t.layout is not planned
            for t, planned in zip(self._watched(bottom), self._planned, strict=True)
        )

    def _watched(self, bottom: Sequence[Blob]) -> list[Tensor]:
        return [b.value for b in bottom]


def _count_phrase(low: int, high: int | None, what: str) -> str:
    if high is None:
        return f"at least {low} {what}{'s' if low != 1 else ''}"
    if low == high:
        return f"{low} {what}{'s' if low != 1 else ''}"
    return f"{low} to {high} {what}s"


LAYERS: PluginRegistry[type[Layer]] = PluginRegistry(
    "layer type", NetError, "pycaffe_fire.layers", Layer
)
register_layer = LAYERS.register


class Neuron(Layer):
    """One bottom, one top of the same shape; may run in place."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if top[0] is not bottom[0]:
            top[0].reshape_like(bottom[0])


class Loss(Layer):
    """Compares predictions with labels; its first top is the loss and counts with weight 1."""

    bottoms = (2, 2)
    auto_tops = True
    default_loss_weight = 1.0

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if bottom[0].shape[:1] != bottom[1].shape[:1]:
            self.fail(
                f"predictions and labels must have the same first dimension, got "
                f"{list(bottom[0].shape)} and {list(bottom[1].shape)}"
            )
        top[0].reshape()

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 1

    def check_propagation(self, propagate_down: Sequence[bool]) -> None:
        if propagate_down[1]:
            self.fail("cannot backpropagate to its labels (bottom 1)")


def is_train(phase: int) -> bool:
    return bool(phase == schema.TRAIN)
