"""Two nets on the same weights: what one learns or is given, the other computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..backend.blob import Blob, SharedBlob
from ..errors import ArgumentError, LayerError
from ..layers import Layer

if TYPE_CHECKING:
    from .net import Net


def share_weights(taker: Net, giver: Net) -> None:
    """Let `taker` use the weights of `giver` in all layers of the same name; both hold the
    giver's values then. Layers that only one of them has stay as they are."""  # fmt: skip
    pairs = _matching(taker, giver)
    if taker.parameters.trained and giver.parameters.trained:
        raise ArgumentError(
            "both nets are trained by a solver, and each solver updates weights of its own; train "
            "with one of them and let the other's net be a net without a solver, or copy weights "
            "after each step"
        )
    if taker.parameters.trained:  # a solver counts on the place of its weights
        for mine, theirs in pairs:
            mine.value.array[...] = theirs.value.array
        taker, giver, pairs = giver, taker, [(theirs, mine) for mine, theirs in pairs]
    for mine, theirs in pairs:
        mine.value = theirs.value
        mine.value.share()
        mine.gradient.pinned = False
        mine.gradient.lay_out(theirs.value.layout)
        mine.gradient.pinned = True
    _refresh_views(taker)
    taker.reshape()  # new plans, on the new weights


def _matching(taker: Net, giver: Net) -> list[tuple[Blob, Blob]]:
    """Pairs of the taker's and the giver's own blobs, each of the taker's once."""
    if taker.backend.name != giver.backend.name:
        raise ArgumentError(
            f"nets share weights on one kind of device only, got {taker.backend.name} and "
            f"{giver.backend.name}"
        )
    given = {layer.name: layer for layer in giver.layers}
    pairs: dict[int, tuple[Blob, Blob]] = {}
    for layer in taker.layers:
        source = given.get(layer.name)
        if source is None or not layer.blobs:
            continue
        _check(layer, source)
        for mine, theirs in zip(layer.blobs, source.blobs, strict=True):
            if isinstance(mine, SharedBlob):  # a view of another of our layers' weights
                continue
            if theirs.value.shape != mine.shape:
                raise LayerError(
                    layer.name, layer.type,
                    "shares its weights with an unlike layer in the other net, but not here",
                )  # fmt: skip
            pairs.setdefault(id(mine), (mine, theirs))
    return list(pairs.values())


def _check(layer: Layer, source: Layer) -> None:
    mine, theirs = ([list(blob.shape) for blob in each.blobs] for each in (layer, source))
    if mine != theirs:
        raise LayerError(
            layer.name, layer.type, f"has weights of shapes {mine}, the other net's has {theirs}"
        )


def _refresh_views(net: Net) -> None:
    """Blobs that show another layer's weights in another shape look at the new ones."""
    for layer in net.layers:
        for blob in layer.blobs:
            if isinstance(blob, SharedBlob):
                blob.value, blob.gradient = blob.owner.value, blob.owner.gradient
