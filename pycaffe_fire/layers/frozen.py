"""Ops for inference: weights that rarely change take in what the layers after them do.

A BatchNorm in TEST phase and a Scale multiply every channel by a number and add another; so does a
convolution with other weights. See net/inference_plan.py for who asks for such ops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..backend.blob import Blob
from ..backend.plans import Plan, WeightedPlan, Window


class PerChannel(NamedTuple):
    """y = factor * x + offset, in double precision."""

    factor: Any
    offset: Any


def values_of(blob: Blob) -> Any:
    """A weight's numbers in double precision, and no sign that anybody has looked at them."""
    return np.asarray(blob.value.copied().reshape(-1), np.float64)


@dataclass
class After:
    """What is done to the top of a layer: channels are scaled, something is added, then ReLU."""

    scalings: Sequence[Any] = ()  # layers that have a `per_channel`
    addend: Blob | None = None
    relu: float | None = None


@contextmanager
def keeping_layout(blob: Blob) -> Iterator[None]:
    """Plans made inside write a blob as it lies: other plans count on that."""
    before, blob.value.pinned = blob.value.pinned, True
    try:
        yield
    finally:
        blob.value.pinned = before


class FrozenOp(ABC):
    """A plan with its own form of the weights, made by `refresh` and again when they change."""

    plan: WeightedPlan | Plan
    window: Window | None = None  # of a convolution, as it is planned

    @abstractmethod
    def refresh(self) -> None: ...

    def forward(self) -> None:
        self.plan.forward()


class FoldedWeights(FrozenOp):
    """Weights and bias of which the layers after them are a part.

    `weights` and `bias` are for the plan, which is given afterwards.
    """

    plan: WeightedPlan

    def __init__(self, blobs: Sequence[Blob], after: After, window: Window) -> None:
        self._sources, self._after, self.window = blobs, after, window
        first = blobs[0]
        self.weights = Blob(first.backend, first.shape, first.name)
        self.bias = Blob(first.backend, first.shape[:1], first.name)

    def refresh(self) -> None:
        channels = self.bias.count
        factor, offset = np.ones(channels), np.zeros(channels)
        if len(self._sources) > 1:
            offset = values_of(self._sources[1])
        for layer in self._after.scalings:
            step = layer.per_channel()
            factor, offset = factor * step.factor, offset * step.factor + step.offset
        source = self._sources[0]
        rows = source.value.copied().reshape(channels, -1)
        rows *= factor[:, None].astype(np.float32)
        self.weights.value.replace(rows.reshape(self.weights.shape))
        self.bias.value.replace(offset.astype(np.float32))
        self.plan.pack()
        if self.plan.packs:
            self.weights.value.release()


class OwnWeights(FrozenOp):
    """A layer's own weights, maybe packed: only inference can afford that."""

    plan: WeightedPlan

    def __init__(self, plan: WeightedPlan, window: Window | None = None) -> None:
        self.plan, self.window = plan, window

    def refresh(self) -> None:
        self.plan.pack()


class NoWeights(FrozenOp):
    """An op without any, which can be a part of one call for several (Backend.joined)."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def refresh(self) -> None:
        pass
