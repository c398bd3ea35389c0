"""DummyData: blobs from fillers, for trying a net without data."""

from __future__ import annotations

from collections.abc import Sequence

from .. import schema
from ..backend.blob import Blob
from ..backend.random import key
from ..schema.proto import LayerParameter
from .base import Layer, register_layer
from .description import Storage
from .fillers import fill


@register_layer("DummyData")
class DummyData(Layer):
    """Constant tops are filled once, random ones in every pass."""

    storage = Storage.FLOAT32
    family = "data"
    bottoms = (0, 0)
    tops = (1, None)

    @classmethod
    def batch_size(cls, param: LayerParameter) -> int | None:
        own = param.dummy_data_param
        first = own.shape[0].dim if own.shape else own.num
        return first[0] if first else None

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, n = self.param.dummy_data_param, len(top)
        if len(param.data_filler) not in (0, 1, n):
            self.fail(f"needs no data_filler, one, or one per top ({n})")
        self._fillers = [
            param.data_filler[i if len(param.data_filler) > 1 else 0]
            if param.data_filler
            else schema.FillerParameter()
            for i in range(n)
        ]
        for i, shape in enumerate(self._shapes(n)):
            top[i].reshape(*self._leaf_shape(shape))
        self._fill(top, constant=True)

    def _shapes(self, n: int) -> list[tuple[int, ...]]:
        param = self.param.dummy_data_param
        if param.num:
            legacy = (param.num, param.channels, param.height, param.width)
            if param.shape or any(len(dims) not in (1, n) for dims in legacy):
                self.fail("give either shapes or num/channels/height/width, one or one per top")
            return [tuple(dims[i if len(dims) > 1 else 0] for dims in legacy) for i in range(n)]
        if len(param.shape) not in (1, n):
            self.fail(f"needs one shape, or one per top ({n}), got {len(param.shape)}")
        return [tuple(param.shape[i if len(param.shape) > 1 else 0].dim) for i in range(n)]

    def _leaf_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The first axis is the global batch; a leaf gets its share of it (a 1 is a constant)."""
        if not shape or shape[0] <= 1:
            return shape
        return (self.leaf_size(shape[0]), *shape[1:])

    def _fill(self, top: Sequence[Blob], constant: bool) -> None:
        ctx = self.context
        for i, (blob, filler) in enumerate(zip(top, self._fillers, strict=True)):
            if (filler.type == "constant") == constant:
                purpose = f"dummy {self.name} {i} pass {ctx.step} leaf {ctx.leaf}"
                try:
                    fill(blob, filler, key(ctx.seed, purpose))
                except ValueError as error:
                    self.fail(f"data_filler: {error}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._fill(top, constant=False)
