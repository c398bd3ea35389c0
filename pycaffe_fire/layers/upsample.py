"""Upsample and Unpooling: values back to where a MAX pooling took them from (SegNet, DeconvNet)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import schema
from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place, need_axes, need_same_shape
from .description import Storage
from .indices import number_text, truncated


@register_layer("Upsample")
class Upsample(Layer):
    """top[mask] = bottom, 0 elsewhere; the mask is the second top of a MAX Pooling.

    Without a mask every value fills a block of scale x scale (YOLOv3). The size of the top is
    upsample_h x upsample_w, or the bottom's times the scale, less one where pad_out says so.
    """

    storage = Storage.MOVED
    bottoms = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        param = self.param.upsample_param
        pair = param.HasField("scale_h") + param.HasField("scale_w")
        if pair == 1 or (pair and param.HasField("scale")):
            self.fail("give scale, or both scale_h and scale_w")
        self._scale = (param.scale_h, param.scale_w) if pair else (param.scale, param.scale)
        if param.HasField("upsample_h") != param.HasField("upsample_w"):
            self.fail("upsample_h and upsample_w go together")
        self._sized = param.HasField("upsample_h")
        pads = (param.pad_out_h, param.pad_out_w)
        if self._sized:
            if len(bottom) == 1:
                self.fail("upsample_h and upsample_w need a mask as second bottom; give scale")
        elif min(self._scale) < 1:
            self.fail(f"scale must be at least 1, got {list(self._scale)}")
        elif any(pad and scale != 2 for pad, scale in zip(pads, self._scale, strict=True)):
            self.fail(f"pad_out_h and pad_out_w need scale 2, got {list(self._scale)}")
        elif any(pads) and len(bottom) == 1:
            self.fail("pad_out_h and pad_out_w need a mask as second bottom")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        need_axes(self, bottom[0], 4, "num, channels, height, width")
        need_same_shape(self, bottom)
        shape = bottom[0].shape
        size = self._top_size(shape[2:])
        if min(size) < 1:
            self.fail(f"its top would be {size[0]} x {size[1]} pixels (bottom {list(shape)})")
        top[0].reshape(*shape[:2], *size)

    def _top_size(self, lengths: Sequence[int]) -> list[int]:
        param = self.param.upsample_param
        if self._sized:
            return [param.upsample_h, param.upsample_w]
        pads = (param.pad_out_h, param.pad_out_w)
        return [n * scale - pad for n, scale, pad in zip(lengths, self._scale, pads, strict=True)]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        y, x = top[0].data, bottom[0].data
        if len(bottom) == 1:
            self._blocks(y)[...] = x[:, :, :, None, :, None]
            return
        self._places = self._read(bottom[1], y.shape)
        y[...] = 0
        planes = self._planes(y)
        self.xp.put_along_axis(planes, self._places, x.reshape(self._places.shape), axis=1)

    def _planes(self, large: Any) -> Any:
        """The top's array with one row per plane."""
        num, channels, height, width = large.shape
        return large.reshape(num * channels, height * width)

    def _blocks(self, large: Any) -> Any:
        """The top's array with each block on axes 3 and 5."""
        (num, channels, height, width), (h, w) = large.shape, self._scale
        return large.reshape(num, channels, height // h, h, width // w, w)

    def _read(self, mask: Blob, shape: tuple[int, ...]) -> Any:
        """Where in its flattened plane of the top each value goes."""
        num, channels, height, width = mask.shape
        given = mask.data.reshape(num * channels, height * width)
        places = truncated(self.xp, given)
        wrong = (places < 0) | (places >= shape[2] * shape[3])
        if wrong.any():
            plane, at = (int(i[0]) for i in self.xp.nonzero(wrong))
            self.fail(
                f'index {number_text(given[plane, at])} in mask "{mask.name}" (sample '
                f"{plane // channels}, channel {plane % channels}) is outside the top of "
                f"{shape[2]} x {shape[3]} pixels; its size must be that of the pooling's bottom"
            )
        return places

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if len(bottom) > 1 and propagate_down[1]:  # a mask has no gradient
            bottom[1].gradient.clear()
        if not propagate_down[0]:
            return
        dy = top[0].diff
        if len(bottom) == 1:
            bottom[0].diff[...] = self._blocks(dy).sum(axis=(3, 5))
            return
        found = self.xp.take_along_axis(self._planes(dy), self._places, axis=1)
        bottom[0].diff[...] = found.reshape(bottom[0].shape)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index == 0


@register_layer("Unpooling")
class Unpooling(Upsample):
    """top[mask] = bottom, 0 elsewhere, sized by the geometry of the pooling that it undoes."""

    bottoms = (2, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        param = self.param.unpooling_param
        if param.unpool != schema.UnpoolingParameter.MAX:
            self.fail("only unpool: MAX is supported")
        if not self._pair("unpool", "unpool_size") and not self._pair("kernel", "kernel_size"):
            self.fail("needs the pooling's kernel_size (and stride and pad), or unpool_size")

    def _pair(self, stem: str, field: str) -> tuple[int, int] | None:
        """A field or its _h/_w form; None if neither is given."""
        param = self.param.unpooling_param
        if param.HasField(f"{stem}_h") or param.HasField(f"{stem}_w"):
            return (getattr(param, f"{stem}_h"), getattr(param, f"{stem}_w"))
        value = getattr(param, field)
        return (value, value) if param.HasField(field) or field in ("stride", "pad") else None

    def _top_size(self, lengths: Sequence[int]) -> list[int]:
        given = self._pair("unpool", "unpool_size")
        if given:
            return list(given)
        kernel = self._pair("kernel", "kernel_size") or (0, 0)
        stride, pad = self._pair("stride", "stride") or (1, 1), self._pair("pad", "pad") or (0, 0)
        return [
            (n - 1) * s + k - 2 * p for n, s, k, p in zip(lengths, stride, kernel, pad, strict=True)
        ]
