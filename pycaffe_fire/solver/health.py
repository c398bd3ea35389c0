"""NaN and infinity: noticed before they reach the weights, traced to a layer, and dealt with.

The loss and the sum of squared gradients, both combined over all leaves and ranks, tell whether an
iteration is sound; so all ranks decide alike. Only if it is not, the iteration runs once more,
layer by layer, to find where the first bad number came from.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import SupportsFloat

import numpy as np

from ..backend.blob import Blob
from ..backend.tensor import Array
from ..errors import SolverError
from ..layers import Layer
from ..net import Net
from ..net.parameters import ALIGNMENT
from ..parallel.leaves import Leaves

NAN_POLICIES = ("stop", "skip", "rollback")
MOST_SKIPS = 10  # in a row
MOST_ROLLBACKS = 3  # to one snapshot
LOWER = 0.5  # of the rate, with every rollback
ADVICE = "lower base_lr, set clip_gradients, or look for bad values in the data"


class Health:
    """Watches the iterations of one solver under one of the NAN_POLICIES."""

    def __init__(self, leaves: Leaves, policy: str) -> None:
        if policy not in NAN_POLICIES:
            raise SolverError(f'on_nan must be one of {", ".join(NAN_POLICIES)}, got "{policy}"')
        self.policy = policy
        self.rate = 1.0  # a factor on all learning rates, lowered by rollbacks
        self._leaves = leaves
        self._skips = self._rollbacks = 0
        # To look at a device's numbers is to wait for it. A policy that only stops can look when
        # the run waits anyway (see `due`); one that wants the weights as they were cannot.
        self._at_once = leaves.backend.on_host or policy != "stop"
        self._averages = _Averages(leaves.net) if policy == "skip" else None

    def begin(self) -> None:
        """An iteration is about to run."""
        if self._averages is not None:
            self._averages.keep()

    def sound(self, loss: SupportsFloat, squares: float | None, due: bool) -> bool:
        """Are the loss and all gradients of the iteration finite, as far as looked at?

        `squares` is the sum of squared gradients, if it is known: then it is finite if they are.
        """
        if squares is None and not self._at_once and not due:
            return True
        leaves = self._leaves
        if squares is None:
            finite = leaves.backend.all_finite(leaves.gradients)
        else:
            finite = isfinite(squares)
        good = finite and isfinite(loss)
        if good:
            self._skips = 0
        return good

    def weights_sound(self) -> bool:
        parameters = self._leaves.net.parameters
        parameters.sync_weights()
        return self._leaves.backend.all_finite(parameters.weights)

    def skip(self, what: str) -> str:
        """Forget the iteration; returns what was done, or raises if that happens too often."""
        self._skips += 1
        if self._skips >= MOST_SKIPS:
            raise SolverError(
                f"{what}. {MOST_SKIPS} iterations in a row were like this, so skipping them does "
                f"not help; {ADVICE}"
            )
        assert self._averages is not None
        self._averages.restore()
        self._leaves.finish()
        return "skipped the iteration; weights and history are as before"

    def roll_back(self, what: str, state: str | None, restore: Callable[[str], None]) -> str:
        """Go back to the snapshot `state` with a lower rate; returns what was done, or raises."""
        if state is None:
            raise SolverError(
                f"{what}. There is no snapshot to roll back to: set snapshot in the solver, or "
                f"choose --on-nan skip; or {ADVICE}"
            )
        self._rollbacks += 1
        if self._rollbacks > MOST_ROLLBACKS:
            raise SolverError(
                f"{what}. It was rolled back to {state} {MOST_ROLLBACKS} times, down to "
                f"{self.rate:g} of the learning rate; {ADVICE}"
            )
        rate = LOWER * self.rate
        self._leaves.finish()
        restore(state)
        self.rate = rate
        return f"rolled back to {state}; the learning rate is {rate:g} times what it would be"

    def saved(self) -> None:
        """A new snapshot is there to roll back to."""
        self._rollbacks = 0

    def state(self) -> float:
        """What snapshots take along."""
        return self.rate

    def restore(self, state: float) -> None:
        self.rate = float(state)

    def describe(self, iteration: int, loss: SupportsFloat) -> str:
        """`iteration 7: the loss is nan, first seen in layer "fc6" (InnerProduct), ...`"""
        parts = self._leaves.communicator.gather(trace(self._leaves, iteration))
        found = [(rank, text) for rank, text in enumerate(parts) if text]
        many = self._leaves.communicator.size > 1
        if found:
            rank, text = found[0]
            where = f"first seen in {text}" + (f" on rank {rank}" if many else "")
        else:
            where = _in_sums(self._leaves) or "no layer shows it when the iteration runs again"
        which = "gradients are not finite" if isfinite(loss) else f"the loss is {float(loss):g}"
        return f"iteration {iteration}: {which}, {where}"


class _Averages:
    """Copies of moving averages, so that an iteration that does not count leaves no trace."""

    def __init__(self, net: Net) -> None:
        blobs = {
            id(blob)
            for layer in net.layers
            for number, blob in enumerate(layer.blobs)
            if number in type(layer).averages
        }
        places: list[tuple[int, int]] = []
        for p in net.parameters.items:
            if id(p.blob) not in blobs:
                continue
            if places and p.start - places[-1][1] < ALIGNMENT:  # neighbours are copied at once
                places[-1] = (places[-1][0], p.stop)
            else:
                places.append((p.start, p.stop))
        self._parameters = net.parameters
        self._kept = [(slice(a, b), net.backend.empty(b - a)) for a, b in places]

    def keep(self) -> None:
        if self._kept:
            self._parameters.sync_weights()
        for place, copy in self._kept:
            copy[...] = self._parameters.weights[place]

    def restore(self) -> None:
        for place, copy in self._kept:
            self._parameters.weights[place] = copy


# Tracing.


def trace(leaves: Leaves, iteration: int) -> str | None:
    """Run this rank's share of an iteration again; returns the first place with a bad number.

    Data and random numbers follow from the iteration, so it comes out as it did. Layers run one by
    one, so that none hides in another's op.
    """
    for net in leaves.nets:
        net.parameters.bind_gradients()
        for leaf in net.context.own_leaves:
            net.context.leaf = leaf
            net.clear_gradients()
            for i in range(leaves.iter_size):
                net.context.step = iteration * leaves.iter_size + i
                found = _trace_pass(net)
                if found:
                    return found if leaves.count == 1 else f"{found}, leaf {leaf}"
    return None


def _trace_pass(net: Net) -> str | None:
    for i, layer in enumerate(net.layers):
        net.run_forward(i, i)
        for blob in net.tops[i]:
            if not _finite(blob, "data"):
                return f'{_name(layer)}, top blob "{blob.name}"{_bad_weights(layer)}'
    found: list[str] = []
    net.run_backward(after_layer=lambda i: None if found else found.extend(_bad_diffs(net, i)))
    return found[0] if found else None


def _bad_weights(layer: Layer) -> str:
    bad = [str(i) for i, blob in enumerate(layer.blobs) if not _finite(blob, "data")]
    return f" (its weights are not finite: blob {', '.join(bad)})" if bad else ""


def _bad_diffs(net: Net, index: int) -> list[str]:
    """What is wrong with the gradients that a layer's backward pass wrote."""
    layer = net.layers[index]
    if not net.need_backward[index]:
        return []
    bottoms = zip(net.bottoms[index], net.propagate_down[index], strict=True)
    found = [
        f'{_name(layer)}, gradient of bottom blob "{blob.name}"'
        for blob, wanted in bottoms
        if wanted and not _finite(blob, "diff")
    ]
    return found + [
        f"{_name(layer)}, gradient of weight blob {i}"
        for i, blob in enumerate(layer.blobs)
        if layer.param_propagate_down[i] and not _finite(blob, "diff")
    ]


def _in_sums(leaves: Leaves) -> str | None:
    """Where finite gradients have an infinite sum, or overflowed on the wire."""
    gradients: Array = leaves.gradients
    for p in reversed(leaves.net.parameters.items):
        if not leaves.backend.all_finite(gradients[p.start : p.stop]):
            return f"first seen in the sum over leaves of the gradients of {p.name}"
    return None


def _finite(blob: Blob, what: str) -> bool:
    return bool(np.isfinite(np.asarray(getattr(blob.backend.host_view(blob), what))).all())


def _name(layer: Layer) -> str:
    return f'layer "{layer.name}" ({layer.type})'
