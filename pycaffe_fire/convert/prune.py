"""A net cut down to what some of its blobs need, or under other names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .. import schema
from ..errors import ConvertError
from ..registry import did_you_mean
from ..schema.proto import LayerParameter
from .model import Model


def with_layers(model: Model, layers: Iterable[LayerParameter], notes: Iterable[str] = ()) -> Model:
    """The model with these layers in place of its own."""
    param = schema.NetParameter()
    param.CopyFrom(model.param)
    del param.layer[:]
    param.layer.extend(layers)
    names = {layer.name for layer in param.layer}
    weights = {name: blobs for name, blobs in model.weights.items() if name in names}
    return Model(
        param, weights, model.source, model.weights_source, [*model.notes, *notes]
    )  # fmt: skip


def pruned(model: Model, outputs: Iterable[str]) -> Model:
    """Only the layers that these blobs depend on."""
    needed = set(outputs)
    known = {name for layer in model.param.layer for name in layer.top}
    for name in needed:
        if name not in known:
            raise ConvertError(f'no blob "{name}" in the net{did_you_mean(name, sorted(known))}')
    kept = []
    for layer in reversed(model.param.layer):
        if needed.intersection(layer.top):
            kept.append(layer)
            needed.update(layer.bottom)
    dropped = len(model.param.layer) - len(kept)
    notes = [f"{dropped} layer(s) dropped that the outputs do not need"] if dropped else []
    return with_layers(model, reversed(kept), notes)


def renamed(model: Model, names: Mapping[str, str]) -> Model:
    """Layers and blobs of the given names under others."""
    param = schema.NetParameter()
    param.CopyFrom(model.param)
    known = {layer.name for layer in param.layer}
    known |= {name for layer in param.layer for name in layer.top}
    for old in names:
        if old not in known:
            raise ConvertError(
                f'no layer or blob "{old}" to rename{did_you_mean(old, sorted(known))}'
            )
    for layer in param.layer:
        layer.name = names.get(layer.name, layer.name)
        for ends in (layer.bottom, layer.top):
            ends[:] = [names.get(name, name) for name in ends]
    labels = [layer.name for layer in param.layer]
    twice = next((name for name in labels if labels.count(name) > 1 and name in names.values()), "")
    if twice:
        raise ConvertError(f'"{twice}" is the name of another layer already')
    weights = {names.get(name, name): blobs for name, blobs in model.weights.items()}
    return Model(param, weights, model.source, model.weights_source, list(model.notes))
