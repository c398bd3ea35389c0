"""SPP: spatial pyramid pooling, a fixed number of features from images of any size."""

from __future__ import annotations

from collections.abc import Sequence

from .. import schema
from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place, need_axes
from .description import Storage
from .pooling import Pooling


class Level:
    """A pooling layer with its own view of the bottom, so that its gradient stays apart."""

    def __init__(self, layer: Layer, index: int, bottom: Blob) -> None:
        bins = 2**index
        param = schema.LayerParameter(name=f"{layer.name} level {index}", type="Pooling")
        pooling = param.pooling_param
        pooling.pool = layer.param.spp_param.pool
        for name, size in zip("hw", bottom.shape[2:], strict=True):
            kernel = -(-size // bins)
            pad = (kernel * bins - size + 1) // 2
            if pad >= kernel:
                layer.fail(
                    f"the bottom {list(bottom.shape)} is too small for the {bins} x {bins} bins "
                    f"of pyramid level {index}"
                )
            setattr(pooling, f"kernel_{name}", kernel)
            setattr(pooling, f"stride_{name}", kernel)
            setattr(pooling, f"pad_{name}", pad)
        self.x = Blob(layer.backend, bottom.shape, bottom.name)
        self.x.value = bottom.value
        self.x.gradient.lay_out(bottom.value.layout)
        self.y = Blob(layer.backend, (), param.name)
        self._pooling = Pooling(param, layer.phase, layer.backend, layer.context)
        self._pooling.setup([self.x], [self.y])
        self._pooling.plan([self.x], [self.y])

    def forward(self) -> None:
        self._pooling.forward([self.x], [self.y])

    def backward(self) -> None:
        self._pooling.backward([self.y], [True], [self.x])


@register_layer("SPP")
class SPP(Layer):
    """Level i pools into 2^i x 2^i bins; the top is all levels, flattened, side by side.

    A pyramid of one level keeps its four axes, as in Caffe.
    """

    storage = Storage.ROUNDED
    family = "pooling"

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self.param.spp_param.pyramid_height < 1:
            self.fail("pyramid_height must be at least 1")
        forbid_in_place(self, bottom, top)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        need_axes(self, bottom[0], 4, "num, channels, height, width")
        if not bottom[0].count:
            self.fail(f"cannot pool an empty bottom {list(bottom[0].shape)}")
        height = self.param.spp_param.pyramid_height
        self._levels = [Level(self, i, bottom[0]) for i in range(height)]
        if height == 1:
            top[0].reshape_like(self._levels[0].y)
        else:
            num = bottom[0].shape[0]
            top[0].reshape(num, sum(level.y.count for level in self._levels) // num)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        num = bottom[0].shape[0]
        for level in self._levels:
            level.forward()
        flat = [level.y.data.reshape(num, -1) for level in self._levels]
        top[0].data[...] = self.xp.concatenate(flat, axis=1).reshape(top[0].shape)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if not propagate_down[0]:
            return
        dy = top[0].diff.reshape(bottom[0].shape[0], -1)
        dx, start = bottom[0].diff, 0
        dx[...] = 0
        for level in self._levels:
            end = start + level.y.count // dy.shape[0]
            level.y.diff[...] = dy[:, start:end].reshape(level.y.shape)
            level.backward()
            dx += level.x.diff
            start = end
