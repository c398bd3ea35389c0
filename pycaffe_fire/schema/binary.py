"""The binary forms of weights, solver states and mean files: protobuf messages, walked by hand."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy.typing as npt

from ..errors import WeightsError
from . import wire
from .files import describe, is_foreign, read_head, replacing
from .messages import ENUMS
from .proto import NetParameter
from .records import NO_LOSS, LayerWeights, SolverStateFile
from .upgrade import V1_TYPES
from .upgrade_v0 import V0_TYPES
from .wire import FIXED32, LENGTH, VARINT, DamagedError, Data, Floats, Parts

_log = logging.getLogger(__name__)
_PROTOBUF_LIMIT = 2**31 - 1
NO_KINDS: Mapping[str, tuple[int, ...]] = {}
# Field numbers, by message.
_NET = {"name": 1, "layers": 2, "input": 3, "layer": 100}
_LAYER = {"name": 1, "type": 2, "blobs": 7}
_V1_LAYER = {"layer": 1, "name": 4, "type": 5, "blobs": 6}
_V0_LAYER = {"name": 1, "type": 2, "blobs": 50}
_STATE = {
    "iter": 1,
    "learned_net": 2,
    "history": 3,
    "current_step": 4,
    "minimum_loss": 5,
    "iter_last_event": 6,
    "fire_extra": 20000,
}
_KINDS = {
    **dict.fromkeys(("iter", "current_step", "iter_last_event"), (VARINT,)),
    "minimum_loss": (FIXED32,),
}

_NO_WEIGHTS = LayerWeights("", "", [])

T = TypeVar("T")
PathLike = str | os.PathLike[str]
Spans = dict[str, list[tuple[int, int]]]


def read_weights(path: PathLike) -> list[LayerWeights]:
    """All layers in a .caffemodel of any age."""
    return _mapped(path, ".caffemodel", _net)


def read_state(path: PathLike, history: bool) -> SolverStateFile:
    """A .solverstate; without its history if that is not wanted."""
    return _mapped(path, ".solverstate", lambda data: _state(data, history))


def read_blob(path: PathLike) -> Floats:
    """The array in a BlobProto file, such as mean.binaryproto."""
    return _mapped(path, "BlobProto", lambda data: wire.blob(data, 0, len(data)))


def write_weights(
    path: PathLike,
    net: NetParameter,
    by_name: dict[str, LayerWeights],
    diffs: bool,
    half: bool = False,
) -> None:
    """Writes the net as a .caffemodel, each layer with the blobs given under its name."""
    head = type(net)()
    head.CopyFrom(net)
    head.ClearField("layer")
    message = Parts()
    message.add(head.SerializeToString())
    for layer in net.layer:
        bare = type(layer)()
        bare.CopyFrom(layer)
        bare.ClearField("blobs")
        parts = Parts()
        parts.add(bare.SerializeToString())
        weights = by_name.get(layer.name, _NO_WEIGHTS)
        for i, array in enumerate(weights.blobs):
            diff = weights.diffs[i] if diffs else None
            parts.add_message(_LAYER["blobs"], wire.blob_parts(array, diff, half))
        message.add_message(_NET["layer"], parts)
    _write(path, message)


def write_state(path: PathLike, state: SolverStateFile) -> None:
    """Writes a .solverstate."""
    message = Parts()
    message.add_number(_STATE["iter"], state.iter)
    message.add_bytes(_STATE["learned_net"], state.learned_net.encode())
    for array in state.history:
        message.add_message(_STATE["history"], wire.blob_parts(array))
    message.add_number(_STATE["current_step"], state.current_step)
    if state.minimum_loss != NO_LOSS:
        message.add_float(_STATE["minimum_loss"], state.minimum_loss)
        message.add_number(_STATE["iter_last_event"], state.iter_last_event)
    if state.extra:
        message.add_bytes(_STATE["fire_extra"], state.extra)
    _write(path, message)


def write_blob(path: PathLike, array: npt.ArrayLike) -> None:
    """Writes an array as a BlobProto file."""
    _write(path, wire.blob_parts(array))


def _write(path: PathLike, message: Parts) -> None:
    if message.size > _PROTOBUF_LIMIT:
        _log.warning(
            "%s: %.1f GB; Caffe cannot read messages above 2 GB, use .h5 for exchange with it",
            *(os.fspath(path), message.size / 1e9),
        )
    with replacing(path, WeightsError) as temporary, open(temporary, "wb") as file:
        message.write(file)


def _mapped(path: PathLike, what: str, parse: Callable[[Data], T]) -> T:
    """What `parse` makes of the file's bytes; a file of another kind is named for what it is."""
    name = os.fspath(path)
    head = read_head(path, WeightsError, what)
    if is_foreign(head):
        raise WeightsError(f"{name}: not a {what} file: looks like {describe(head)}")
    try:
        with open(name, "rb") as file:
            return parse(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except DamagedError as problem:
        kind = describe(head)
        if what in kind:
            advice = "it is cut off or damaged: copy or download it again"
        else:
            advice = f"it looks like {kind}"
        raise WeightsError(f"{name}: not a good {what} file: {problem}; {advice}") from None
    except OSError as problem:
        raise WeightsError(f"{name}: cannot be read: {problem.strerror}") from None


def _pick(
    data: Data,
    span: tuple[int, int],
    numbers: dict[str, int],
    kinds: Mapping[str, tuple[int, ...]] = NO_KINDS,
) -> Spans:
    """Fields of a message by name: strings and messages, except for those of other wire types."""
    wanted = {n: kinds.get(name, (LENGTH,)) for name, n in numbers.items()}
    found = wire.pick(data, *span, wanted)
    return {name: found[n] for name, n in numbers.items()}


def _net(data: Data) -> list[LayerWeights]:
    net = _pick(data, (0, len(data)), _NET)
    # Both kinds in one file would be odd; Caffe lets the old one win.
    layers = [_v1_layer(data, span) for span in net["layers"]]
    layers = layers or [_layer(data, span, _LAYER) for span in net["layer"]]
    if not layers:
        raise DamagedError("there are no layers in it")
    return [layer for layer in layers if layer.type != "padding"]


def _layer(data: Data, span: tuple[int, int], numbers: dict[str, int]) -> LayerWeights:
    found = _pick(data, span, numbers)
    name = wire.text(data, found["name"])
    return LayerWeights(name, wire.text(data, found["type"]), _blobs(data, name, found["blobs"]))


def _v1_layer(data: Data, span: tuple[int, int]) -> LayerWeights:
    """A layer of the 2014 form, or one of 2013 inside it."""
    found = _pick(data, span, _V1_LAYER, {"type": (VARINT,)})
    if found["layer"]:
        old = _layer(data, found["layer"][-1], _V0_LAYER)
        if old.type in V0_TYPES:
            number = ENUMS["caffe.V1LayerParameter.LayerType"][V0_TYPES[old.type][0]]
            old.type = V1_TYPES[number]
        return old
    name = wire.text(data, found["name"])
    kind = V1_TYPES.get(wire.number(found["type"]), "")
    return LayerWeights(name, kind, _blobs(data, name, found["blobs"]))


def _blobs(data: Data, layer: str, spans: list[tuple[int, int]]) -> list[Floats]:
    blobs = []
    for i, span in enumerate(spans):
        try:
            blobs.append(wire.blob(data, *span))
        except DamagedError as problem:
            raise DamagedError(f'layer "{layer}", blob {i}: {problem}') from None
    return blobs


def _state(data: Data, history: bool) -> SolverStateFile:
    found = _pick(data, (0, len(data)), _STATE, _KINDS)
    if not found["iter"]:
        raise DamagedError("there is no iteration number in it")
    extra = found["fire_extra"]
    return SolverStateFile(
        wire.number(found["iter"]),
        wire.text(data, found["learned_net"]),
        [wire.blob(data, *span) for span in found["history"] if history],
        wire.number(found["current_step"]),
        data[extra[-1][0] : extra[-1][1]] if extra else b"",
        wire.real(data, found["minimum_loss"], NO_LOSS),
        wire.number(found["iter_last_event"]),
    )
