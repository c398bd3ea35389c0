"""Input: blobs that whoever calls the net fills."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Layer, register_layer


@register_layer("Input")
class Input(Layer):
    """Tops of the given shapes (one shape for all of them, or one each)."""

    bottoms = (0, 0)
    tops = (1, None)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shapes = self.param.input_param.shape
        if len(shapes) not in (0, 1, len(top)):
            self.fail(f"needs one shape, or one per top ({len(top)}), got {len(shapes)}")
        for i, blob in enumerate(top):
            if shapes:
                blob.reshape(*shapes[i if len(shapes) > 1 else 0].dim)
