"""Scale and Bias: multiply by, or add, a blob that is broadcast over the other axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .. import schema
from ..backend.blob import Blob
from ..backend.plans import ChannelPlan
from .base import Layer, register_layer
from .description import Storage
from .frozen import PerChannel, values_of


class Broadcast(Layer):
    """What Scale and Bias share: an operand that is a second bottom or a learned blob, and how it
    spans `num_axes` axes of the first bottom from `axis` on (-1: all the rest).

    Inside, the bottom is seen as (outer, middle, inner) and the operand as (middle, 1). One learned
    number per channel, the usual case, is an op of the backend's.
    """

    storage = Storage.ROUNDED
    pixelwise = True
    bottoms = (1, 2)

    def multiply_adds(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> int:
        return 0  # element by element, whatever the operand's shape

    def own_shape(self, bottom: Sequence[Blob], param: Any) -> tuple[int, ...]:
        """The shape of a learned operand."""
        shape, count = bottom[0].shape, param.num_axes
        if count < -1:
            self.fail(f"num_axes must be at least 0, or -1 for all the rest, got {count}")
        if count == 0:
            return ()
        axis = self.axis(bottom[0], param.axis)
        if axis + count > len(shape):
            self.fail(f"axis {axis} and num_axes {count} reach beyond the bottom {list(shape)}")
        return shape[axis:] if count == -1 else shape[axis : axis + count]

    def span(self, bottom: Sequence[Blob], operand: Blob, param: Any) -> None:
        """Find out where the operand lies in the first bottom."""
        shape, inner = bottom[0].shape, operand.shape
        axis = self.axis(bottom[0], param.axis) if inner else 0
        if shape[axis : axis + len(inner)] != inner:
            self.fail(
                f"its operand {list(inner)} does not match the bottom {list(shape)} from axis "
                f"{axis} on"
            )
        self._middle = prod(inner)
        self._cut = (prod(shape[:axis]), self._middle, prod(shape[axis + len(inner) :]))

    def channelwise(self, bottom: Sequence[Blob], operand: Blob) -> bool:
        """Is there one learned number for each channel?"""
        shape = bottom[0].shape
        own = len(bottom) == 1 and len(shape) > 1 and operand.shape == shape[1:2]
        return own and self._cut[:2] == shape[:2]

    def cut(self, array: Any) -> Any:
        return array.reshape(self._cut)

    def column(self, array: Any) -> Any:
        return array.reshape(self._middle, 1)

    def collect(self, array: Any, target: Blob) -> Any:
        """Sum an (outer, middle, inner) array to the operand's shape."""
        return array.sum(axis=(0, 2)).reshape(target.shape)

    def reshape_top(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if top[0] is not bottom[0]:
            top[0].reshape_like(bottom[0])


@register_layer("Scale")
class Scale(Broadcast):
    """top = bottom * scale (+ bias)."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.scale_param
        if len(bottom) == 1:
            one = schema.FillerParameter(type="constant", value=1)
            filler = param.filler if param.HasField("filler") else one
            self.add_param(self.own_shape(bottom, param), filler)
        if param.bias_term:
            self.add_param(self._scale(bottom).shape, param.bias_filler)

    def _scale(self, bottom: Sequence[Blob]) -> Blob:
        return bottom[1] if len(bottom) > 1 else self.blobs[0]

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.reshape_top(bottom, top)
        self.span(bottom, self._scale(bottom), self.param.scale_param)
        if self.param.scale_param.bias_term and self.blobs[-1].count != self._middle:
            self.fail(
                f"its bias {list(self.blobs[-1].shape)} does not match the scale "
                f"{list(self._scale(bottom).shape)}"
            )
        self._plan: ChannelPlan | None = None
        if self.channelwise(bottom, self._scale(bottom)):
            scale, shift = (*self.blobs, None)[:2]
            self._plan = self.backend.scale_shift(bottom[0], top[0], scale, shift)

    def per_channel(self) -> PerChannel | None:
        if self._plan is None:
            return None
        scale, shift = (*map(values_of, self.blobs), 0.0)[:2]
        return PerChannel(scale, shift)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._plan is not None:
            self._plan.forward()
            return
        x = self.cut(bottom[0].data)
        self._kept = x.copy() if top[0] is bottom[0] else None
        y = x * self.column(self._scale(bottom).data)
        if self.param.scale_param.bias_term:
            y += self.column(self.blobs[-1].data)
        top[0].data[...] = y.reshape(top[0].shape)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if self._plan is not None:
            self._plan.backward(propagate_down[0], *(*self.param_propagate_down, False)[:2])
            return
        dy = self.cut(top[0].diff)
        if self.param.scale_param.bias_term and self.param_propagate_down[-1]:
            self.blobs[-1].diff[...] += self.collect(dy, self.blobs[-1])
        scale, learned = self._scale(bottom), len(bottom) == 1
        if self.param_propagate_down[0] if learned else propagate_down[1]:
            x = self.cut(bottom[0].data) if self._kept is None else self._kept
            gradient = self.collect(x * dy, scale)
            scale.diff[...] = scale.diff + gradient if learned else gradient
        if propagate_down[0]:
            bottom[0].diff[...] = (dy * self.column(scale.data)).reshape(bottom[0].shape)


@register_layer("Bias")
class Bias(Broadcast):
    """top = bottom + bias."""

    needs_forward = False

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.bias_param
        if len(bottom) == 1:
            self.add_param(self.own_shape(bottom, param), param.filler)

    def _bias(self, bottom: Sequence[Blob]) -> Blob:
        return bottom[1] if len(bottom) > 1 else self.blobs[0]

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.reshape_top(bottom, top)
        self.span(bottom, self._bias(bottom), self.param.bias_param)
        self._plan: ChannelPlan | None = None
        if self.channelwise(bottom, self._bias(bottom)):
            self._plan = self.backend.scale_shift(bottom[0], top[0], None, self.blobs[0])

    def per_channel(self) -> PerChannel | None:
        return None if self._plan is None else PerChannel(1.0, values_of(self.blobs[0]))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._plan is not None:
            self._plan.forward()
            return
        y = self.cut(bottom[0].data) + self.column(self._bias(bottom).data)
        top[0].data[...] = y.reshape(top[0].shape)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if self._plan is not None:
            self._plan.backward(propagate_down[0], False, self.param_propagate_down[0])
            return
        dy = top[0].diff
        bias, learned = self._bias(bottom), len(bottom) == 1
        if self.param_propagate_down[0] if learned else propagate_down[1]:
            gradient = self.collect(self.cut(dy), bias)
            bias.diff[...] = bias.diff + gradient if learned else gradient
        if propagate_down[0] and top[0] is not bottom[0]:
            bottom[0].diff[...] = dy
