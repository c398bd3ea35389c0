"""Data: images and labels from an LMDB or LevelDB."""

from __future__ import annotations

from collections.abc import Sequence

from .. import schema
from ..backend.blob import Blob
from ..data.source import DatabaseSource
from ..schema.proto import LayerParameter
from .base import register_layer
from .feed import Feed


@register_layer("Data")
class Data(Feed):
    """Tops: transformed images, and labels if there is a second top."""

    tops = (1, 2)

    @classmethod
    def source_kind(cls, param: LayerParameter) -> str:
        return str(schema.DataParameter.DB.Name(param.data_param.backend))

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, transform = self.param.data_param, self.param.transform_param
        if not param.source:
            self.fail("data_param needs a source (the path of a database)")
        if param.side:
            self.fail("data_param side (boxes of YOLO) is not supported; remove it")
        order = self.order(param.rand_skip, param.shuffle)
        kind = schema.DataParameter.DB.Name(param.backend)
        transformer = self.transformer()
        transformer.force_color |= param.force_encoded_color
        with self.naming():
            source = DatabaseSource(
                param.source, kind, transformer, order, transform.num_labels,
                cache=self.cache(param.source, param.cache or param.precache),
                policy=self.context.bad_records,
            )  # fmt: skip
        self.start(source, param.batch_size, max(1, param.prefetch), top)
