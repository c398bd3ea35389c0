"""What a layer type says about itself, for code that must not know types by name.

All of it can be asked of the class, with a LayerParameter in hand and no layer built; only
`multiply_adds` (see base.py) needs blobs. Subclasses inherit the answers. tests/layers checks that
every registered type gives those that would be wrong by default.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Any, ClassVar

from ..schema.messages import fields_of
from ..schema.proto import LayerParameter
from .coordinates import SAME, CoordMap, UndefinedMapException


class Storage(Enum):
    """How the tops of a layer may be stored where a net asks for 16 bits (see net/storage.py)."""

    ROUNDED = "rounded"  # computed values, which may be rounded to 16 bits
    MOVED = "moved"  # values of the first bottom, maybe labels: stored as they were there
    FLOAT32 = "float32"  # data, labels, losses, probabilities, indices, boxes: never rounded


class Description:
    """Class attributes and class methods that describe a layer type; base of Layer.

    Ask the class: `type(layer).averages`. On a Python layer, the user's attributes hide these.
    """

    # The field of LayerParameter that holds the type's own parameters. None: the field whose
    # message is named after the type, such as `PoolingParameter pooling_param` for "Pooling".
    param_field: ClassVar[str | None] = None
    also_reads: ClassVar[tuple[str, ...]] = ()  # other fields with parameters that it looks at

    # How tops may be stored. Every type must say so, or inherit it from a base that does. Tops
    # with these numbers hold indices and stay float32 in any case.
    storage: ClassVar[Storage] = Storage.FLOAT32
    index_tops: ClassVar[tuple[int, ...]] = ()

    # Numbers of the weight blobs that the forward pass changes: running averages. `remember`
    # refuses others. Numbers beyond the blobs that a layer has do no harm.
    averages: ClassVar[tuple[int, ...]] = ()

    # Does every pixel of a top lie on the same pixel of the bottoms?
    pixelwise: ClassVar[bool] = False

    # Is bottom 1 a class label for each prediction in bottom 0?
    compares_labels: ClassVar[bool] = False

    # Does it only judge what a net found, or choose what it learns from: of no use to a net in use?
    # Losses and layers that compare labels do so anyway.
    judges: ClassVar[bool] = False

    # Do its tops hold nothing that its bottoms could learn from (indicators, indices, choices)?
    stops_gradients: ClassVar[bool] = False

    # Does `engine: CUDNN` make a difference on a GPU?
    has_cudnn: ClassVar[bool] = False

    # The colour in drawings: data, convolution, pooling, product, joint, loss, score or other.
    family: ClassVar[str] = "other"

    # Does backward read what forward has kept besides blobs? Then forward must have run before.
    needs_forward: ClassVar[bool] = True

    # Types of in-place layers after this one whose work its own ops can do, in that order.
    fuses: ClassVar[tuple[str, ...]] = ()
    fuses_backward: ClassVar[bool] = False  # also their backward passes; needs `separate`

    joins: ClassVar[bool] = False  # may `joined` have an op that also does what takes its top?

    @classmethod
    def field_of(cls, kind: str) -> str | None:
        """`param_field` for a layer of type `kind`; None if there is no such field."""
        return cls.param_field or fields_by_type().get(kind)

    @classmethod
    def unread(cls, param: LayerParameter) -> list[str]:
        """Fields with parameters of other types, which a layer of this type does not look at."""
        read = {cls.field_of(param.type), *cls.also_reads}
        given = [field.name for field, _ in param.ListFields()]
        return [name for name in given if name.endswith("_param") and name not in read]

    @classmethod
    def own_param(cls, param: LayerParameter) -> Any:
        """The message with the type's own parameters; None if there is none."""
        field = cls.field_of(param.type)
        return getattr(param, field) if field else None

    @classmethod
    def describe(cls, param: LayerParameter) -> str:
        """What matters most about a layer, for drawings, without its type: `64 of 7x7`."""
        return ""

    @classmethod
    def outputs(cls, param: LayerParameter) -> int | None:
        """How many channels or classes its tops have, where its parameters say so."""
        return getattr(cls.own_param(param), "num_output", None) or None

    @classmethod
    def batch_size(cls, param: LayerParameter) -> int | None:
        """How many samples it feeds into a net in one pass, where its parameters say so."""
        return getattr(cls.own_param(param), "batch_size", None) or None

    @classmethod
    def object_labels(cls, param: LayerParameter) -> range | None:
        """Classes that objects in its last bottom may have; None if it reads no objects."""
        return None

    @classmethod
    def can_fuse(cls, follower: LayerParameter) -> bool:
        """Can it do the work of this in-place layer, whose type is one of `fuses`?"""
        return follower.type != "ReLU" or bool(follower.relu_param.negative_slope >= 0)

    @classmethod
    def can_lead(cls, param: LayerParameter) -> bool:
        """Do its ops do the work of layers after it, with these parameters?"""
        return True

    @classmethod
    def spans_leaves(cls, param: LayerParameter) -> bool:
        """Do its results in training depend on all leaves of a batch?"""
        return False

    @classmethod
    def coordinates(cls, param: LayerParameter, bottom: int = 0) -> CoordMap:
        """Where a pixel of a bottom lies in the tops; raises UndefinedMapException if nowhere."""
        if cls.pixelwise:
            return SAME
        raise UndefinedMapException(f"{param.type} layers do not map pixels to pixels")


@cache
def fields_by_type() -> dict[str, str]:
    """Types to the fields of LayerParameter whose messages are named after them."""
    found: dict[str, str] = {}
    for field in fields_of(LayerParameter()).values():
        if field.kind == "message" and field.name.endswith("_param"):
            kind = field.type_name.rpartition(".")[2].removesuffix("Parameter")
            found.setdefault(kind, field.name)
    return found


def window_text(param: Any) -> str:
    """`3x3, stride 2, pad 1` of a convolution or pooling; what is usual is left out."""

    def sides(whole: str, stem: str, usual: int) -> list[int]:
        given = getattr(param, whole)
        values = list(given) if hasattr(given, "__len__") else [given]
        low, high = getattr(param, f"{stem}_h"), getattr(param, f"{stem}_w")
        if low or high:
            return [low, high]
        return (values * 2)[:2] if len(values) == 1 else values or [usual] * 2

    text = "x".join(map(str, sides("kernel_size", "kernel", 1)))
    for name, usual in (("stride", 1), ("pad", 0)):
        values = sides(name, name, usual)
        if any(value != usual for value in values):
            alike = len(set(values)) == 1
            text += f", {name} {values[0] if alike else 'x'.join(map(str, values))}"
    dilation = list(getattr(param, "dilation", []))
    return text + (f", dilation {dilation[0]}" if dilation and dilation[0] != 1 else "")
