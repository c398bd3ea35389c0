"""Caffe's message classes and enums by name; proto.pyi, beside this file, has their types."""

from .messages import CLASSES

DESCRIPTOR = CLASSES["NetParameter"].DESCRIPTOR.file

globals().update(CLASSES)
__all__ = [*CLASSES]  # noqa: PLE0604
