"""Caffe models to and from other formats, every number checked.

    from pycaffe_fire import convert
    convert.convert("deploy.prototxt", "weights.caffemodel", "model.onnx")

What is large (onnx, onnxruntime) is loaded when a conversion needs it.
"""

from __future__ import annotations

from .files import Settings, check, convert
from .model import Model, read_model, write_model

__all__ = ["Model", "Settings", "check", "convert", "read_model", "write_model"]
