"""HDF5Output: writes what arrives to an HDF5 file."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..backend.blob import Blob
from ..backend.tensor import on_host
from ..schema.files import new_file_beside
from .base import Layer, register_layer
from .description import Storage
from .outputs import refusal

NAMES = ("data", "label")


@register_layer("HDF5Output")
class HDF5Output(Layer):
    """Bottoms go to the datasets "data" and "label" (4-D, as in Caffe); each pass adds its rows.

    The file appears when the net is closed or dropped: until then it has a temporary name.
    """

    storage = Storage.FLOAT32
    bottoms = (2, 2)
    tops = (0, 0)

    @property
    def repeatable(self) -> bool:
        return False

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        name = self.param.hdf5_output_param.file_name
        if not name:
            self.fail("hdf5_output_param needs a file_name")
        if reason := refusal(name, self.context.output_folder):
            self.fail(reason)
        if not os.path.isdir(os.path.dirname(name) or "."):
            self.fail(f"the folder of {name} does not exist; make it first")
        self._name = name
        self._file: Any = None

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if bottom[0].num != bottom[1].num:
            self.fail(
                f"data and labels must have as many rows, got {bottom[0].num} and {bottom[1].num}"
            )

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._findings = [
            on_host(blob.data)
            .astype(np.float32)
            .reshape(blob.num, blob.channels, blob.height, blob.width)
            for blob in bottom
        ]
        if not self.context.collects:
            self.write([self._findings])

    def findings(self) -> list[Any]:
        """The rows of the pass for each dataset."""
        return self._findings

    def write(self, passes: Sequence[Any]) -> None:
        if self._file is None:
            self._open()
        for found in passes:
            self._append(found)

    def _append(self, found: Sequence[Any]) -> None:
        for name, rows in zip(NAMES, found, strict=True):
            shape = rows.shape
            if name not in self._file:
                self._file.create_dataset(name, data=rows, maxshape=(None, *shape[1:]))
                continue
            dataset = self._file[name]
            if dataset.shape[1:] != shape[1:]:
                self.fail(f"{self._name} holds rows of shape {dataset.shape[1:]}, got {shape[1:]}")
            dataset.resize(len(dataset) + len(rows), axis=0)
            dataset[-len(rows) :] = rows

    def _open(self) -> None:
        import h5py  # slow to load, and few nets have this layer

        try:
            partial = os.fspath(new_file_beside(Path(self._name)))
            self._file = h5py.File(partial, "w")
        except OSError as error:
            self.fail(f"{self._name} cannot be written: {error}")
        self._finish = weakref.finalize(self, _finish, self._file, partial, self._name)

    def close(self) -> None:
        if self._file is not None:
            self._finish()
            self._file = None


def _finish(file: Any, partial: str, name: str) -> None:
    file.close()
    with open(partial, "rb") as written:
        os.fsync(written.fileno())
    Path(partial).replace(name)
