"""ImageData: image files and labels named in a list."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from ..data.image_list import ImageListSource, size_rule
from ..schema.proto import LayerParameter
from .base import register_layer
from .feed import DEPTH, Feed


@register_layer("ImageData")
class ImageData(Feed):
    """Tops: transformed images (BGR, or grey), and the labels after them in the list."""

    tops = (1, 2)

    @classmethod
    def image_size(cls, param: LayerParameter) -> tuple[int, int]:
        cropped, own = super().image_size(param), param.image_data_param
        return cropped if all(cropped) else (own.new_height, own.new_width)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.image_data_param
        if not param.source:
            self.fail('image_data_param needs a source (a text file of lines "path label")')
        for what in ("new", "min"):
            height, width = getattr(param, f"{what}_height"), getattr(param, f"{what}_width")
            if bool(height) != bool(width):
                self.fail(
                    f"{what}_height and {what}_width must be given together, got {height} and "
                    f"{width}"
                )
        if param.dataset_share_per_node != 1:
            self.fail("dataset_share_per_node is not supported: every rank sees the whole list")
        least = (param.min_height, param.min_width)
        size = size_rule(param.new_height, param.new_width, param.short_side, least)
        order = self.order(param.rand_skip, param.shuffle)
        classes = self.param.transform_param.num_labels
        transformer = self.transformer()
        with self.naming():
            source = ImageListSource(
                param.source, param.root_folder, param.is_color, size, transformer, order,
                classes, self.cache(param.source, param.cache or param.precache),
                self.context.bad_records,
            )  # fmt: skip
        self.start(source, param.batch_size, DEPTH, top)
