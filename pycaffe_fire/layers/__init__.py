"""One file per layer type; importing this package registers all of them."""

from __future__ import annotations

import importlib
import pkgutil

from .base import LAYERS, Layer, Loss, Neuron, layer_class, register_layer
from .context import Context
from .data_layer import DataLayer
from .description import Storage

__all__ = [
    "LAYERS",
    "Context",
    "DataLayer",
    "Layer",
    "Loss",
    "Neuron",
    "Storage",
    "is_built_in",
    "layer_class",
    "layer_type_list",
    "register_layer",
]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def is_built_in(kind: type[Layer]) -> bool:
    """Is it a class of this package, and not one that a user has registered?"""
    return kind.__module__.startswith(f"{__name__}.")


def layer_type_list() -> list[str]:
    """All layer types that a prototxt may name."""
    return list(LAYERS)
