"""HDF5Data: rows of HDF5 files, one dataset per top."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from ..backend.random import key
from ..data.hdf5 import HDF5Source
from .base import register_layer
from .feed import DEPTH, Feed


@register_layer("HDF5Data")
class HDF5Data(Feed):
    """Tops are named after the datasets they read."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.hdf5_data_param
        if self.param.HasField("transform_param"):
            self.fail("does not transform data; remove transform_param")
        if not param.source:
            self.fail("hdf5_data_param needs a source (a text file listing HDF5 files)")
        shuffle = key(self.context.seed, f"shuffle {self.name}") if param.shuffle else None
        with self.naming():
            source = HDF5Source(param.source, list(self.param.top), shuffle)
        self.start(source, param.batch_size, DEPTH, top)
