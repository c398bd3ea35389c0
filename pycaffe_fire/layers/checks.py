"""Refusals that many layers share."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from ..backend.sizes import memory_shortage
from .base import Layer


def forbid_in_place(layer: Layer, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
    """For layers that read their bottoms after they began to write their tops."""
    for blob in top:
        if any(blob is other for other in bottom):
            layer.fail(f'cannot run in place; give its top another name than "{blob.name}"')


def need_axes(layer: Layer, blob: Blob, axes: int, names: str) -> None:
    """The blob must have exactly `axes` axes, which the error calls `names`."""
    if len(blob.shape) != axes:
        layer.fail(
            f'needs a bottom with {axes} axes ({names}), got "{blob.name}" {list(blob.shape)}'
        )


def need_least_axes(layer: Layer, blob: Blob, axes: int) -> None:
    """The blob must have at least `axes` axes."""
    if len(blob.shape) < axes:
        layer.fail(
            f'needs a bottom with at least {axes} axes, got "{blob.name}" {list(blob.shape)}'
        )


def need_same_shape(layer: Layer, bottom: Sequence[Blob]) -> None:
    """All given bottoms must have the shape of the first."""
    if any(blob.shape != bottom[0].shape for blob in bottom):
        told = ", ".join(f"{blob.name} {list(blob.shape)}" for blob in bottom)
        layer.fail(f"these bottoms must have one shape, got {told}")


def need_memory(layer: Layer, size: int, what: str, way_out: str) -> None:
    """Refuse `what` if it takes `size` bytes of host memory that are not there."""
    if shortage := memory_shortage(size):
        layer.fail(f"{what} {shortage}; {way_out}")
