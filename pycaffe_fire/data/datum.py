"""Caffe's Datum records: a small wire reader that copies nothing, and their writers.

Parsing by hand instead of through protobuf leaves the pixels where the database has them; every
image ends as a (channels, height, width) view in Caffe's BGR order, ready for the transformer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..schema.wire import DamagedError, varint
from .image import decode_image

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT_TAG = 6 << 3 | _FIXED32
_INT_FIELDS = (1, 2, 3, 5)  # channels, height, width, label
_ENCODED = 7


class Datum(NamedTuple):
    """One record, its payload still in the database's memory."""

    channels: int
    height: int
    width: int
    label: int
    data: memoryview
    float_data: NDArray[np.float32] | None
    encoded: bool


def parse_datum(record: bytes | memoryview, where: str) -> Datum:
    """Read a serialised Datum; `where` names database and key in errors."""
    view = memoryview(record)
    ints = [0] * 6
    encoded = False
    data = view[:0]
    floats: list[NDArray[np.float32]] = []
    at, end = 0, len(view)
    try:
        while at < end:
            tag, at = varint(view, at, end)
            field, wire = tag >> 3, tag & 7
            if field == 0:
                raise ValueError(f"there is no field 0, at byte {at}")
            if wire == _VARINT:
                value, at = varint(view, at, end)
                if field in _INT_FIELDS:
                    ints[field] = _int32(value)
                elif field == _ENCODED:
                    encoded = value != 0
            elif wire == _BYTES:
                size, at = varint(view, at, end)
                if at + size > end:
                    raise ValueError(f"field {field} runs {at + size - end} bytes past the end")
                if field == 4:
                    data = view[at : at + size]
                elif field == 6:
                    floats.append(np.frombuffer(view[at : at + size], "<f4").copy())  # aligned
                at += size
            elif tag == _FLOAT_TAG:
                run, at = _float_run(view, at - 1)
                floats.append(run)
            elif wire in (_FIXED32, _FIXED64):
                at += 4 if wire == _FIXED32 else 8
                if at > end:
                    raise ValueError(f"field {field} runs past the end")
            else:
                raise ValueError(f"unknown wire type {wire} at byte {at}")
    except (ValueError, DamagedError) as error:
        raise DataError(f"{where}: is not a Datum record: {error}") from None
    float_data = np.concatenate(floats) if len(floats) > 1 else (floats[0] if floats else None)
    return Datum(ints[1], ints[2], ints[3], ints[5], data, float_data, encoded)


def _int32(value: int) -> int:
    """What protobuf makes of a number on the wire: its lower 32 bits, with their sign."""
    value &= 0xFFFFFFFF
    return value - ((value & 0x80000000) << 1)


def _float_run(view: memoryview, at: int) -> tuple[NDArray[np.float32], int]:
    """The run of unpacked floats (tag, 4 bytes, tag, ...) that starts at `at`."""
    pairs = np.frombuffer(
        view[at:], np.dtype([("tag", "u1"), ("value", "<f4")]), (len(view) - at) // 5
    )
    other = np.flatnonzero(pairs["tag"] != _FLOAT_TAG)
    count = int(other[0]) if len(other) else len(pairs)
    if count == 0:
        raise ValueError("float_data runs past the end")
    return np.ascontiguousarray(pairs["value"][:count]), at + 5 * count


def encode_datum(array: NDArray[Any], label: int | None, encoded: bool | None = None) -> bytes:
    """A Datum of a (channels, height, width) array: uint8 as data, anything else as float_data.

    Fields that are None are left out: Caffe's own tools differ in which ones they write.
    """
    if array.ndim != 3:
        raise DataError(f"a Datum holds channels x height x width, not shape {array.shape}")
    parts = [_int_field(number, size) for number, size in enumerate(array.shape, 1)]
    if array.dtype == np.uint8:
        parts.append(_number(4 << 3 | _BYTES) + _number(array.size) + array.tobytes())
    if label is not None:
        parts.append(_int_field(5, label))
    if array.dtype != np.uint8:
        pairs = np.empty(array.size, np.dtype([("tag", "u1"), ("value", "<f4")]))
        pairs["tag"], pairs["value"] = _FLOAT_TAG, array.ravel()
        parts.append(pairs.tobytes())
    if encoded is not None:
        parts.append(_int_field(7, int(encoded)))
    return b"".join(parts)


def image_datum(image: bytes, label: int | None) -> bytes:
    """A Datum of an encoded image, as Caffe writes it: without a shape."""
    head = _number(4 << 3 | _BYTES) + _number(len(image))
    labelled = b"" if label is None else _int_field(5, label)
    return b"".join((head, image, labelled, _int_field(7, 1)))


def _int_field(field: int, value: int) -> bytes:
    return _number(field << 3) + _number(value & 0xFFFFFFFFFFFFFFFF)


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def datum_image(
    datum: Datum,
    where: str,
    force_color: bool = False,
    force_gray: bool = False,
    reuse: bool = False,
) -> NDArray[Any]:
    """The image as a (channels, height, width) view of uint8 or float32.

    With `reuse` it may hold only until the same thread asks for its next one.
    """
    if datum.encoded:
        return decode_image(datum.data, where, force_color, force_gray, reuse)
    shape = (datum.channels, datum.height, datum.width)
    size = shape[0] * shape[1] * shape[2]
    if min(shape) <= 0:
        raise DataError(f"{where}: the Datum has no image (shape {shape})")
    values: NDArray[Any] = np.frombuffer(datum.data, np.uint8)
    if datum.float_data is not None and not len(values):  # as Caffe: bytes win over floats
        values = datum.float_data
    if len(values) != size:
        raise DataError(
            f"{where}: the Datum says {shape} = {size:,} values but holds {len(values):,}"
        )
    return values.reshape(shape)
