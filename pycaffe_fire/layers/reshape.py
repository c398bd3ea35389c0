"""Reshape: the same elements under another shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..backend.blob import Blob
from .base import register_layer
from .rearrange import Move, Rearrange, stay

COPY, INFER = 0, -1


@register_layer("Reshape")
class Reshape(Rearrange):
    """The `num_axes` axes from `axis` on get new dims: 0 copies one, -1 infers one."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().setup(bottom, top)
        param = self.param.reshape_param
        self._dims = list(param.shape.dim)
        if param.pixelshuffler != 1:
            self.fail("pixelshuffler (Intel Caffe) is not supported; use Reshape and Permute")
        if self._dims.count(INFER) > 1 or min(self._dims, default=0) < INFER:
            self.fail(f"dims must be 0 or more, or -1 once (to be inferred), got {self._dims}")

    def move(self, bottom: Blob) -> Move:
        shape = bottom.shape
        start, end = self._range(shape)
        dims = list(self._dims)
        for i, dim in enumerate(dims):
            if dim == COPY:
                if start + i >= len(shape):
                    self.fail(f"dim {i} is 0 (copy), but the bottom {list(shape)} has no such axis")
                dims[i] = shape[start + i]
        before, after = shape[:start], shape[end:]
        if INFER in dims:
            rest = prod(before) * prod(after) * prod(d for d in dims if d != INFER)
            if rest == 0 or bottom.count % rest:
                self.fail(
                    f"cannot infer -1 in {self._dims}: the bottom {list(shape)} has "
                    f"{bottom.count} elements, not a multiple of {rest}"
                )
            dims[dims.index(INFER)] = bottom.count // rest
        wanted = (*before, *dims, *after)
        if prod(wanted) != bottom.count:
            self.fail(
                f"the new shape {list(wanted)} has {prod(wanted)} elements, the bottom "
                f"{list(shape)} has {bottom.count}"
            )
        return stay(shape, wanted)

    def _range(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """First axis to replace, and the one after the last; -1 is after the last axis."""
        param, axes = self.param.reshape_param, len(shape)
        start = param.axis if param.axis >= 0 else axes + 1 + param.axis
        if not 0 <= start <= axes:
            self.fail(f"axis {param.axis} out of range for the bottom {list(shape)}")
        if param.num_axes < -1:
            self.fail(f"num_axes must be -1 (all) or more, got {param.num_axes}")
        end = axes if param.num_axes == -1 else start + param.num_axes
        if end > axes:
            self.fail(
                f"axis {start} and num_axes {param.num_axes} reach beyond the {axes} axes of the "
                f"bottom {list(shape)}"
            )
        return start, end
