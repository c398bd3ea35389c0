"""ONNX to Caffe: a function per op, a net that they add layers to."""

from __future__ import annotations

import importlib
import pkgutil

from .target import OPS

__all__ = ["OPS"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
