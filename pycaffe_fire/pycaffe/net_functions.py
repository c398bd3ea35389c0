"""Net's methods and properties as the functions that pycaffe's module keeps: scripts call, wrap or
attach `caffe.pycaffe._Net_forward` and its siblings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from .batches import batches_of
from .net import Net

__all__ = [
    "_Net_backward", "_Net_batch", "_Net_blob_loss_weights", "_Net_blobs", "_Net_forward",
    "_Net_forward_all", "_Net_forward_backward_all", "_Net_get_id_name", "_Net_inputs",
    "_Net_layer_dict", "_Net_outputs", "_Net_params", "_Net_set_input_arrays",
]  # fmt: skip

_Net_blobs = property(attrgetter("blobs"))
_Net_blob_loss_weights = property(attrgetter("blob_loss_weights"))
_Net_layer_dict = property(attrgetter("layer_dict"))
_Net_params = property(attrgetter("params"))
_Net_inputs = property(attrgetter("inputs"))
_Net_outputs = property(attrgetter("outputs"))
_Net_forward = Net.forward
_Net_backward = Net.backward
_Net_forward_all = Net.forward_all
_Net_forward_backward_all = Net.forward_backward_all
_Net_set_input_arrays = Net.set_input_arrays


def _Net_batch(self: Net, blobs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Arrays of any length as batches of the net's size; zeros fill up the last one."""
    return batches_of(self, blobs)


def _Net_get_id_name(func: Callable[[Net, int], list[int]], field: str) -> property:
    """A property with the names of every layer's blobs, from a method that gives numbers."""

    def names(self: Net) -> dict[str, list[str]]:
        blobs = self._blob_names
        layers = enumerate(self._layer_names)
        return {name: [blobs[i] for i in func(self, number)] for number, name in layers}

    return property(names, doc=field)
