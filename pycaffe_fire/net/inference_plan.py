"""Running a net whose weights rarely change: ops that span layers, activations in shared memory.

A forward pass over the whole net is a list of steps. Some do the work of several layers with
weights made for that (layers/frozen.py), and blobs that are never alive together lie in the same
memory. So the values of most blobs are lost after a pass. Who looks at one all the same gets what
the layers compute one by one, from the inputs and weights of that pass; from then on the blob is
kept. Passes over a part of the net, with hooks, or while somebody holds an array of weights, which
may change at any time, are run by the layers themselves.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import schema
from ..backend.blob import Blob
from ..backend.tensor import NATIVE, Array, Layout, Tensor
from ..layers import Layer, is_built_in
from ..layers.frozen import FrozenOp
from .arena import Lifetime, place
from .fused_steps import FusedStep, JoinedStep, find_fused, join_neighbours
from .guard import Guard
from .homes import Homes
from .unread_pixels import ThinStep, skip_unread_pixels

if TYPE_CHECKING:
    from .net import Net

Layouts = list[tuple[Tensor, Layout]]  # of tensors, at some time


def can_plan(net: Net) -> bool:
    """Can what a pass leaves out be computed later?"""
    sources = {blob.value for top, bottom in _tops_and_bottoms(net) if not bottom for blob in top}
    overwritten = any(
        blob.value in sources
        for top, bottom in _tops_and_bottoms(net)
        for blob in top
        if any(blob is other for other in bottom)
    )
    layers = [layer for layer, bottom in zip(net.layers, net.bottoms, strict=True) if bottom]
    return (
        net.phase == schema.TEST
        and net.backend.on_host
        and not net.debug_info
        and not overwritten
        and all(is_built_in(type(layer)) and layer.repeatable for layer in layers)
    )


def _tops_and_bottoms(net: Net) -> Iterator[tuple[list[Blob], list[Blob]]]:
    return zip(net.tops, net.bottoms, strict=True)


@dataclass
class PlainStep:
    """A layer with its followers, as it always runs."""

    index: int
    layer: Layer
    bottom: Sequence[Blob]
    top: Sequence[Blob]
    leads: bool

    @property
    def idle(self) -> bool:
        """Has the layer nothing to do in a pass? A Split has not."""
        return self.layer.idle and bool(self.bottom) and not any(self.layer.loss_weights)

    def run(self) -> None:
        self.layer.leads = self.leads
        self.layer.forward(self.bottom, self.top)


class InferencePlan:
    """The steps of a net, and which of its blobs hold what the last pass computed."""

    def __init__(self, net: Net) -> None:
        self._net = weakref.ref(net)  # which owns this
        self._guard = Guard(self)
        self._kept: set[Tensor] = set()  # somebody has looked at them after a pass
        self._changed: set[Tensor] = set()  # weights that were given out and may be written
        self._inputs: dict[Tensor, tuple[Layout, Array]] = {}  # of the last pass, if changed since
        self._spare: dict[Tensor, Array] = {}
        self._arena: Array | None = None
        self._lost = False  # are there blobs that do not hold the values of the last pass?
        self._bound = False  # do blobs lie in the arena?
        self._busy = False  # while layers run or are planned, who looks is one of them
        self._weights = {blob.value for layer in net.layers for blob in layer.blobs}
        self._changed |= self._weights
        self._lay_down(net)

    # Preparing.

    def _lay_down(self, net: Net) -> None:
        """Note what belongs to the net as it is planned now; steps come later."""
        blobs = [blob for top in net.tops for blob in top]
        self._sources = {
            blob.value for top, bottom in _tops_and_bottoms(net) if not bottom for blob in top
        }
        for tensor in {blob.value for blob in blobs} | self._weights:
            tensor.guard = self._guard
        self._layouts = _as_they_lie(b.value for bottom in net.bottoms for b in bottom)
        self._steps: list[PlainStep | FusedStep | ThinStep] | None = None
        self._runs: list[tuple[PlainStep | FusedStep | ThinStep | JoinedStep, Layouts]] = []

    def _make_steps(self, net: Net) -> None:
        self._unbind()
        held = {blob.value for top in net.tops for blob in top if blob.value.held}
        self._safe = self._sources | self._kept | held
        self._safe |= {net.blobs[name].value for name in net.outputs}
        for top, layer in zip(net.tops, net.layers, strict=True):
            pairs = zip(top, layer.loss_weights, strict=True)
            self._safe |= {blob.value for blob, weight in pairs if weight}
        fused = find_fused(net, self._safe)
        done = {index for step in fused for index in step.layers}
        computed = skip_unread_pixels(net, fused, self._safe)
        plain = []
        for i, layer in enumerate(net.layers):
            if i in done or layer.empty:
                continue
            followers = [f for f in net.groups.get(i, ()) if f not in done]
            done.update(followers)
            plain.append(PlainStep(i, layer, net.bottoms[i], net.tops[i], bool(followers)))
        # Data comes first: what follows can then be computed again.
        self._steps = sorted([*plain, *computed], key=lambda step: (bool(step.bottom), step.index))
        # A layer that works in place by itself may exchange the blob's memory for its own.
        busy = [step for step in plain if not step.idle]
        for step in busy:
            self._safe |= {a.value for a in step.bottom if any(a is b for b in step.top)}
        self._homes = Homes.find(busy, self._safe)
        idle = {step.index for step in plain if step.idle}
        idle |= {step.index for step in busy if step.top and step.top[0].value in self._homes.made}
        runs = join_neighbours(net, [s for s in self._steps if s.index not in idle])
        # A layer by itself may give its tops other shapes.
        free = {blob.value for step in plain for blob in step.top}
        self._runs = [
            (run, _as_they_lie(b.value for b in run.bottom if b.value in free)) for run in runs
        ]
        self._lives = self._lifetimes()
        self._arena = net.backend.empty(place(self._lives))
        self._ops: dict[Tensor, list[FrozenOp]] = {}
        for made in (step for step in computed if isinstance(step, FusedStep)):
            made.op.refresh()
            for blob in (blob for i in made.layers for blob in net.layers[i].blobs):
                self._ops.setdefault(blob.value, []).append(made.op)
        self._changed.clear()

    def _lifetimes(self) -> list[Lifetime]:
        assert self._steps is not None
        found: dict[Tensor, Lifetime] = {}
        for number, step in enumerate(self._steps):
            for blob in (*step.bottom, *step.top):
                tensor, _ = self._homes.of(blob.value)
                if tensor not in self._safe:
                    life = found.setdefault(tensor, Lifetime(tensor, number, number))
                    life.last = number
        return list(found.values())

    def _bind(self) -> None:
        if self._bound:
            return
        assert self._arena is not None
        for life in self._lives:
            life.tensor.release()
            life.tensor.bind(self._arena[life.offset : life.offset + life.elements])
        for guest in self._homes.guests:
            home, start = self._homes.of(guest)
            assert home.buffer is not None
            guest.release()
            guest.bind(home.buffer[start : start + guest.words])
        for home in self._homes.made:
            home.fresh = NATIVE  # as soon as all who lie in it have been written
        self._bound = True

    def _unbind(self) -> None:
        """Let every blob have memory of its own again; values are lost."""
        if self._bound:
            for tensor in (*self._homes.guests, *(life.tensor for life in self._lives)):
                tensor.release()
            self._bound = False

    # Running.

    def ready(self) -> bool:
        """May weights change only when we are told?"""
        return not any(tensor.held for tensor in self._changed)

    def run(self) -> float:
        """A forward pass over the whole net; returns the weighted sum of losses."""
        net = self._net()
        assert net is not None
        with self._working():
            self._prepare(net)
            self._inputs.clear()
            self._lost, loss = True, 0.0
            for step, read in self._runs:
                if not step.bottom:
                    net.plan_if_stale(step.index)
                elif _moved(read):
                    loss = self._by_layers(net)
                    break
                step.run()
                loss += net.loss_of(step.index)
        for tensor in self._sources:
            if tensor.held:  # and may be overwritten at any time
                self._remember(tensor)
        return loss

    def _by_layers(self, net: Net) -> float:
        """A pass in which a layer has given its top another shape, as the sizes of images go: those
        after it must be planned again."""
        self._unbind()
        loss = net.compute_again()
        self._lost = False
        self._lay_down(net)
        return loss

    def _prepare(self, net: Net) -> None:
        if _moved(self._layouts):
            self._unbind()
            for index in range(len(net.layers)):
                net.plan_if_stale(index)
            self._lay_down(net)
        for tensor in self._changed:
            tensor.drop_copy()
        if self._steps is None or not self._kept <= self._safe:
            self._make_steps(net)
        for tensor in self._changed:
            for op in self._ops.get(tensor, ()):
                op.refresh()
        self._changed.clear()
        self._bind()

    @contextmanager
    def _working(self) -> Iterator[None]:
        before, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = before

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While the layers run by themselves: all blobs hold what the last pass has computed."""
        self.recover()
        with self._working():
            yield

    @contextmanager
    def reshaping(self) -> Iterator[None]:
        """While layers are planned again; blobs of new shapes hold zeros afterwards, and so do
        then all whose values were lost."""
        with self._working():
            yield
        net = self._net()
        if net is not None and _moved(self._layouts):
            self.forget()
            self._unbind()
            self._lay_down(net)

    def forget(self) -> None:
        """Nobody will ask for the last pass's values any more: the next one follows."""
        self._lost = False
        self._inputs.clear()

    # Looking.

    def look(self, tensor: Tensor) -> None:
        """Before a tensor is given out or reshaped: see that it holds its value."""
        if self._busy:
            return
        if tensor in self._weights:
            self.recover()
            self._changed.add(tensor)
        elif tensor in self._sources:
            self._remember(tensor)
        elif self._lost and tensor not in self._safe:
            self.recover()
            self._kept.add(tensor)
        elif self._steps is not None:
            self._kept.add(tensor)

    def _remember(self, source: Tensor) -> None:
        """Set a source's value aside before it can change: it may be needed to compute others."""
        if not self._lost or source in self._inputs:
            return
        spare = self._spare.get(source)
        self._spare[source] = source.copied(spare)
        self._inputs[source] = (source.layout, self._spare[source])

    def recover(self) -> None:
        """Let the layers compute what the last pass has left out."""
        net = self._net()
        if net is None or not self._lost:
            self._unbind()
            return
        self._lost = False
        with self._working():
            present = [
                (tensor, tensor.layout, tensor.copied())
                for tensor in {*self._inputs, *(self._safe - self._sources)}
            ]
            for tensor, (layout, values) in self._inputs.items():
                _put(tensor, layout, values)
            self._inputs.clear()
            self._unbind()
            net.compute_again()
            for tensor, layout, values in present:
                _put(tensor, layout, values)


def _as_they_lie(tensors: Iterable[Tensor]) -> Layouts:
    return [(tensor, tensor.layout) for tensor in dict.fromkeys(tensors)]


def _moved(layouts: Layouts) -> bool:
    """Has one of them another shape or layout now?"""
    for tensor, layout in layouts:  # noqa: SIM110 - in every pass, and any() takes longer
        if tensor.layout is not layout:
            return True
    return False


def _put(tensor: Tensor, layout: Layout, values: Array) -> None:
    tensor.lay_out(layout)
    if values.size:
        tensor.array[...] = values
