"""Base of the layers that read samples from outside, and what their messages say of the data."""

from __future__ import annotations

from typing import ClassVar

from ..schema.proto import LayerParameter
from .base import Layer
from .description import Storage


class DataLayer(Layer):
    """No bottoms; batch_size (and source, if any) stand in the type's own parameters."""

    also_reads: ClassVar[tuple[str, ...]] = ("transform_param",)
    bottoms = (0, 0)
    storage = Storage.FLOAT32
    family = "data"
    feeds_objects: ClassVar[bool] = False  # may its second top hold objects, as detectors read?

    @classmethod
    def image_shape(cls, param: LayerParameter) -> list[int] | None:
        """Channels, height and width of what it feeds, as far as the prototxt tells."""
        transform, (height, width) = param.transform_param, cls.image_size(param)
        if not (height and width):
            return None
        means = len(transform.mean_value)
        return [1 if transform.force_gray else means if means > 1 else 3, height, width]

    @classmethod
    def image_size(cls, param: LayerParameter) -> tuple[int, int]:
        """Height and width of what it feeds; 0 where the prototxt does not tell."""
        size = param.transform_param.crop_size or getattr(cls.own_param(param), "crop_size", 0)
        return size, size

    @classmethod
    def top_shape(cls, number: int, image: list[int]) -> list[int]:
        """Of one sample in this top: an image, or a label, which is a single number."""
        return [] if number else image

    @classmethod
    def source_kind(cls, param: LayerParameter) -> str:
        """What its source is: a list of files, or a kind of database."""
        return "list"
