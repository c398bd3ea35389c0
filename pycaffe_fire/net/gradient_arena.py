"""Memory for gradients: blobs whose gradients are never alive together share it.

A blob's gradient is born when the layer above it runs backward and dies when the layer that made
the blob has run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .arena import Lifetime, place
from .passing import passing_values

if TYPE_CHECKING:
    from .joins import Join
    from .net import Net


def share_gradients(net: Net) -> None:
    """Bind the gradients of all blobs inside the net to one arena."""
    _share_parts(net)
    lifetimes, passing = _lifetimes(net), list(passing_values(net))
    size = max(place(lifetimes), place([value.lifetime for value in passing]))
    arena = net.backend.empty(size)
    for life in lifetimes:
        for tensor in (life.tensor, *life.others):
            tensor.bind(arena[life.offset : life.offset + life.elements])
            tensor.clear()
    for value in passing:
        value.lie_in(arena)
    net.passing = passing


def planned_elements(net: Net, shared: bool) -> tuple[int, int]:
    """How many float32 words the net's blobs will take: values, and gradients once it has run."""
    if shared:
        _share_parts(net)
    hidden = {id(join.hidden) for join in net.joins}
    values = {
        id(blob.value): blob.value
        for tops in net.tops
        for blob in tops
        if id(blob.value) not in hidden
    }
    lifetimes = _lifetimes(net)
    gradients = place(lifetimes) if shared else sum(life.elements for life in lifetimes)
    return sum(tensor.words for tensor in values.values()), gradients


def _share_parts(net: Net) -> None:
    """Let gradients that are parts of another lie in its memory."""
    for layer in net.layers:
        layer.share_gradients()


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
        join = net.joins.of(i)
        first, last = (i, i) if join is None else (join.first, join.last)
        for blob in (*bottoms, *tops):
            tensor = blob.gradient.home or blob.gradient
            if id(tensor) in kept or not net.need_backward[i]:
                continue
            life = found.setdefault(id(tensor), Lifetime(tensor, first, last))
            life.first, life.last = min(life.first, first), max(life.last, last)
    for join in net.joins:
        for old, new in join.same_memory:
            if id(old) in found and id(new) in found:
                _unite(found, id(old), id(new), join)
    return list({id(life): life for life in found.values()}.values())


def _unite(found: dict[int, Lifetime], old: int, new: int, join: Join) -> None:
    """Let two gradients have one place, if only the join needs both: the one takes the other's."""
    a, b = found[old], found[new]
    if a is b or max(a.first, b.first) < join.first or min(a.last, b.last) > join.last:
        return
    a.first, a.last = min(a.first, b.first), max(a.last, b.last)
    a.others += [b.tensor, *b.others]
    for key, life in found.items():
        if life is b:
            found[key] = a
