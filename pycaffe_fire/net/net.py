"""Caffe's Net: forward and backward over ranges of layers, weights in and out."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from .. import schema
from ..backend.base import Backend
from ..backend.tensor import Array
from ..layers import Context
from ..schema.proto import NetParameter
from . import debug
from .by_name import ByName
from .engines import tell_engines
from .gradient_arena import share_gradients
from .groups import can_lead, separate_groups
from .inference_plan import InferencePlan, can_plan
from .joins import Join, Joins
from .passing import PassingValue
from .rectified import RectifiedGradients
from .weights import copy_weights, save_weights
from .wiring import Wiring

Hook = Callable[[int], object]  # called with a layer's index


@dataclass
class Hooks:
    """Who wants to know when a layer runs."""

    before_forward: list[Hook] = field(default_factory=list)
    after_forward: list[Hook] = field(default_factory=list)
    before_backward: list[Hook] = field(default_factory=list)
    after_backward: list[Hook] = field(default_factory=list)

    @property
    def any(self) -> bool:
        return any(vars(self).values())


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Meanwhile no garbage is looked for: to look through all parts of a net again and again, while
    it is built, takes as long as to build it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Net(Wiring):
    """A net built from a NetParameter, ready to run; `source` is the file it came from, if any.

    `blobs` and `params` map names to blobs whose `data` and `diff` are arrays. A `lender` lends
    its weights to the layers of the same name.
    """

    def __init__(
        self,
        param: NetParameter,
        backend: Backend,
        context: Context,
        lender: Wiring | None = None,
        source: str = "",
    ) -> None:
        backend.activate()
        with _garbage_kept():
            super().__init__(param, backend, context, lender, source)
        tell_engines(self.param, backend)
        host_view = self.backend.host_view
        self.blobs = ByName(
            "blob", ((name, host_view(blob)) for name, blob in self.blobs.items())
        )  # fmt: skip
        self.params = ByName(
            "layer with weights",
            (
                (layer.name, [host_view(blob) for blob in layer.blobs])
                for layer in self.layers
                if layer.blobs
            ),
        )
        self.joins = Joins(self)
        self._rectified = RectifiedGradients(self)
        self.shares_gradients = False  # only those of inputs and losses last until after a pass
        self._has_run = [False] * len(self.layers)  # forward, since they were planned
        self.hooks = Hooks()
        self.debug_info: bool = self.param.debug_info
        self._losses = [
            [(blob, weight) for blob, weight in zip(top, layer.loss_weights, strict=True) if weight]
            for top, layer in zip(self.tops, self.layers, strict=True)
        ]
        self.inference: InferencePlan | None = None
        self.passing: list[PassingValue] = []
        self.scale_losses(1.0)

    # Running.

    def _seed_losses(self, index: int) -> None:
        """The gradient of a loss is its weight, times the loss scale."""
        for blob, weight in self._losses[index]:
            blob.diff[...] = weight * self._loss_scale

    def scale_losses(self, scale: Any) -> None:
        """Multiply all gradients by `scale`, a number or an array on the net's device."""
        self._loss_scale = scale
        for index in range(len(self.layers)):
            self._seed_losses(index)

    def _plan(self, index: int) -> None:
        join = self.joins.of(index)
        if join is not None:
            join.forget()
        self._has_run[index] = False
        self.layers[index].plan(self.bottoms[index], self.tops[index])
        self._seed_losses(index)  # a new shape has a new gradient

    def plan_inference(self) -> None:
        """Run forward with ops and memory for inference, where nothing but speed depends on it."""
        self.inference = InferencePlan(self) if can_plan(self) else None

    def stop_inference(self) -> None:
        """From now on let the layers run one by one, with every blob in memory of its own."""
        if self.inference is not None:
            with self.inference.aside():
                self.inference = None

    def run_forward(self, start: int = 0, end: int | None = None) -> float:
        """Run layers start..end (inclusive) and return the weighted sum of their losses."""
        self.backend.activate()
        last = len(self.layers) - 1 if end is None else end
        self._before_pass(start, last)
        for value in self.passing:
            value.before_forward(start, last)
        loss = self._run_range(start, last)
        self._has_run[start : last + 1] = [True] * (last + 1 - start)
        return loss

    def _run_range(self, start: int, last: int) -> float:
        if self.inference is None:
            return self._run_layers(start, last)
        whole = start == 0 and last == len(self.layers) - 1
        if whole and not self.hooks.any and not self.debug_info and self.inference.ready():
            return self.inference.run()
        with self.inference.aside():
            return self._run_layers(start, last)

    def _run_layers(self, start: int, last: int) -> float:
        loss = 0.0
        for i in range(start, last + 1):
            self.plan_if_stale(i)
            for hook in self.hooks.before_forward:
                hook(i)
            loss += self._run_layer(i, start, last)
            for hook in self.hooks.after_forward:
                hook(i)
        return loss

    def _run_layer(self, index: int, start: int, last: int) -> float:
        """Run a layer in a pass from `start` to `last`, unless its leader did, for its loss."""
        join = self.joins.of(index)
        if join is not None and start <= join.first and join.last <= last:
            if index == join.first:
                join.forward()
            if join.runs:
                return 0.0
        layer, leader = self.layers[index], self.leader_of.get(index, -1)
        if leader >= start and self.layers[leader].leads:
            return 0.0
        group = self.groups.get(index)
        layer.leads = group is not None and group[-1] <= last and can_lead(self, index)
        mark = self.backend.mark()
        if not layer.empty:
            layer.forward(self.bottoms[index], self.tops[index])
        loss = self.loss_of(index)
        self.backend.write_back(mark)
        if self.debug_info:
            debug.forward(self, index)
        return loss

    def loss_of(self, index: int) -> float:
        """The weighted sum of a layer's losses."""
        loss = 0.0
        for blob, weight in self._losses[index]:
            loss += weight * self.backend.total(blob.data)
        return loss

    def leader(self, index: int) -> int:
        """The layer whose op does this one's work in a pass over the whole net; itself, if none."""
        join = self.joins.of(index)
        return self.leader_of.get(index, index) if join is None else join.first

    def compute_again(self) -> float:
        """Run all layers but those that bring data, on the data of the last pass; returns the
        weighted sum of their losses."""
        loss = 0.0
        for i in range(len(self.layers)):
            if self.bottoms[i]:
                self.plan_if_stale(i)
                loss += self._run_layer(i, 0, len(self.layers) - 1)
        return loss

    def plan_if_stale(self, index: int) -> None:
        """Plan a layer again whose bottoms have another shape or layout than they had; so also
        those that may run with it."""
        join = self.joins.of(index)
        for i in join.members if join is not None and join.first == index else (index,):
            if self.layers[i].stale(self.bottoms[i]):
                self._plan(i)

    def run_backward(
        self,
        start: int | None = None,
        end: int = 0,
        after_layer: Callable[[int], None] | None = None,
    ) -> None:
        """Run layers start..end (inclusive, downwards) backward, telling `after_layer` of each."""
        self.backend.activate()
        self.stop_inference()  # which leaves out values that are needed from now on
        first = len(self.layers) - 1 if start is None else start
        self._before_pass(end, first)
        self._rectified.begin(self, first, end)
        for i in range(first, end - 1, -1):
            for hook in self.hooks.before_backward:
                hook(i)
            join = self.joins.of(i)
            if join is not None and join.runs:
                self._run_join_backward(join, i, first)
            elif self.need_backward[i] and not self._done_by_another(i):
                self._clear_unwritten(i, first)
                mark = self.backend.mark()
                self._run_layer_backward(i)
                self.backend.write_back(mark)
                if self.debug_info:
                    debug.backward(self, i)
            for hook in self.hooks.after_backward:
                hook(i)
            if after_layer is not None:
                after_layer(i)
        self.backend.run_deferred()
        if self.debug_info and start is None and end == 0:
            debug.all_params(self)

    def _done_by_another(self, index: int) -> bool:
        """Has this layer's backward pass been a part of its leader's, or of its reader's?"""
        leader = self.layers[self.leader_of[index]] if index in self.leader_of else None
        led = leader is not None and leader.leads and leader.fuses_backward
        return led or index in self._rectified.done

    def _clear_unwritten(self, index: int, first: int) -> None:
        """The caller of a pass from layer `first` on sees to the gradients of its tops."""
        for tensor in self.unwritten[index] if index < first else ():
            tensor.clear()

    def _run_join_backward(self, join: Join, index: int, first: int) -> None:
        """All of it when the turn of the layer comes that leads it."""
        if index == join.first:
            for member in join.members:
                self._clear_unwritten(member, first)
            join.backward()

    def _run_layer_backward(self, index: int) -> None:
        layer, wanted, bottom = self.layers[index], self.propagate_down[index], self.bottoms[index]
        learns = any(wanted) or any(layer.param_propagate_down)
        if learns and layer.needs_forward and not self._has_run[index]:
            layer.fail(
                "cannot run backward before forward; run forward first, also after a reshape"
            )
        if not layer.empty:
            layer.backward(self.tops[index], wanted, bottom)
            return
        for blob, propagates in zip(bottom, wanted, strict=True):
            if propagates and blob.count:
                blob.diff[...] = 0  # nothing depends on it

    def forward_backward(self) -> float:
        """One training pass; gradients are added to what the parameters' diffs hold."""
        loss = self.run_forward()
        self.run_backward()
        return loss

    def _before_pass(self, first: int, last: int) -> None:
        """A pass over a part of the net finds everything as layers leave it one by one."""
        if first > 0 or last < len(self.layers) - 1:
            if self.inference is not None:
                self.inference.recover()
            for value in self.passing:
                value.look()
            self.joins.separate()
            separate_groups(self)

    def run_one_by_one(self) -> None:
        """From now on no layer does another's work in backward, nor several in one op: somebody
        looks between them."""
        for value in self.passing:
            value.look()
        self.joins.dissolve()
        self._rectified.dissolve()

    def plan_ahead(self) -> None:
        """Plan all that a pass needs, so that its memory is known before the first."""
        for index, layer in enumerate(self.layers):
            layer.plan_ahead(index in self.groups)

    def share_gradients(self) -> None:
        """Let blobs whose gradients are never alive together use the same memory."""
        self.shares_gradients = True
        share_gradients(self)

    def reshape(self) -> None:
        """Propagate changed input shapes through all layers."""
        with self.inference.reshaping() if self.inference is not None else nullcontext():
            for i in range(len(self.layers)):
                self._plan(i)

    def clear_gradients(self) -> None:
        """Set all gradients of weights to zero; memory is touched by the next reader or writer."""
        self.parameters.clear_gradients()
        for layer in self.layers:
            layer.fades.clear()

    def fold_averages(self, sums: Array, leaves: int) -> None:
        """Take running averages' new values out of flat summed gradients; see Layer.remember."""
        places = {id(p.blob): (p.start, p.start + p.blob.count) for p in self.parameters.items}
        for layer in self.layers:
            for index in list(layer.fades):
                blob = layer.blobs[index]
                start, stop = places[id(blob)]
                layer.fold_average(index, (sums[start:stop] / leaves).reshape(blob.shape))
                sums[start:stop] = 0

    def close(self) -> None:
        """Stop the layers' background work."""
        for layer in self.layers:
            layer.close()

    # Weights.

    def copy_from(
        self,
        path: str | os.PathLike[str] | Sequence[str],
        ignore_mismatch: bool = False,
        allow_empty: bool = False,
    ) -> None:
        """Copy weights by layer name from .caffemodels; layers the net lacks are ignored.

        Shapes that do not fit are an error, or a warning with `ignore_mismatch`; so is a file of
        which nothing belongs to this net, or a warning with `allow_empty`.
        """
        paths = [path] if isinstance(path, str | os.PathLike) else path
        copy_weights(self, paths, ignore_mismatch, allow_empty)

    def save(self, path: str, diffs: bool = False) -> None:
        """Write all weights to a .caffemodel (or .h5) that Caffe reads too."""
        save_weights(self, path, diffs)

    def to_proto(self) -> NetParameter:
        """The net as it runs, without weights."""
        param = schema.NetParameter()
        param.CopyFrom(self.param)
        return param

    def __repr__(self) -> str:
        weights = sum(p.blob.count for p in self.parameters.items)
        return f"<Net {self.name!r}: {len(self.layers)} layers, {weights:,} weights>"
