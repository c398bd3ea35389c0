"""How blobs are stored: NVIDIA Caffe's forward_type and backward_type, and our BFLOAT16.

A layer's forward_type is the type of its tops' values, its backward_type that of their gradients;
default_forward_type and default_backward_type of the net stand for those of all layers, and
--precision for nets that do not say. Weights, their gradients and their history are float32 always,
and so is all arithmetic.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

from .. import schema
from ..backend.base import Backend
from ..backend.blob import Blob
from ..backend.tensor import FLOAT32
from ..layers import Layer, Storage
from ..schema.proto import LayerParameter, NetParameter

log = logging.getLogger("pycaffe_fire")


def store_top(
    net: NetParameter, layer: Layer, index: int, bottom: Sequence[Blob], top: Blob
) -> None:
    """Store a new top of a layer as the layer's types and the net's defaults say."""
    param, backend = layer.param, top.backend
    if any(param.loss_weight):
        return  # its gradient is the loss scale, which 16 bits may not hold
    if layer.storage is Storage.MOVED and bottom:  # without one the layer itself refuses
        top.value.store_as(bottom[0].value.kind)
        top.gradient.store_as(bottom[0].gradient.kind)
    elif layer.storage is Storage.ROUNDED and index not in layer.index_tops:
        top.value.store_as(_kind(net, param, backend, "forward_type"))
        top.gradient.store_as(_kind(net, param, backend, "backward_type"))


def _kind(net: NetParameter, param: LayerParameter, backend: Backend, field: str) -> str:
    given = param.HasField(field)
    if not given and not net.HasField(f"default_{field}"):
        return backend.precision
    number = getattr(param, field) if given else getattr(net, f"default_{field}")
    kind = {schema.FLOAT16: "float16", schema.BFLOAT16: "bfloat16"}.get(number, FLOAT32)
    if kind in backend.kinds:
        return kind
    _say_float32(schema.Type.Name(number), backend.name)
    return FLOAT32


@cache
def _say_float32(asked: str, backend: str) -> None:
    log.info("%s is for GPUs: %s stores all blobs as float32", asked, backend)
