"""The types of Caffe's messages for a type checker, written from the descriptor.

Messages are built at run time from a descriptor, so without this stub they would be Any.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

HEAD = '''\
# Written by tools/compile_proto.py from proto/caffe.proto; not for editing.
"""Caffe's message types and enums. Enums are ints, and message fields are changed in place."""

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer as Messages
from google.protobuf.internal.containers import RepeatedScalarFieldContainer as Scalars
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor
'''

SCALARS = {
    FieldDescriptorProto.TYPE_STRING: "str",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_DOUBLE: "float",
}


def stub_text(file: FileDescriptorProto) -> str:
    """The text of the stub: one class per message, enums, and all names in __all__."""
    names = [m.name for m in file.message_type]
    for enum in file.enum_type:
        names += [enum.name, *(value.name for value in enum.value)]
    body = list(_body(file.enum_type, file.message_type, file.package, ""))
    listed = ["__all__ = [", *(f'    "{name}",' for name in sorted(names)), "]"]
    return "\n".join([HEAD, *body, *listed]) + "\n"


def _body(
    enums: Iterable[EnumDescriptorProto], messages: Iterable[DescriptorProto], package: str,
    indent: str,
) -> Iterator[str]:  # fmt: skip
    for enum in enums:
        yield f"{indent}{enum.name}: EnumTypeWrapper"
        for value in enum.value:
            yield f"{indent}{value.name}: int"
    for message in messages:
        yield f"{indent}class {message.name}(Message):"
        yield from _message(message, package, indent + "    ")
        yield ""


def _message(message: DescriptorProto, package: str, indent: str) -> Iterator[str]:
    yield from _body(message.enum_type, message.nested_type, package, indent)
    fields = [f for f in message.field if not keyword.iskeyword(f.name)]  # those: by getattr alone
    for field in fields:
        kind = _kind(field, package)
        if field.type == field.TYPE_MESSAGE or field.label == field.LABEL_REPEATED:
            yield f"{indent}@property"
            yield f"{indent}def {field.name}(self) -> {_held(field, kind)}: ..."
        else:
            yield f"{indent}{field.name}: {kind}"
    yield f"{indent}def __init__("
    yield f"{indent}    self,"
    if fields:
        yield f"{indent}    *,"
    for field in fields:
        yield f"{indent}    {field.name}: {_taken(field, _kind(field, package))} | None = ...,"
    yield f"{indent}) -> None: ..."


def _kind(field: FieldDescriptorProto, package: str) -> str:
    """The type of one value of the field."""
    if field.type == field.TYPE_MESSAGE:
        return field.type_name.removeprefix(f".{package}.")
    return SCALARS.get(field.type, "int")


def _held(field: FieldDescriptorProto, kind: str) -> str:
    """What reading the field gives."""
    if field.label != field.LABEL_REPEATED:
        return kind
    return f"Messages[{kind}]" if field.type == field.TYPE_MESSAGE else f"Scalars[{kind}]"


def _taken(field: FieldDescriptorProto, kind: str) -> str:
    """What the constructor takes: enums by name, too, and messages as dictionaries."""
    if field.type == field.TYPE_ENUM:
        kind = "int | str"
    elif field.type == field.TYPE_MESSAGE:
        kind = f"{kind} | Mapping[str, Any]"
    return f"Iterable[{kind}]" if field.label == field.LABEL_REPEATED else kind
