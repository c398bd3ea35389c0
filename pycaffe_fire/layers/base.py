"""What a layer is: declared counts of bottoms and tops, set up once, reshaped when shapes change.

The order is Caffe's and is fixed here, so a subclass never writes a constructor: check the counts,
`setup`, `reshape`, then many times `forward` and `backward`. What a type says about itself without
being built (storage, running averages, drawing ...) is in description.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

from .. import schema
from ..backend.base import Backend
from ..backend.blob import Blob, SharedBlob
from ..backend.plans import Draw, NormPlan, Rectified, Window
from ..backend.random import key
from ..backend.tensor import Layout, Tensor
from ..data.order import leaf_size
from ..errors import DataError, LayerError, NetError
from ..schema.proto import LayerParameter
from .context import Context
from .description import Description, Storage
from .fillers import fill
from .frozen import After, FrozenOp, PerChannel
from .joined import ChannelWindow, JoinedOp, Sum
from .plugins import PluginRegistry

Count = tuple[int, "int | None"]  # at least, at most (None: no limit)


class Layer(Description):
    """Base of all layers; subclasses override what they need of the hooks below.

    There from the start: `param` (the LayerParameter), `name`, `type`, `phase`, `backend` (which
    makes plans), `xp` (NumPy or CuPy, for array code) and `context` (seed, pass, leaf). `blobs` are
    the weights, made in `setup`; `param_propagate_down[i]` says whether weight i learns.
    """

    bottoms: ClassVar[Count] = (1, 1)
    tops: ClassVar[Count] = (1, 1)
    equal_counts: ClassVar[bool] = False  # as many tops as bottoms
    auto_tops: ClassVar[bool] = False  # missing tops are added without a name (losses)
    default_loss_weight: ClassVar[float] = 0.0
    sums_nothing: ClassVar[bool] = False  # do tops have a meaning where the bottom is empty?

    def __init__(self, param: Any, phase: int, backend: Backend, context: Context) -> None:
        self.param = param
        self.name: str = param.name
        self.type: str = param.type
        self.phase = phase
        self.backend = backend
        self.xp = backend.xp
        self.context = context
        self.blobs: list[Blob] = []
        self.empty = False  # do its tops hold nothing, so that there is nothing to compute?
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
        """Read and check the parameters and create the weights with `add_param`.

        Called once. The counts of blobs are checked, bottoms have their shapes, tops have none yet.
        Refuse what makes no sense with `fail`.
        """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Check the bottoms' shapes, shape every top, and ask the backend for plans.

        Called after `setup` and again whenever a bottom's shape or layout has changed. In place,
        `top[0] is bottom[0]`. The bottoms' values are not there yet.
        """

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Write every top's values (`top[i].data[...] = `), or run the plan that does.

        Where `leads` is set, the tops must also have the work of `followers` done to them. Random
        numbers come from `draw`, running averages go through `remember`.
        """

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        """From the tops' gradients (`diff`) compute those of bottoms and weights.

        Overwrite `bottom[i].diff` where `propagate_down[i]`, and leave it alone elsewhere. Add to
        `blobs[i].diff` where `param_propagate_down[i]`: the solver clears it once per iteration.
        Values are those of the last forward; in place, `bottom[0].data` holds the top's.
        """

    def separate(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Run forward again without the followers' work, after a forward that did it.

        Only for layers with `fuses_backward`. Running averages must not be updated again.
        """
        raise NotImplementedError

    def forward_again(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Write the tops of the last pass once more, and do nothing else that a pass does."""
        self.forward(bottom, top)

    def plan_ahead(self, leads: bool) -> None:
        """Make plans that are otherwise made in the first pass: their memory is to be known."""

    @property
    def passing(self) -> NormPlan | None:
        """The plan, with the work of the layers after it, whose results can lie in memory that
        others use (net/passing.py); another one after it is reshaped."""
        return None

    @property
    def forgets(self) -> bool:
        """Does backward do without the values of the bottoms?"""
        return False

    @property
    def rectified(self) -> Rectified:
        """The bottoms whose gradient backward leaves as the ReLU before it would; None if it never
        can."""
        return None

    def share_gradients(self) -> None:
        """Nobody is going to look at gradients of tops after a pass: memory may be shared."""

    def multiply_adds(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> int:
        """How many there are in the matrix products of one forward pass.

        Everything else is small beside them. A layer whose weights have two or more axes must
        override this, if only to say that it multiplies no matrices.
        """
        return 0

    def allow_force_backward(self, bottom_index: int) -> bool:
        """May force_backward send gradients to this bottom? (Not to labels.)"""
        return True

    @property
    def repeatable(self) -> bool:
        """Does another forward on the same bottoms write the same tops, and nothing else? If so, a
        pass may leave out blobs that nobody has looked at: they can be computed later."""
        return self.memory is None

    @property
    def idle(self) -> bool:
        """Has a forward pass nothing to do, because its tops are its bottoms?"""
        return type(self).forward is Layer.forward

    def places_in_top(self) -> Sequence[int] | None:
        """Where bottoms must lie in the memory of its top for a forward pass to have nothing to do:
        the number of elements before each; None: it has something to do wherever they lie."""
        return None

    def per_channel(self) -> PerChannel | None:
        """What it does to its bottom where that is one factor and one offset for each channel
        (axis 1), made of its weights as they are now; None if it is anything else."""
        return None

    @property
    def relu_slope(self) -> float | None:
        """Where it is a ReLU that ops may fuse: what values below zero are multiplied by."""
        return None

    @property
    def adds_up(self) -> bool:
        """Is its top the sum of its bottoms, and nothing else?"""
        return False

    def frozen(
        self, bottom: Blob, top: Blob, after: After, stride: tuple[int, ...] | None = None
    ) -> FrozenOp | None:
        """An op for weights that rarely change, which also does the work of the layers `after`
        this one and writes the last one's top; None: there is none, or it would not be faster.
        A convolution may be given another `stride`, and blobs to match."""
        return None

    @property
    def channel_window(self) -> Window | None:
        """Where a window goes over each channel by itself, and nothing else is done: that window"""
        return None

    def joined(
        self, bottom: Sequence[Blob], top: Sequence[Blob], after: Sum | ChannelWindow
    ) -> JoinedOp | None:
        """An op for training that also does what comes `after` this layer; None: there is none."""
        return None

    @property
    def in_sequence(self) -> bool:
        """Does a pass depend on the one before, so that ranks cannot share them?"""
        return self.memory is not None

    @property
    def feeds_leaves(self) -> bool:
        """Can only rank 0 read its data, with `produce`, for all leaves of a batch?"""
        return False

    def produce(self, leaves: int) -> list[list[Any]]:
        """The tops' values for every leaf of the next pass; on rank 0, where `feeds_leaves`."""
        raise NotImplementedError

    def findings(self) -> Any:
        """What the last pass leaves to be written, where `context.collects`; None if nothing.

        Ranks share the passes of a test; rank 0 then writes what all of them found.
        """
        return None

    def write(self, passes: Sequence[Any]) -> None:
        """Write the findings of passes, in their order."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back threads and files; a net calls it when it is closed."""

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

    def leaf_size(self, batch: int) -> int:
        """A leaf's share of a global batch that a data layer feeds."""
        try:
            return leaf_size(batch, self.context.leaves)
        except DataError as error:
            self.fail(str(error))

    def remember(self, index: int, new: Any, fade: float) -> None:
        """Let a new value into a running average: blob = fade * blob + new.

        For `forward`, once per blob and pass; `index` must be declared in `averages`. Where leaves
        run side by side, the blob waits: new values travel with the gradients, in the blob's own
        place, and `fold_average` lets their mean in once the leaves have been summed.
        """
        sums = self.remembering(index, fade)
        sums *= fade
        sums += new

    def remembering(self, index: int, fade: float) -> Any:
        """The array into which `remember` would let a new value, for an op that does it."""
        if index not in self.averages:
            self.fail(f"its class must name blob {index} in `averages`: forward changes it")
        if self.context.leaves == 1:
            return self.blobs[index].data
        self.fades[index] = fade * self.fades.get(index, 1.0)
        return self.blobs[index].diff

    def borrow(self, index: int, blob: Blob, donor: Blob) -> Blob:
        """Let a weight blob use the values of another net's."""
        if donor.shape != blob.shape:
            self.fail(
                f"weight {index} has shape {list(blob.shape)}, but the net that shares "
                f"its weights has {list(donor.shape)}"
            )
        donor.value.share()
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

    # For the net and the solver.

    def fold_average(self, index: int, mean: Any) -> None:
        """Take in the mean over all leaves of what `remember` collected in one iteration."""
        average = self.blobs[index].data
        average *= self.fades.pop(index, 1.0)
        average += mean

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
        self.empty = bool(top) and not any(blob.count for blob in top)
        nothing = bool(bottom) and not bottom[0].count and bool(top) and bool(self.bottoms[1])
        if nothing and not self.empty and not self.sums_nothing:
            self.fail(f'its bottom "{bottom[0].name}" {list(bottom[0].shape)} holds nothing')
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


def layer_class(kind: str) -> type[Layer]:
    """The class of a type, for asking it about itself; Layer if there is no such type."""
    if kind not in LAYERS:
        return Layer
    return LAYERS[kind]


class Neuron(Layer):
    """One bottom, one top of the same shape; may run in place."""

    storage = Storage.ROUNDED
    pixelwise = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if top[0] is not bottom[0]:
            top[0].reshape_like(bottom[0])


class Loss(Layer):
    """Compares predictions with labels; its first top is the loss and counts with weight 1."""

    storage = Storage.FLOAT32
    family = "loss"
    bottoms = (2, 2)
    auto_tops = True
    default_loss_weight = 1.0

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if any(blob is other for blob in top for other in bottom):
            self.fail(f'cannot run in place; give its top another name than "{top[0].name}"')
        if bottom[0].shape[:1] != bottom[1].shape[:1]:
            self.fail(
                f"predictions and labels must have the same first dimension, got "
                f"{list(bottom[0].shape)} and {list(bottom[1].shape)}"
            )
        top[0].reshape()

    @classmethod
    def prediction(cls, param: LayerParameter) -> LayerParameter | None:
        """The layer, without a name, that computes what it compares with the labels; None if that
        is its first bottom as it is."""
        return None

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 1

    def check_propagation(self, propagate_down: Sequence[bool]) -> None:
        if propagate_down[1]:
            self.fail("cannot backpropagate to its labels (bottom 1)")


def is_train(phase: int) -> bool:
    return bool(phase == schema.TRAIN)
