"""Im2col: the patches a convolution would see, as channels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..backend.blob import Blob
from ..backend.numpy.shifts import shifts
from ..schema.proto import LayerParameter
from .base import register_layer
from .checks import forbid_in_place
from .convolution import SlidingWindow
from .coordinates import CoordMap, sliding
from .description import Storage, window_text


@register_layer("Im2col")
class Im2col(SlidingWindow):
    """Channel c * kernel cells + k of the top is kernel cell k of every window over channel c."""

    storage = Storage.FLOAT32

    @classmethod
    def describe(cls, param: LayerParameter) -> str:
        return window_text(param.convolution_param)

    @classmethod
    def coordinates(cls, param: LayerParameter, bottom: int = 0) -> CoordMap:
        return sliding(param.type, param.convolution_param).down()

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        self._axis = self.axis(bottom[0], self.param.convolution_param.axis)
        spatial = len(bottom[0].shape) - self._axis - 1
        if spatial < 1:
            self.fail(
                f"needs at least one axis after axis {self._axis}, got {list(bottom[0].shape)}"
            )
        self._window = self._read_window(spatial)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._check_axes(bottom[0], len(self._window.kernel))
        shape, at = bottom[0].shape, self._axis
        into = shape[at + 1 :]
        out = tuple(self.output_size(size, i) for i, size in enumerate(into))
        self._check_fits(bottom[0], out)
        cells = prod(self._window.kernel)
        top[0].reshape(*shape[:at], shape[at] * cells, *out)
        self._shifts = shifts(into, out, self._window)
        self._image = (prod(shape[: at + 1]), *into)
        self._patches = (self._image[0], cells, *out)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        image = bottom[0].data.reshape(self._image)
        patches = top[0].data.reshape(self._patches)
        if not patches.size:
            return
        patches[...] = 0
        for cell, (outputs, inputs) in enumerate(self._shifts):
            patches[:, cell][outputs] = image[inputs]

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            image = bottom[0].diff.reshape(self._image)
            patches = top[0].diff.reshape(self._patches)
            image[...] = 0
            if not patches.size:
                return
            for cell, (outputs, inputs) in enumerate(self._shifts):
                image[inputs] += patches[:, cell][outputs]
