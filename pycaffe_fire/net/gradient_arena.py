"""Memory for gradients: blobs whose gradients are never alive together share it.

A blob's gradient is born when the layer above it runs backward and dies when the layer that made
the blob has run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .arena import Lifetime, place

if TYPE_CHECKING:
    from .net import Net


def share_gradients(net: Net) -> None:
    """Bind the gradients of all blobs inside the net to one arena."""
    lifetimes = _lifetimes(net)
    size = place(lifetimes)
    arena = net.backend.empty(size)
    for life in lifetimes:
        life.tensor.bind(arena[life.offset : life.offset + life.elements])
        life.tensor.clear()


def planned_elements(net: Net, shared: bool) -> tuple[int, int]:
    """How many float32 words the net's blobs will take: values, and gradients once it has run."""
    values = {id(blob.value): blob.value for tops in net.tops for blob in tops}
    lifetimes = _lifetimes(net)
    gradients = place(lifetimes) if shared else sum(life.elements for life in lifetimes)
    return sum(tensor.words for tensor in values.values()), gradients


def _lifetimes(net: Net) -> list[Lifetime]:
    """Gradients the outside may look at (inputs, outputs, losses) are left alone."""
    kept = {id(net.blobs[name].gradient) for name in (*net.inputs, *net.outputs)}
    for tops, layer in zip(net.tops, net.layers, strict=True):
        kept |= {
            id(blob.gradient)
            for blob, weight in zip(tops, layer.loss_weights, strict=False)
            if weight
        }
    found: dict[int, Lifetime] = {}
    for i, (bottoms, tops) in enumerate(zip(net.bottoms, net.tops, strict=True)):
        for blob in (*bottoms, *tops):
            tensor = blob.gradient
            if id(tensor) in kept or not net.need_backward[i]:
                continue
            life = found.setdefault(id(tensor), Lifetime(tensor, i, i))
            life.first, life.last = min(life.first, i), max(life.last, i)
    return list(found.values())
