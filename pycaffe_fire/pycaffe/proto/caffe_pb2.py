"""Caffe's messages and enums under the names that protoc would generate.

They are the classes that all of the package uses, from its private descriptor pool, so a
message made here goes wherever one is taken.
"""

from __future__ import annotations

from typing import Any

from ...schema import proto
from ...schema.messages import CLASSES
from ...schema.proto import *  # noqa: F403
from ...schema.proto import DESCRIPTOR

__all__ = [*proto.__all__, "DESCRIPTOR"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """`_NETPARAMETER` and the like: the descriptors of top-level messages and enums."""
    known = {
        f"_{key.upper()}": key for key, value in CLASSES.items() if hasattr(value, "DESCRIPTOR")
    }
    if name in known:
        return CLASSES[known[name]].DESCRIPTOR
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
