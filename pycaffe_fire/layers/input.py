"""Input: blobs that the caller of the net fills."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import Layer, register_layer
from .description import Storage


@register_layer("Input")
class Input(Layer):
    """Tops of the given shapes (one shape for all of them, or one each)."""

    storage = Storage.FLOAT32
    family = "data"
    bottoms = (0, 0)
    tops = (1, None)

    @classmethod
    def describe(cls, param: LayerParameter) -> str:
        return " ".join("x".join(map(str, shape.dim)) for shape in param.input_param.shape)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shapes = self.param.input_param.shape
        if len(shapes) not in (0, 1, len(top)):
            self.fail(f"needs one shape, or one per top ({len(top)}), got {len(shapes)}")
        for i, blob in enumerate(top):
            if shapes:
                blob.reshape(*shapes[i if len(shapes) > 1 else 0].dim)
