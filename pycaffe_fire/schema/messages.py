"""Caffe's message classes, built from the shipped descriptor in a private descriptor pool.

A private pool keeps us out of the way of any other caffe_pb2 in the process, and a descriptor
instead of generated code works with every protobuf runtime from 4.21 on. schema/proto.py
has the classes by name, and with their types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper
from google.protobuf.message import Message


@dataclass(frozen=True)
class Field:
    """What the prototxt reader and writer need to know of one field."""

    name: str
    kind: str  # "int32", ..., "string", "enum" or "message"
    repeated: bool
    required: bool
    type_name: str  # of a message or enum, with the package: "caffe.BlobShape"


def load_classes(file: descriptor_pb2.FileDescriptorProto) -> dict[str, Any]:
    """Everything a generated module would hold: message classes, enums, top-level enum values."""
    pool: Any = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    names: dict[str, Any] = {}
    for message in file.message_type:
        descriptor = pool.FindMessageTypeByName(f"{file.package}.{message.name}")
        names[message.name] = message_class(pool, descriptor)
    for enum in file.enum_type:
        descriptor = pool.FindEnumTypeByName(f"{file.package}.{enum.name}")
        names[enum.name] = enum_type_wrapper.EnumTypeWrapper(descriptor)
        names.update((value.name, value.number) for value in enum.value)
    return names


def message_class(pool: Any, descriptor: Any) -> Any:
    """The class of a message type; protobuf renamed the call in 4.22."""
    factory: Any = message_factory
    if hasattr(factory, "GetMessageClass"):
        return factory.GetMessageClass(descriptor)
    return factory.MessageFactory(pool).GetPrototype(descriptor)


def walk(
    prefix: str, messages: Iterable[descriptor_pb2.DescriptorProto]
) -> Iterator[tuple[str, descriptor_pb2.DescriptorProto]]:
    """All message types with their full names, nested ones included."""
    for message in messages:
        name = f"{prefix}.{message.name}"
        yield name, message
        yield from walk(name, message.nested_type)


def load_fields(file: descriptor_pb2.FileDescriptorProto) -> dict[str, dict[str, Field]]:
    """The fields of every message type. Read from the file itself, because the attributes of
    runtime descriptors change from one protobuf release to the next."""
    kinds = descriptor_pb2.FieldDescriptorProto.Type
    proto = descriptor_pb2.FieldDescriptorProto
    return {
        name: {
            f.name: Field(
                f.name,
                kinds.Name(f.type).removeprefix("TYPE_").lower(),
                f.label == proto.LABEL_REPEATED,
                f.label == proto.LABEL_REQUIRED,
                f.type_name.removeprefix("."),
            )
            for f in message.field
        }
        for name, message in walk(file.package, file.message_type)
    }


def load_enums(file: descriptor_pb2.FileDescriptorProto) -> dict[str, dict[str, int]]:
    """The values of every enum by its full name."""
    enums = [(file.package, enum) for enum in file.enum_type]
    for name, message in walk(file.package, file.message_type):
        enums += [(name, enum) for enum in message.enum_type]
    return {f"{prefix}.{e.name}": {v.name: v.number for v in e.value} for prefix, e in enums}


_FILE = descriptor_pb2.FileDescriptorProto.FromString(
    Path(__file__).with_name("caffe.desc").read_bytes()
)
CLASSES = load_classes(_FILE)
FIELDS = load_fields(_FILE)
ENUMS = load_enums(_FILE)


def fields_of(message: Message) -> dict[str, Field]:
    """The fields of a message by name."""
    return FIELDS[message.DESCRIPTOR.full_name]
