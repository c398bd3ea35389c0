"""Embed: a row of a learned table for every index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.blob import Blob
from .base import Layer, register_layer
from .description import Storage
from .scatter import add_rows


@register_layer("Embed")
class Embed(Layer):
    """top[..., :] = weights[bottom[...], :] + bias, with weights of (input_dim, num_output)."""

    storage = Storage.FLOAT32
    family = "product"

    def multiply_adds(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> int:
        return 0  # rows are picked, not multiplied

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.embed_param
        if param.num_output < 1 or param.input_dim < 1:
            self.fail(
                f"num_output and input_dim must be at least 1, got {param.num_output} and "
                f"{param.input_dim}"
            )
        self.add_param((param.input_dim, param.num_output), param.weight_filler)
        if param.bias_term:
            self.add_param((param.num_output,), param.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape(*bottom[0].shape, self.param.embed_param.num_output)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        places = self._places = self._read(bottom[0])
        y = top[0].data
        y.reshape(places.size, y.shape[-1])[...] = self.blobs[0].data[places]
        if len(self.blobs) > 1:
            y += self.blobs[1].data

    def _read(self, blob: Blob) -> Any:
        rows = self.param.embed_param.input_dim
        given = blob.data.reshape(-1)
        right = (given >= 0) & (given < rows) & (given == self.xp.floor(given))
        if not right.all():
            at = int(self.xp.nonzero(~right)[0][0])
            self.fail(
                f'{float(given[at]):g} at place {at} of "{blob.name}" is not an index below '
                f"input_dim {rows}"
            )
        return given.astype(np.int64)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            self.fail("cannot backpropagate to its indices (bottom 0)")
        rows = top[0].diff.reshape(self._places.size, top[0].shape[-1])
        if self.param_propagate_down[0]:
            add_rows(self.xp, self.blobs[0].diff, self._places, rows)
        if len(self.blobs) > 1 and self.param_propagate_down[1]:
            bias = self.blobs[1].diff
            bias += rows.sum(axis=0)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return False
