"""AnnotatedData: images and the boxes of their objects from a database, as SSD trains on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .. import schema
from ..backend.blob import Blob
from ..data.annotated import AnnotatedSource
from ..schema.proto import LayerParameter
from .base import register_layer
from .feed import Feed


@register_layer("AnnotatedData")
class AnnotatedData(Feed):
    """Tops: transformed images, and the objects in them (1 x 1 x count x 8).

    A row of the second top is the number of the image in the batch, label, instance, xmin, ymin,
    xmax, ymax and difficult, coordinates in parts of the image; a batch without objects has one
    row of -1. If neither the records nor anno_type say what the annotations are, the second top
    holds the labels of the images.
    """

    tops = (1, 2)
    feeds_objects = True
    param_field = "data_param"
    also_reads: ClassVar[tuple[str, ...]] = (*Feed.also_reads, "annotated_data_param")

    @classmethod
    def source_kind(cls, param: LayerParameter) -> str:
        return str(schema.DataParameter.DB.Name(param.data_param.backend))

    @classmethod
    def image_size(cls, param: LayerParameter) -> tuple[int, int]:
        cropped, resize = super().image_size(param), param.transform_param.resize_param
        return cropped if all(cropped) else (resize.height, resize.width)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, own = self.param.data_param, self.param.annotated_data_param
        if not param.source:
            self.fail("data_param needs a source (the path of a database)")
        transformer = self.transformer(list(own.batch_sampler))
        transformer.force_color |= param.force_encoded_color
        resize = self.param.transform_param.resize_param
        own_sizes = resize.resize_mode == schema.ResizeParameter.FIT_SMALL_SIZE
        if own_sizes and param.batch_size != 1 and not transformer.crop:
            self.fail(
                "resize_mode FIT_SMALL_SIZE leaves images of different sizes; set crop_size, or "
                "batch_size: 1"
            )
        with self.naming():
            source = AnnotatedSource(
                param.source,
                schema.DataParameter.DB.Name(param.backend),
                transformer,
                self.order(param.rand_skip, param.shuffle),
                resize,
                one_by_one=param.batch_size == 1,
                boxes=True if own.HasField("anno_type") else None,
                policy=self.context.bad_records,
                cache=self.cache(param.source, param.cache or param.precache),
            )
        self.start(source, param.batch_size, max(1, param.prefetch), top)
        if len(top) > 1:
            top[1].reshape(*source.label_shape(top[0].num))
