"""The deploy net of a training net: inputs instead of data, outputs instead of losses.

Works on messages alone. A loss gives way to what it computes inside (softmax, sigmoid); branches
that led to other losses and scores only are left out, and so is what only training needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import Message

from .. import schema
from ..backend import cpu_backend
from ..errors import FireError, NetError
from ..layers import Context, DataLayer, layer_class
from ..layers.base import Loss
from ..registry import did_you_mean
from ..schema.messages import fields_of
from ..schema.proto import LayerParameter, NetParameter
from .graph import filter_net
from .net import Net

OUTPUT = "prob"


@dataclass
class Deployed:
    """The derived net; its outputs; losses and scores that nothing in it leads to any more."""

    net: NetParameter
    outputs: list[str]
    left_out: list[str] = field(default_factory=list)


def derive_deploy(
    param: NetParameter,
    image: Sequence[int] | None = None,
    outputs: Sequence[str] = (),
    source: str = "the net",
) -> Deployed:
    """The net that classifies: `image` is channels, height, width where the prototxt tells less.

    `outputs` names the blobs to keep; else they are those of the losses with the largest weight.
    """
    layers = list(_test_net(param).layer)
    losses = [layer for layer in layers if issubclass(layer_class(layer.type), Loss)]
    heads = _heads(losses) if not outputs else []
    last = [layer for layer in layers if ends(layer)]
    body = [layer for layer in layers if layer not in last and layer.bottom]
    made = [_inside(loss, heads) for loss in heads]
    wanted = list(outputs) or [layer.bottom[0] for layer in heads] or _last(body)
    _check_outputs(wanted, body, source)
    kept = _leading_to(wanted, body)
    result = schema.NetParameter(name=param.name)
    result.layer.extend(_inputs([*layers, *param.layer], kept, wanted, image, source))
    for layer in kept:
        result.layer.add().CopyFrom(_without_training(layer))
    found = list(outputs) or [
        new.top[0] if new else head.bottom[0] for head, new in zip(heads, made, strict=True)
    ]
    result.layer.extend(new for new in made if new)
    left_out = [loss.name for loss in last if not _joins(loss, kept) and loss not in heads]
    return Deployed(result, found or wanted, left_out)


def _test_net(param: NetParameter) -> NetParameter:
    copy = schema.NetParameter()
    copy.CopyFrom(param)
    copy.state.phase = schema.TEST
    return filter_net(copy)


def ends(layer: LayerParameter) -> bool:
    """Losses, what scores them, and layers without tops: nothing that a net in use needs."""
    kind = layer_class(layer.type)
    judges = kind.judges or kind.compares_labels or issubclass(kind, Loss)
    return bool(layer.bottom) and (judges or not layer.top)


def prediction(loss: LayerParameter) -> LayerParameter | None:
    """What a loss computes of its first bottom before it compares, as a layer without a name."""
    kind = layer_class(loss.type)
    return kind.prediction(loss) if issubclass(kind, Loss) else None


def _weight(loss: LayerParameter) -> float:
    return float(loss.loss_weight[0]) if loss.loss_weight else 1.0


def _heads(losses: Sequence[LayerParameter]) -> list[LayerParameter]:
    """Auxiliary heads, as GoogLeNet's, have smaller weights."""
    heaviest = max((_weight(loss) for loss in losses), default=0.0)
    return [loss for loss in losses if _weight(loss) == heaviest]


def _inside(loss: LayerParameter, heads: Sequence[LayerParameter]) -> LayerParameter | None:
    made = prediction(loss)
    if made is not None:
        made.name = OUTPUT if len(heads) == 1 else f"{loss.name}_{OUTPUT}"
        made.bottom.append(loss.bottom[0])
        made.top.append(made.name)
    return made


def _last(body: Sequence[LayerParameter]) -> list[str]:
    """The tops that no layer reads."""
    read = {name for layer in body for name in layer.bottom if name not in layer.top}
    return [name for layer in body for name in layer.top if name not in read][-1:]


def _check_outputs(wanted: Sequence[str], body: Iterable[LayerParameter], source: str) -> None:
    known = list(dict.fromkeys(name for layer in body for name in layer.top))
    if not wanted:
        raise NetError(f"{source}: has no layers that compute anything of data")
    for name in wanted:
        if name not in known:
            raise NetError(
                f'{source}: no blob "{name}" to be an output{did_you_mean(name, known)}; it has: '
                f"{', '.join(known)}"
            )


def _leading_to(wanted: Sequence[str], body: Sequence[LayerParameter]) -> list[LayerParameter]:
    """The layers that the wanted blobs come from, in-place layers included."""
    needed, kept = set(wanted), []
    for layer in reversed(body):
        if needed & set(layer.top):
            kept.append(layer)
            needed |= set(layer.bottom)
    return kept[::-1]


def _joins(end: LayerParameter, kept: Sequence[LayerParameter]) -> bool:
    """Does a loss or score read what the deploy net still computes?"""
    return bool(set(end.bottom[:1]) & {name for layer in kept for name in layer.top})


def _inputs(
    layers: Sequence[LayerParameter],
    kept: Sequence[LayerParameter],
    wanted: Sequence[str],
    image: Sequence[int] | None,
    source: str,
) -> Iterable[LayerParameter]:
    """An Input for every blob that is read but no longer made, shaped as `layers` make it."""
    made = {name for layer in kept for name in layer.top if name not in layer.bottom}
    needed = [name for layer in kept for name in layer.bottom if name not in made]
    for name in dict.fromkeys([*needed, *(w for w in wanted if w not in made)]):
        maker = next((layer for layer in layers if name in layer.top), None)
        if maker is None:
            raise NetError(f'{source}: no layer makes the blob "{name}"')
        layer = schema.LayerParameter(name=name, type="Input", top=[name])
        layer.input_param.shape.add(dim=[1, *_shape(maker, name, image, source)])
        yield layer


def _shape(maker: LayerParameter, name: str, image: Sequence[int] | None, source: str) -> list[int]:
    """What one sample looks like: as given, as the prototxt says, or as the data is."""
    kind, index = layer_class(maker.type), list(maker.top).index(name)
    given = _given_shapes(maker)
    if index < len(given):
        return given[index][1:]
    if issubclass(kind, DataLayer) and not index:
        shape = list(image or kind.image_shape(maker) or ())
        if shape:
            return shape
    try:
        reader = Net(schema.NetParameter(layer=[maker]), cpu_backend(1), Context())
        shape = list(reader.blobs[name].shape[1:])
        reader.close()
    except FireError as error:
        raise NetError(
            f'{source}: the shape of "{name}" is not in the prototxt, and its data cannot be read '
            f"({error}); give it: --shape channels,height,width"
        ) from None
    return shape


def _given_shapes(maker: LayerParameter) -> list[list[int]]:
    """The shapes that Input and DummyData state; one may stand for all tops."""
    param = layer_class(maker.type).own_param(maker)
    shapes = [list(shape.dim) for shape in getattr(param, "shape", ())]
    return shapes * len(maker.top) if len(shapes) == 1 else shapes


def _without_training(layer: LayerParameter) -> LayerParameter:
    """A copy without phases, rates and fillers; names that share weights stay."""
    made = schema.LayerParameter()
    made.CopyFrom(layer)
    for name in ("include", "exclude", "loss_weight", "propagate_down", "phase"):
        made.ClearField(name)
    shared = any(spec.name for spec in made.param)
    names = [spec.name for spec in made.param] if shared else []
    del made.param[:]
    for name in names:
        made.param.add(name=name)
    _drop_fillers(made)
    return made


def _drop_fillers(message: Message) -> None:
    """Weights come from a file."""
    fields = fields_of(message)
    for descriptor, value in message.ListFields():
        about = fields[descriptor.name]
        if about.kind != "message" or about.repeated:
            continue
        if about.type_name.rpartition(".")[2] == "FillerParameter":
            message.ClearField(descriptor.name)
        else:
            _drop_fillers(value)
