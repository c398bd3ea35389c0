"""ImageSegData, DenseImageData and ImageLabelmapData: images with a class for every pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import schema
from ..backend.blob import Blob
from ..data.image_list import size_rule
from ..data.masks import MaskSource
from ..schema.proto import LayerParameter
from .base import register_layer
from .feed import DEPTH, Feed


class SegmentationData(Feed):
    """Tops: transformed images, and the classes of their pixels (N x 1 x H x W), 255 for none."""

    @classmethod
    def image_size(cls, param: LayerParameter) -> tuple[int, int]:
        cropped, own = super().image_size(param), cls.own_param(param)
        return cropped if all(cropped) else (own.new_height, own.new_width)

    @classmethod
    def top_shape(cls, number: int, image: list[int]) -> list[int]:
        return (image, [1, *image[1:]], [1, 1, 2])[number]

    def read_from(self, param: Any, top: Sequence[Blob], masks: bool = True) -> None:
        """Start to read as an ImageDataParameter says."""
        if not param.source:
            self.fail('needs a source (a text file of lines "image mask", two paths)')
        if bool(param.new_height) != bool(param.new_width):
            self.fail(
                f"new_height and new_width must be given together, got {param.new_height} and "
                f"{param.new_width}"
            )
        order = self.order(param.rand_skip, param.shuffle)
        size = size_rule(param.new_height, param.new_width)
        transformer = self.transformer()
        with self.naming():
            source = MaskSource(
                param.source, param.root_folder, param.is_color, size, transformer, order, masks,
                self.context.bad_records,
            )  # fmt: skip
        self.start(source, param.batch_size, DEPTH, top)


@register_layer("ImageSegData", "ImageLabelmapData")
class ImageSegData(SegmentationData):
    """As DeepLab's, also under HED's name; a third top holds the images' heights and widths.

    With label_type: NONE, lines name images alone and every pixel has the class 255.
    """

    param_field = "image_data_param"
    tops = (1, 3)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.image_data_param
        if param.label_type == schema.ImageDataParameter.IMAGE:
            self.fail("label_type: IMAGE is one label for each image, which ImageData reads")
        masks = param.label_type == schema.ImageDataParameter.PIXEL
        self.read_from(param, top, masks)


@register_layer("DenseImageData")
class DenseImageData(SegmentationData):
    """As SegNet's: its parameters are in dense_image_data_param, with those of the transform."""

    param_field = "dense_image_data_param"
    tops = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.read_from(self.param.dense_image_data_param, top)
