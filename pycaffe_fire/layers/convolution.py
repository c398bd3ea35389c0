"""Convolution and Deconvolution in any number of spatial axes or none, with groups and dilation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import ClassVar

from .. import schema
from ..backend.blob import Blob, SharedBlob
from ..backend.plans import Rectified, WeightedPlan, Window
from ..schema.proto import LayerParameter
from .base import Count, Layer, is_train, register_layer
from .checks import need_axes
from .coordinates import CoordMap, sliding
from .description import Storage, window_text
from .frozen import After, FoldedWeights, FrozenOp, OwnWeights, keeping_layout

POINT = Window((1,), (1,), (0,), (1,))  # the window of a bottom without spatial axes


class SlidingWindow(Layer):
    """Base of layers with the geometry of `convolution_param`; it computes nothing."""

    param_field = "convolution_param"
    _window: Window
    _axis: int  # of the channels

    @property
    def window(self) -> Window:
        """Its geometry, a number for each spatial axis."""
        return self._window

    def _read_window(self, spatial: int) -> Window:
        def read(field: str, default: int | None, least: int) -> tuple[int, ...]:
            values = self._per_axis(field, default, spatial)
            if min(values) < least:
                self.fail(f"{field} must be at least {least}, got {list(values)}")
            return values

        return Window(
            read("kernel_size", None, 1), read("stride", 1, 1), read("pad", 0, 0),
            read("dilation", 1, 1),
        )  # fmt: skip

    def _per_axis(self, field: str, default: int | None, spatial: int) -> tuple[int, ...]:
        """A repeated field, its _h/_w form, or the default; once for all axes or once per axis."""
        param = self.param.convolution_param
        stem = field.removesuffix("_size")
        given = list(getattr(param, field))
        if field != "dilation" and (param.HasField(f"{stem}_h") or param.HasField(f"{stem}_w")):
            if given or spatial != 2:
                self.fail(f"give either {field} or {stem}_h and {stem}_w (2-D only)")
            return (getattr(param, f"{stem}_h"), getattr(param, f"{stem}_w"))
        if not given:
            if default is None:
                self.fail(f"needs {field}")
            given = [default]
        if len(given) not in (1, spatial):
            self.fail(f"{field} must be given once or {spatial} times, got {len(given)}")
        return tuple(given if len(given) == spatial else given * spatial)

    def output_size(self, size: int, axis: int) -> int:
        win = self._window
        extent = win.dilation[axis] * (win.kernel[axis] - 1) + 1
        return (size + 2 * win.pad[axis] - extent) // win.stride[axis] + 1

    def _check_axes(self, bottom: Blob, spatial: int) -> None:
        """Refuse a bottom that has been reshaped to another number of axes since `setup`."""
        need_axes(self, bottom, self._axis + 1 + spatial, "as many as when the net was built")

    def _check_fits(self, bottom: Blob, sizes: Sequence[int]) -> None:
        """Refuse a kernel that is larger than the padded bottom."""
        if min(sizes, default=1) < 1:
            self.fail(
                f"kernel {list(self._window.kernel)} does not fit into the padded bottom "
                f"{list(bottom.shape)}"
            )


@register_layer("Convolution", "DepthwiseConvolution", "ConvolutionDepthwise")
class Convolution(SlidingWindow):
    """top = bottom * weights + bias; several bottoms share the weights."""

    storage: ClassVar[Storage] = Storage.ROUNDED
    family = "convolution"
    has_cudnn = True
    bottoms: ClassVar[Count] = (1, None)
    tops: ClassVar[Count] = (1, None)
    equal_counts = True
    fuses: ClassVar[tuple[str, ...]] = ("ReLU",)
    transposed = False

    @classmethod
    def describe(cls, param: LayerParameter) -> str:
        own = param.convolution_param
        return f"{own.num_output} of {window_text(own)}"

    @classmethod
    def coordinates(cls, param: LayerParameter, bottom: int = 0) -> CoordMap:
        window = sliding(param.type, param.convolution_param)
        return window.up() if cls.transposed else window.down()

    def multiply_adds(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> int:
        """The kernel is applied at every pixel of the smaller side."""
        at = self._axis
        sides = [blob.shape for blob in (bottom if self.transposed else top)]
        places = sum(prod(shape[:at]) * prod(shape[at + 1 :]) for shape in sides)
        return places * self.blobs[0].count

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.convolution_param
        self._axis = self.axis(bottom[0], param.axis)
        self._spatial = len(bottom[0].shape) - self._axis - 1
        self._window = self._read_window(self._spatial) if self._spatial else POINT
        self._groups, self._outputs = param.group, param.num_output
        channels = bottom[0].shape[self._axis]
        self._channels = channels
        if self._outputs < 1:
            self.fail("num_output must be at least 1")
        if channels < 1:
            self.fail(f"its bottom has no channels: {list(bottom[0].shape)}")
        if self._groups < 1 or channels % self._groups or self._outputs % self._groups:
            self.fail(
                f"group {self._groups} must divide the {channels} input channels and "
                f"num_output {self._outputs}"
            )
        first, second = self._outputs, channels
        if self.transposed:
            first, second = second, first
        kernel = self._window.kernel if self._spatial else ()
        self.add_param((first, second // self._groups, *kernel), param.weight_filler)
        if not self._spatial:  # the plan sees the weights with one axis more
            self.blobs[0].value.pinned = self.blobs[0].gradient.pinned = True
        if param.bias_term:
            self.add_param((self._outputs,), param.bias_filler)

    @property
    def channel_window(self) -> Window | None:
        alone = self._axis == 1 and self._groups == self._channels == self._outputs
        plain = alone and not self.transposed and len(self.blobs) == 1 and len(self.param.top) == 1
        return self._window if plain and self._spatial else None

    def _say(self, bottom: Sequence[Blob]) -> str:
        return f"{list(bottom[0].shape)}"

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        at = self._axis
        self._plans: list[tuple[WeightedPlan, Folded | None]] = []
        for x, y in zip(bottom, top, strict=True):
            if x.shape[1:] != bottom[0].shape[1:] and x.shape != bottom[0].shape:
                self.fail(f"all bottoms must have one shape, got {[list(b.shape) for b in bottom]}")
            self._check_axes(x, self._spatial)
            if x.shape[at] != self._channels:
                self.fail(f"its weights expect {self._channels} channels, got {self._say([x])}")
            spatial = [self.output_size(s, i) for i, s in enumerate(x.shape[at + 1 :])]
            self._check_fits(x, spatial)
            y.reshape(*x.shape[:at], self._outputs, *spatial)
            folded = None if at == 1 and self._spatial else Folded(x, y, at)
            inner = (folded.x, folded.y) if folded else (x, y)
            self._plans.append((self._plan(*inner), folded))

    def _plan(self, x: Blob, y: Blob) -> WeightedPlan:
        weights, bias = self.blobs[0], self.blobs[1] if len(self.blobs) > 1 else None
        if not self._spatial:
            weights = SharedBlob(weights, (*weights.shape, 1), weights.name)
        with self._choosing():
            return self.backend.convolution(
                x, weights, bias, y, self._window, self._groups, self.fused_relu,
                self.transposed,
            )  # fmt: skip

    def frozen(
        self, bottom: Blob, top: Blob, after: After, stride: tuple[int, ...] | None = None
    ) -> FrozenOp | None:
        if self.transposed or self._axis != 1 or not self._spatial:
            return None
        window = self._window if stride is None else replace(self._window, stride=stride)
        with self._choosing(), keeping_layout(top):
            if after.scalings or after.addend is not None:
                return self._folded(bottom, top, after, window)
            weights, bias = self.blobs[0], self.blobs[1] if len(self.blobs) > 1 else None
            plan = self.backend.packed_convolution(
                bottom, weights, bias, top, window, self._groups, after.relu
            )
            return OwnWeights(plan, window) if plan is not None else None

    def _folded(self, bottom: Blob, top: Blob, after: After, window: Window) -> FrozenOp | None:
        op = FoldedWeights(self.blobs, after, window)
        place = (bottom, op.weights, op.bias, top, window, self._groups, after.relu)
        if after.addend is None:
            packed = self.backend.packed_convolution(*place)
            op.plan = packed if packed is not None else self.backend.convolution(*place)
            return op
        plan = self.backend.convolution_sum(*place, after.addend)
        if plan is None:
            return None
        op.plan = plan
        return op

    @contextmanager
    def _choosing(self) -> Iterator[None]:
        """Plans made inside are of the engine that the layer names."""
        engine = schema.ConvolutionParameter.Engine.Name(self.param.convolution_param.engine)
        with self.backend.engine(engine), self.backend.per_sample(not is_train(self.phase)):
            yield

    def plan_ahead(self, leads: bool) -> None:
        for plan, _ in self._plans:
            plan.plan_ahead()

    @property
    def rectified(self) -> Rectified:
        if len(self._plans) != 1 or self._plans[0][1] or self.empty:
            return None
        return self._plans[0][0].rectified

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for plan, folded in self._plans:
            if folded:
                folded.before_forward()
            plan.forward(self.leads)
            if folded:
                folded.after_forward()

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        weights, bias = (*self.param_propagate_down, False)[:2]
        for (plan, folded), down in zip(self._plans, propagate_down, strict=True):
            if folded:
                folded.before_backward()
            plan.backward(down, weights, bias)
            if folded and down:
                folded.after_backward()


@register_layer("Deconvolution")
class Deconvolution(Convolution):
    """The transpose of a convolution: its backward pass run forward."""

    needs_forward = False
    transposed = True

    def output_size(self, size: int, axis: int) -> int:
        win = self._window
        extent = win.dilation[axis] * (win.kernel[axis] - 1) + 1
        return win.stride[axis] * (size - 1) + extent - 2 * win.pad[axis]


class Folded:
    """Copies with all axes before the channels folded into one, and with a spatial axis of 1 where
    there is none after them."""

    def __init__(self, x: Blob, y: Blob, axis: int) -> None:
        self.outer = (x, y)
        self.x, self.y = (
            Blob(b.backend, (prod(b.shape[:axis]), b.shape[axis], *(b.shape[axis + 1 :] or (1,))),
                 b.name)
            for b in (x, y)
        )  # fmt: skip

    def before_forward(self) -> None:
        self.x.data[...] = self.outer[0].data.reshape(self.x.shape)

    def after_forward(self) -> None:
        self.outer[1].data[...] = self.y.data.reshape(self.outer[1].shape)

    def before_backward(self) -> None:
        self.y.diff[...] = self.outer[1].diff.reshape(self.y.shape)

    def after_backward(self) -> None:
        self.outer[0].diff[...] = self.x.diff.reshape(self.outer[0].shape)
