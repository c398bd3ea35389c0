"""`engine: CUDNN` in a net: convolutions have it on a GPU, other layers have our kernels."""

from __future__ import annotations

import logging
from functools import cache

from ..backend.base import Backend
from ..layers import layer_class
from ..schema.proto import LayerParameter, NetParameter

log = logging.getLogger("pycaffe_fire")

CUDNN = "CUDNN"


def tell_engines(net: NetParameter, backend: Backend) -> None:
    """Say once which types of layers ask for cuDNN without effect."""
    if CUDNN in backend.engines:
        types = {layer.type for layer in net.layer if _asks_for_cudnn(layer)}
        asking = {kind for kind in types if not layer_class(kind).has_cudnn}
        if asking:
            _say(", ".join(sorted(asking)))


def _asks_for_cudnn(layer: LayerParameter) -> bool:
    params = [value for field, value in layer.ListFields() if field.name.endswith("_param")]
    return any(
        getattr(param, "engine", None) == getattr(param, CUDNN)
        for param in params
        if hasattr(param, CUDNN)
    )


@cache
def _say(types: str) -> None:
    log.info("engine: CUDNN is there for convolutions; these run on our kernels: %s", types)
