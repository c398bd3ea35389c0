"""Pooling: MAX, AVE and STOCHASTIC over windows that may hang over the border.

Over height and width, or over depth, height and width of a bottom with five axes (kernel_size_3d).
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import schema
from ..backend.blob import Blob
from ..backend.plans import PoolingPlan, Rectified, Window
from ..schema.proto import LayerParameter
from .base import Layer, register_layer
from .coordinates import CoordMap, sliding
from .description import Storage, window_text
from .frozen import After, FrozenOp, NoWeights
from .stochastic_pooling import StochasticPooling


def pooled_size(
    size: int, kernel: int, stride: int, pad: int, padded: bool, floor: bool = False
) -> int:
    """How many windows there are along an axis; `padded`: is there padding along any axis?"""
    room = size + 2 * pad - kernel
    outputs = (room // stride if floor else -(-room // stride)) + 1
    if padded and (outputs - 1) * stride >= size + pad:
        outputs -= 1  # the last window would start beyond the image
    return outputs


@register_layer("Pooling")
class Pooling(Layer):
    """Output sizes round up unless round_mode says FLOOR; a second top of MAX holds the winners.

    AVE counts padding unless avg_include_pad says no. Where the stride exceeds the kernel, the last
    window can lie beyond the bottom; its maximum is the lowest number there is, as in Caffe.
    """

    storage = Storage.ROUNDED
    index_tops = (1,)  # the mask
    family = "pooling"
    tops = (1, 2)

    @classmethod
    def describe(cls, param: LayerParameter) -> str:
        own = param.pooling_param
        kind = schema.PoolingParameter.PoolMethod.Name(own.pool)
        return f"{kind} {'global' if own.global_pooling else window_text(own)}"

    @classmethod
    def coordinates(cls, param: LayerParameter, bottom: int = 0) -> CoordMap:
        return sliding(param.type, param.pooling_param).down()

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.pooling_param
        self._method = schema.PoolingParameter.PoolMethod.Name(param.pool)
        self._axes = len(bottom[0].shape) - 2
        if self._axes not in (2, 3):
            self.fail(
                f"needs a bottom with 4 axes (num, channels, height, width), or 5, with depth "
                f"before the height, got {list(bottom[0].shape)}"
            )
        if len(top) > 1 and self._method != "MAX":
            self.fail("only MAX pooling has a second top (the mask)")
        if param.global_pooling:
            given = any(param.HasField(f) for f in ("kernel_size", "kernel_h", "kernel_w"))
            if given or param.kernel_size_3d:
                self.fail("global_pooling takes its kernel from the bottom; remove the kernel size")
            if any(self._sides("pad", 0)) or set(self._sides("stride", 1)) != {1}:
                self.fail("global_pooling goes with pad 0 and stride 1 only")
            return
        kernel, pad = self._sides("kernel_size", None), self._sides("pad", 0)
        if min(kernel) < 1:
            self.fail(f"kernel_size must be at least 1, got {list(kernel)}")
        if min(self._sides("stride", 1)) < 1:
            self.fail(f"stride must be at least 1, got {list(self._sides('stride', 1))}")
        if self._method == "STOCHASTIC" and any(pad):
            self.fail("pad goes with MAX and AVE only")
        if any(p >= k for p, k in zip(pad, kernel, strict=True)):
            self.fail(f"pad {list(pad)} must be smaller than the kernel {list(kernel)}")

    def _sides(self, field: str, default: int | None) -> tuple[int, ...]:
        """A field, its _h/_w form or its _3d form, for each of the pooled axes."""
        param, axes = self.param.pooling_param, self._axes
        stem, three = field.removesuffix("_size"), f"{field}_3d"
        pair = param.HasField(f"{stem}_h") or param.HasField(f"{stem}_w")
        triple = list(getattr(param, three))
        if param.HasField(field) + pair + bool(triple) > 1:
            self.fail(f"give either {field} or {stem}_h and {stem}_w, or {three}")
        if triple and (axes != 3 or len(triple) not in (1, 3)):
            self.fail(
                f"{three} must be 1 or 3 numbers, for a bottom with 5 axes; got {triple} and "
                f"{axes + 2} axes"
            )
        if pair:
            if axes != 2:
                self.fail(f"{stem}_h and {stem}_w go with 4 axes, got {axes + 2}; give {three}")
            return (getattr(param, f"{stem}_h"), getattr(param, f"{stem}_w"))
        if triple:
            return tuple(triple) if len(triple) == 3 else (triple[0],) * 3
        if not param.HasField(field):
            if default is None:
                self.fail(f"needs {field}, {stem}_h and {stem}_w, or global_pooling")
            return (default,) * axes
        return (getattr(param, field),) * axes

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape = bottom[0].shape
        if len(shape) != self._axes + 2:
            self.fail(f"was set up for a bottom with {self._axes + 2} axes, got {[*shape]}")
        window = self.window(shape)
        sizes = [self._output_size(shape[2 + i], i, window) for i in range(self._axes)]
        if min(sizes) < 1:
            self.fail(f"kernel {list(window.kernel)} does not fit into the bottom {list(shape)}")
        starts = [(n - 1) * s - p for n, s, p in zip(sizes, window.stride, window.pad, strict=True)]
        beyond = any(start >= size for start, size in zip(starts, shape[2:], strict=True))
        if beyond and self._method != "MAX":
            self.fail(  # where Caffe itself gives NaN
                f"its last window would start beyond the bottom {list(shape)}, because the stride "
                f"exceeds the kernel; set round_mode: FLOOR"
            )
        for blob in top:
            blob.reshape(*shape[:2], *sizes)
        # A plan with a mask knows that a window can be empty, too.
        self._plan = self._pooling(bottom[0], top[0], window, mask=beyond or len(top) > 1)

    def _pooling(self, x: Blob, y: Blob, window: Window, mask: bool) -> PoolingPlan:
        if self._method == "STOCHASTIC":
            return StochasticPooling(self, x, y, window)
        inside = self._method == "AVE" and not self.param.pooling_param.avg_include_pad
        return self.backend.pooling(x, y, "AVE_INSIDE" if inside else self._method, window, mask)

    def window(self, shape: tuple[int, ...]) -> Window:
        """Where it slides over a bottom of this shape."""
        ones = (1,) * self._axes
        if self.param.pooling_param.global_pooling:
            return Window(shape[2:], ones, tuple(0 for _ in ones), ones)
        kernel, stride = self._sides("kernel_size", None), self._sides("stride", 1)
        return Window(kernel, stride, self._sides("pad", 0), ones)

    def _output_size(self, size: int, axis: int, window: Window) -> int:
        floor = self.param.pooling_param.round_mode == schema.PoolingParameter.FLOOR
        kernel, stride, pad = window.kernel[axis], window.stride[axis], window.pad[axis]
        return pooled_size(size, kernel, stride, pad, any(window.pad), floor)

    def frozen(
        self, bottom: Blob, top: Blob, after: After, stride: tuple[int, ...] | None = None
    ) -> FrozenOp | None:
        return NoWeights(self._plan) if self._plan.joins and after == After() else None

    @property
    def forgets(self) -> bool:
        return self._plan.forgets

    @property
    def rectified(self) -> Rectified:
        return None if self.empty else self._plan.rectified

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._plan.forward()
        if len(top) > 1:
            top[1].data[...] = self._plan.mask

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            self._plan.backward()
