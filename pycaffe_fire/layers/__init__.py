"""One file per layer type; importing this package registers all of them.

`layers.Convolution(...)` and the like are NetSpec's: see pycaffe_fire.net_spec.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from .base import LAYERS, Context, Layer, Loss, Neuron, register_layer

__all__ = ["LAYERS", "Context", "Layer", "Loss", "Neuron", "layer_type_list", "register_layer"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def layer_type_list() -> list[str]:
    """All layer types that a prototxt may name."""
    return list(LAYERS)


def __getattr__(name: str) -> Any:
    if not name[:1].isupper():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ..net_spec import layers  # who writes nets as Python expressions is above us

    return getattr(layers, name)
