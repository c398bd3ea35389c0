"""Caffe to ONNX: a function per layer type, a graph that they add nodes to, and the file."""

from __future__ import annotations

import importlib
import pkgutil

from .registry import CONVERTERS

__all__ = ["CONVERTERS"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
