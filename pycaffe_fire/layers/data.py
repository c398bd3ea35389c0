"""Data: images and labels from an LMDB or LevelDB."""

from __future__ import annotations

from collections.abc import Sequence

from .. import schema
from ..backend.random import key
from ..blob import Blob
from ..data.order import Order, SequentialOrder, ShuffledOrder, skip_offset
from ..data.source import DatabaseSource
from ..data.transformer import Transformer
from ..errors import DataError
from .base import is_train, register_layer
from .feed import Feed


@register_layer("Data")
class Data(Feed):
    """Tops: transformed images, and labels if there is a second top."""

    tops = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, seed = self.param.data_param, self.context.seed
        if not param.source:
            self.fail("data_param needs a source (the path of a database)")
        transformer = Transformer(
            self.param.transform_param,
            is_train(self.phase),
            key(seed, f"transform {self.name}"),
            f'layer "{self.name}" transform_param',
        )
        order: Order = SequentialOrder(skip_offset(seed, f"skip {self.name}", param.rand_skip))
        if param.shuffle:
            order = ShuffledOrder(key(seed, f"shuffle {self.name}"))
        kind = schema.DataParameter.DB.Name(param.backend)
        try:
            source = DatabaseSource(param.source, kind, transformer, order)
        except DataError as error:
            raise DataError(f'layer "{self.name}" ({self.type}): {error}') from error
        self.start(source, param.batch_size, max(1, param.prefetch), top)
