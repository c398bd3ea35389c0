"""Values that no field of a net or solver can mean: found once, at the edge."""

from __future__ import annotations

import math
from typing import Any

LARGEST_INT = 2**31 - 1  # Caffe computes sizes as ints
# Numbers of protobuf's types.
_MESSAGE, _STRING, _FLOATS, _UNSIGNED = 11, 9, (1, 2), (13,)
_SKIPPED = ("blobs",)  # weights are numbers of any kind


def impossible_number(message: Any) -> str:
    """Which field holds NaN, infinity, a size beyond an int or a string that cannot be a name or
    path, as a sentence; empty if none."""
    for field, value in message.ListFields():
        if field.name in _SKIPPED:
            continue
        values = [value] if isinstance(value, (int, float, str, bytes)) else value
        if field.type == _MESSAGE:
            values = value if _is_list(value) else [value]
            found = next(filter(None, map(impossible_number, values)), "")
            if found:
                return found if "." in found.split(" ")[0] else f"{field.name}.{found}"
        elif field.type in _FLOATS and not all(map(math.isfinite, values)):
            return f"{field.name} must be a finite number, got {_text(values)}"
        elif field.type in _UNSIGNED and max(values, default=0) > LARGEST_INT:
            return f"{field.name} must be at most {LARGEST_INT:,}, got {_text(values)}"
        elif field.type == _STRING and any("\0" in str(text) for text in values):
            return f"{field.name} holds a zero character"
    return ""


def _is_list(value: Any) -> bool:
    return not hasattr(value, "ListFields")


def _text(values: Any) -> str:
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
