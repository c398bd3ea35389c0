"""Slice: one blob cut into several along an axis, the reverse of Concat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place
from .description import Storage


@register_layer("Slice")
class Slice(Layer):
    """The tops are equal parts of the bottom along `axis`, or end at the given `slice_point`s."""

    needs_forward = False
    storage = Storage.MOVED
    family = "joint"
    tops = (1, None)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, points = self.param.slice_param, list(self.param.slice_param.slice_point)
        if param.HasField("axis") and param.HasField("slice_dim"):
            self.fail("give either axis or slice_dim (its old name), not both")
        if points and len(points) != len(top) - 1:
            self.fail(
                f"{len(top)} tops need {len(top) - 1} slice_points or none, got {len(points)}"
            )
        forbid_in_place(self, bottom, top)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, shape = self.param.slice_param, bottom[0].shape
        given = param.slice_dim if param.HasField("slice_dim") else param.axis
        self._axis = self.axis(bottom[0], given)
        self._ends = self._read_ends(shape[self._axis], len(top))
        if len(top) == 1:  # nothing to do, as in Caffe
            top[0].value, top[0].gradient = bottom[0].value, bottom[0].gradient
            return
        start = 0
        for blob, end in zip(top, self._ends, strict=True):
            blob.reshape(*shape[: self._axis], end - start, *shape[self._axis + 1 :])
            start = end

    def _read_ends(self, size: int, tops: int) -> list[int]:
        points = list(self.param.slice_param.slice_point)
        if not points:
            if size % tops:
                self.fail(f"{tops} tops must divide the {size} of axis {self._axis}")
            return [size // tops * (i + 1) for i in range(tops)]
        ends = [*points, size]
        if any(b <= a for a, b in zip([0, *points], ends, strict=True)):
            self.fail(
                f"slice_points must rise from above 0 to below {size}, the size of axis "
                f"{self._axis}; got {points}"
            )
        return ends

    def _parts(self, values: Any) -> Iterator[Any]:
        start, window = 0, [slice(None)] * (self._axis + 1)
        for end in self._ends:
            window[-1] = slice(start, end)
            yield values[tuple(window)]
            start = end

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(top) > 1:
            for blob, part in zip(top, self._parts(bottom[0].data), strict=True):
                blob.data[...] = part

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0] and len(top) > 1:
            for blob, part in zip(top, self._parts(bottom[0].diff), strict=True):
                part[...] = blob.diff
