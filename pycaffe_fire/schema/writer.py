"""Writes messages as prototxts in the style of Caffe's own tools."""

from __future__ import annotations

import math
import os
import struct
from typing import Any

from google.protobuf.message import Message

from ..errors import PrototxtError
from .files import replacing
from .messages import ENUMS, Field, fields_of

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def to_text(message: Message) -> str:
    """The message as a prototxt: fields by number, two blanks of indent, the shortest numbers."""
    lines: list[str] = []
    _add(message, "", lines)
    return "".join(f"{line}\n" for line in lines)


def write_text(message: Message, path: str | os.PathLike[str]) -> None:
    """Writes `to_text` to a file, completely or not at all."""
    with replacing(path, PrototxtError) as temporary:
        temporary.write_text(to_text(message), encoding="utf-8")


def _add(message: Message, indent: str, lines: list[str]) -> None:
    fields = fields_of(message)
    for descriptor, value in message.ListFields():
        field = fields[descriptor.name]
        for item in value if field.repeated else (value,):
            if field.kind == "message":
                lines.append(f"{indent}{field.name} {{")
                _add(item, indent + "  ", lines)
                lines.append(f"{indent}}}")
            else:
                lines.append(f"{indent}{field.name}: {_scalar(field, item)}")


def _scalar(field: Field, value: Any) -> str:
    if field.kind in ("string", "bytes"):
        return _quoted(value)
    if field.kind == "bool":
        return "true" if value else "false"
    if field.kind == "enum":
        names = {number: name for name, number in ENUMS[field.type_name].items()}
        return names[value]
    if field.kind in ("float", "double"):
        return _number(value, "f" if field.kind == "float" else "d")
    return str(value)


def _number(value: float, code: str) -> str:
    """The fewest digits, of those C++ tries, that give the same bits back."""
    if not math.isfinite(value):
        return str(value)
    for digits in (6, 8) if code == "f" else (15,):
        text = f"{value:.{digits}g}"
        if struct.pack(code, float(text)) == struct.pack(code, value):
            return text
    return f"{value:.{9 if code == 'f' else 17}g}"


def _quoted(value: str | bytes) -> str:
    text = value if isinstance(value, str) else value.decode("latin-1")
    top = 0x10FFFF if isinstance(value, str) else 0x7E
    escaped = "".join(
        _ESCAPES.get(c, c if 32 <= ord(c) <= top and c != "\x7f" else f"\\{ord(c):03o}")
        for c in text
    )
    return f'"{escaped}"'
