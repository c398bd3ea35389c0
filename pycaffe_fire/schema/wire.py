"""Protobuf's wire format by hand, so that hundreds of megabytes of floats are never parsed.

Messages are walked in place over a mapped file; only what is wanted is looked at, and packed
numbers become arrays with one copy.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from mmap import mmap
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Data: TypeAlias = bytes | mmap
Floats: TypeAlias = npt.NDArray[np.float32]

_MAX_AXES = 32  # as in Caffe
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
# NVIDIA Caffe's element types that hold real numbers.
_FLOAT16 = 2
_RAW_TYPES = {0: "<f8", 1: "<f4", _FLOAT16: "<f2"}


class DamagedError(Exception):
    """Bytes that are not the message they should be; readers turn it into a user's error."""


def varint(data: Data | memoryview, at: int, end: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DamagedError(f"no valid number at byte {at}")


def walk(data: Data, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message: number, wire type, and the two ends of its contents; for a varint
    its value and the place after it."""
    at = start
    while at < end:
        tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = varint(data, at, end)
            yield number, wire, value, at
            continue
        if wire == LENGTH:
            size, at = varint(data, at, end)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            raise DamagedError(f"no valid field at byte {at}")
        if number == 0 or size > end - at:
            raise DamagedError(
                f"field {number} at byte {at} wants {size} bytes, but only {end - at} are left"
            )
        yield number, wire, at, at + size
        at += size


def pick(
    data: Data, start: int, end: int, wanted: Mapping[int, tuple[int, ...]]
) -> dict[int, list[tuple[int, int]]]:
    """The contents of the wanted fields, in order; each must have one of its wire types."""
    found: dict[int, list[tuple[int, int]]] = {number: [] for number in wanted}
    for number, wire, a, b in walk(data, start, end):
        if number in wanted:
            if wire not in wanted[number]:
                raise DamagedError(f"field {number} before byte {b} is of another kind")
            found[number].append((a, b))
    return found


def text(data: Data, found: list[tuple[int, int]]) -> str:
    """The string field with these contents; the last one given counts."""
    return data[found[-1][0] : found[-1][1]].decode("utf-8", "replace") if found else ""


def number(found: list[tuple[int, int]]) -> int:
    """The value of an int32 field; the last one given counts."""
    value = found[-1][0] & 0xFFFFFFFF if found else 0
    return value - (1 << 32) if value >> 31 else value


def real(data: Data, found: list[tuple[int, int]], default: float) -> float:
    """The value of a float field; the last one given counts."""
    return float(struct.unpack_from("<f", data, found[-1][0])[0]) if found else default


_BLOB = {
    **dict.fromkeys((1, 2, 3, 4, 10), (VARINT,)),  # num, channels, height, width; raw_data_type
    5: (LENGTH, FIXED32),  # data
    7: (LENGTH,),  # shape
    8: (LENGTH, FIXED64),  # double_data
    12: (LENGTH,),  # raw_data
}


def blob(data: Data, start: int, end: int) -> Floats:
    """The `data` of a BlobProto as an array of its own with the blob's shape."""
    found = pick(data, start, end, _BLOB)
    # As in Caffe: legacy extents win over a shape, doubles over floats.
    shape: list[int] | None = None
    if any(found[n] for n in (1, 2, 3, 4)):
        shape = [number(found[n]) for n in (1, 2, 3, 4)]
    elif found[7]:
        shape = [dim for a, b in found[7] for dim in _dims(data, a, b)]
    if found[12]:
        kind = number(found[10]) if found[10] else 1
        if kind not in _RAW_TYPES:
            raise DamagedError(f"raw elements of type {kind} are not supported")
        return _array(data, found[12][-1:], _RAW_TYPES[kind], shape)
    if found[8]:
        return _array(data, found[8], "<f8", shape)
    return _array(data, found[5], "<f4", shape)


def _dims(data: Data, start: int, end: int) -> list[int]:
    """The extents in a BlobShape, packed or not."""
    dims = []
    for _, wire, a, b in walk(data, start, end):
        if wire == VARINT:
            dims.append(a)
        while wire == LENGTH and a < b:
            value, a = varint(data, a, b)
            dims.append(value)
    return dims


def _array(data: Data, parts: list[tuple[int, int]], kind: str, shape: list[int] | None) -> Floats:
    """The numbers in these parts of the file as one array; all sizes are checked before it."""
    width = np.dtype(kind).itemsize
    if any((b - a) % width for a, b in parts):
        raise DamagedError(f"an array at byte {parts[0][0]} ends within a number")
    size = sum(b - a for a, b in parts)
    if shape is None:
        shape = [size // width]
        if not size:
            raise DamagedError("there is no array in it")
    if len(shape) > _MAX_AXES:
        raise DamagedError(f"a blob of {len(shape)} axes")
    if min(shape, default=0) < 0 or math.prod(shape) * width != size:
        extents = " x ".join(map(str, shape)) or "no axes"
        raise DamagedError(f"a blob of {extents} holds {size // width} numbers")
    # Bytes are copied as bytes: the floats in a file are seldom aligned.
    out = np.empty(size, np.uint8)
    at = 0
    for a, b in parts:
        if a == b:
            continue
        out[at : at + b - a] = np.frombuffer(data, np.uint8, b - a, a)
        at += b - a
    return out.view(kind).reshape(shape).astype(np.float32, copy=False)


def number_bytes(value: int) -> bytes:
    """A varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


class Parts:
    """A message being put together from pieces that are written one after the other."""

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self.size = 0

    def add(self, *pieces: bytes | memoryview) -> None:
        self.pieces += pieces
        self.size += sum(len(piece) for piece in pieces)

    def add_number(self, field: int, value: int) -> None:
        # A negative int32 travels as the 64-bit number with the same low bits.
        self.add(number_bytes(field << 3 | VARINT), number_bytes(value % (1 << 64)))

    def add_float(self, field: int, value: float) -> None:
        self.add(number_bytes(field << 3 | FIXED32), struct.pack("<f", value))

    def add_bytes(self, field: int, value: bytes | memoryview) -> None:
        self.add(number_bytes(field << 3 | LENGTH), number_bytes(len(value)), value)

    def add_message(self, field: int, message: Parts) -> None:
        self.add(number_bytes(field << 3 | LENGTH), number_bytes(message.size))
        self.pieces += message.pieces
        self.size += message.size

    def write(self, file: Any) -> None:
        for piece in self.pieces:
            file.write(piece)


def raw(array: npt.ArrayLike) -> memoryview:
    """An array's numbers as little-endian float32 bytes; no copy if they are that already."""
    return np.ascontiguousarray(array, "<f4").reshape(-1).view(np.uint8).data


def blob_parts(
    array: npt.ArrayLike, diff: npt.ArrayLike | None = None, half: bool = False
) -> Parts:
    """An array, and perhaps its gradient, as a BlobProto; with `half` as NVIDIA Caffe's raw data
    of 16 bits each."""
    shape = np.shape(array)
    parts, dims = Parts(), Parts()
    if half:
        parts.add_number(10, _FLOAT16)
        parts.add_bytes(12, np.ascontiguousarray(array, "<f2").reshape(-1).view(np.uint8).data)
    else:
        parts.add_bytes(5, raw(array))
    if diff is not None:
        parts.add_bytes(6, raw(diff))
    dims.add_bytes(1, b"".join(map(number_bytes, shape)))
    parts.add_message(7, dims)
    return parts
