"""WindowData: regions of images as foreground and background samples (R-CNN)."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from ..backend.random import key
from ..data.windows import WindowSource
from .base import register_layer
from .feed import DEPTH, Feed


@register_layer("WindowData")
class WindowData(Feed):
    """Tops: windows warped to crop_size x crop_size, and their classes (0 is background)."""

    tops = (2, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, transform = self.param.window_data_param, self.param.transform_param
        if not param.source:
            self.fail("window_data_param needs a source (a window file)")
        if not transform.crop_size:
            self.fail("transform_param needs a crop_size")
        if param.crop_mode not in ("warp", "square"):
            self.fail(f'crop_mode must be "warp" or "square", got "{param.crop_mode}"')
        if 2 * param.context_pad >= transform.crop_size:
            self.fail(
                f"context_pad {param.context_pad} leaves nothing of crop_size {transform.crop_size}"
            )
        if not param.batch_size:
            self.fail("window_data_param needs a batch_size")
        self.transformer()  # for its checks of the fields that both share
        with self.naming():
            stream = key(self.context.seed, f"window {self.name}")
            source = WindowSource(
                param, transform, stream, param.batch_size, self.context.bad_records,
                self.cache(param.source, param.cache_images),
            )  # fmt: skip
        self.start(source, param.batch_size, DEPTH, top)
