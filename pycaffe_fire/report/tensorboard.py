"""TensorBoard event files: scalars in TFRecords, written and read without TensorFlow.

A record is its length, a masked CRC-32C of that, an Event message, and a masked CRC-32C of it.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from functools import cache

import numpy as np

from ..errors import FireError
from ..schema.wire import FIXED32, FIXED64, LENGTH, VARINT, DamagedError, number_bytes, walk
from ..solver.events import Event, Started, Tested, Trained
from .log_file import LogFile, Speed

POLYNOMIAL = 0x82F63B78  # of CRC-32C, bits reversed
MASK = 0xA282EAD8
VERSION = "brain.Event:2"
# Fields of Event, Summary and Summary.Value.
WALL_TIME, STEP, FILE_VERSION, SUMMARY = 1, 2, 3, 5
VALUE = 1
TAG, SIMPLE_VALUE, TENSOR = 1, 2, 8
FLOAT_VAL, CONTENT = 5, 4  # of a TensorProto

Scalar = tuple[float, int, str, float]  # seconds since 1970, step, tag, value


class TensorBoardLog:
    """An observer that writes loss, rate, outputs and speed to an event file in a folder."""

    def __init__(self, folder: str) -> None:
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._file = LogFile(os.path.join(folder, name))
        self._speed = Speed()

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._speed.batch = event.batch
                self._file.open()
                version = _bytes(FILE_VERSION, VERSION.encode())
                self._write(_double(WALL_TIME, time.time()) + version)
            case Trained():
                self._trained(event)
            case Tested():
                tag = "test" if event.net == 0 else f"test{event.net}"
                values = {f"{tag}/{o.name}": o.value for o in event.outputs}
                self._scalars(event.iteration, values)

    def _trained(self, event: Trained) -> None:
        self._speed.add(event)
        if not event.display:
            return
        values = {f"train/{o.name}": o.value for o in event.outputs}
        values |= {"train/loss": float(event.loss), "rate": event.rate}
        speed = self._speed.take()
        if speed is not None:
            values["images_per_second"] = speed
        self._scalars(event.iteration, values)

    def _scalars(self, step: int, values: dict[str, float]) -> None:
        summary = b"".join(
            _bytes(VALUE, _bytes(TAG, tag.encode()) + _float(SIMPLE_VALUE, value))
            for tag, value in values.items()
        )
        head = _double(WALL_TIME, time.time()) + _number(STEP, step)
        self._write(head + _bytes(SUMMARY, summary))

    def _write(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(length + _masked(length) + event + _masked(event))

    def close(self) -> None:
        self._file.close()


def read_scalars(path: str) -> Iterator[Scalar]:
    """All scalars of an event file, ours or TensorFlow's; a half record at the end is left out."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise FireError(f"{path}: cannot be read: {error.strerror}") from error
    at = 0
    while at + 12 <= len(data):
        length = data[at : at + 8]
        (size,) = struct.unpack("<Q", length)
        if _masked(length) != data[at + 8 : at + 12]:
            raise FireError(f"{path}: is damaged at byte {at}, or not a TensorBoard event file")
        start, at = at + 12, at + 12 + size + 4
        if at > len(data):
            return
        try:
            yield from _event(data, start, start + size)
        except (DamagedError, struct.error) as error:
            raise FireError(f"{path}: is damaged at byte {start}: {error}") from error


def _event(data: bytes, start: int, end: int) -> Iterator[Scalar]:
    when, step, summaries = 0.0, 0, []
    for field, wire, a, b in walk(data, start, end):
        if (field, wire) == (WALL_TIME, FIXED64):
            (when,) = struct.unpack("<d", data[a:b])
        elif (field, wire) == (STEP, VARINT):
            step = a
        elif (field, wire) == (SUMMARY, LENGTH):
            summaries.append((a, b))
    for place in summaries:
        for field, wire, a, b in walk(data, *place):
            found = _value(data, a, b) if (field, wire) == (VALUE, LENGTH) else None
            if found is not None:
                yield when, step, *found


def _value(data: bytes, start: int, end: int) -> tuple[str, float] | None:
    tag, value = "", None
    for field, wire, a, b in walk(data, start, end):
        if (field, wire) == (TAG, LENGTH):
            tag = data[a:b].decode(errors="replace")
        elif (field, wire) == (SIMPLE_VALUE, FIXED32):
            (value,) = struct.unpack("<f", data[a:b])
        elif (field, wire) == (TENSOR, LENGTH):
            value = _tensor(data, a, b)
    return (tag, value) if value is not None else None


def _tensor(data: bytes, start: int, end: int) -> float | None:
    """One float as newer writers put it: in float_val, packed or not, or as raw content."""
    for field, wire, a, b in walk(data, start, end):
        if field in (FLOAT_VAL, CONTENT) and wire in (FIXED32, LENGTH) and b - a == 4:
            return float(struct.unpack("<f", data[a:b])[0])
    return None


# The wire format of the few fields we write.


def _number(field: int, value: int) -> bytes:
    return number_bytes(field << 3 | VARINT) + number_bytes(value)


def _double(field: int, value: float) -> bytes:
    return number_bytes(field << 3 | FIXED64) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    with np.errstate(over="ignore"):
        return number_bytes(field << 3 | FIXED32) + np.array(value, "<f4").tobytes()


def _bytes(field: int, value: bytes) -> bytes:
    return number_bytes(field << 3 | LENGTH) + number_bytes(len(value)) + value


@cache
def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC; records of scalars are short, so a table will do."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF)
