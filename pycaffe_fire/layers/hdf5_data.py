"""HDF5Data: rows of HDF5 files, one dataset per top."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Blob
from ..data.hdf5 import HDF5Source
from .base import register_layer
from .feed import Feed

DEPTH = 3


@register_layer("HDF5Data")
class HDF5Data(Feed):
    """Tops are named after the datasets they read."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.hdf5_data_param
        if self.param.HasField("transform_param"):
            self.fail("does not transform data; remove transform_param")
        if not param.source:
            self.fail("hdf5_data_param needs a source (a text file listing HDF5 files)")
        self.start(HDF5Source(param.source, list(self.param.top)), param.batch_size, DEPTH, top)
