"""The compiled reader of records: one call without the GIL finds the images in a batch of Datums.

Records are given by address and nothing is copied. What is not of the plain kinds below is left to
the general reader (datum.py and image.py), which finds the words for what is wrong with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend.compiled import inlined, kernel, part
from ..backend.instructions import at
from .kernels import bytes_at

# Columns of the table that says what one record per row is; the start is counted from its first
# byte. A record of another kind has only its kind there.
KIND, START, SIZE, LABEL, CHANNELS, HEIGHT, WIDTH = range(7)
COLUMNS = 7
# Pixels: bytes of exactly the shape. A JPEG is in colour; a sequential one is a single scan up to
# its end marker. libjpeg refuses such a file for its header or not at all, so that its rows may be
# decoded from the top as far as they are needed.
OTHER, PIXELS, JPEG, SEQUENTIAL_JPEG = range(4)

# The tags of a plain Datum's fields: number and wire type in one byte.
_SIZE_TAGS = (1 << 3, 2 << 3, 3 << 3)  # channels, height, width: varints
_DATA_TAG, _LABEL_TAG, _ENCODED_TAG = 4 << 3 | 2, 5 << 3, 7 << 3  # data: bytes with their length
# Second bytes of JPEG's markers; the first is 0xFF.
_START, _END, _SCAN, _PROGRESSIVE, _RESTART = 0xD8, 0xD9, 0xDA, 0xC2, 0xD0
# Of segments before a scan that have a size: tables, restart intervals and comments; what
# applications wrote.
TABLES, APPLICATIONS = (0xC4, 0xDB, 0xDD, 0xFE), tuple(range(0xE0, 0xF0))


@inlined
def _varint(source: Any, at: int, end: int) -> Any:
    """(value, position after it); the position is past `end` when the number does not fit."""
    value = np.int64(0)
    for shift in range(0, 64, 7):
        if at >= end:
            break
        byte = np.int64(source[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    return value, end + 1


@kernel("i8[:,::1], i8[:,::1]")
def read_records(records: Any, found: Any) -> None:
    """What is in a batch of records, given by (address, length)."""
    for i in range(len(records)):
        _read_datum(bytes_at(records[i, 0]), records[i, 1], at(found, i * COLUMNS))


@part
def _read_datum(source: Any, end: int, row: Any) -> None:
    """A Datum whose fields are all of their own wire types."""
    row[KIND] = OTHER
    channels, height, width = np.int64(0), np.int64(0), np.int64(0)
    at, start, size, label, encoded = (
        np.int64(0), np.int64(0), np.int64(-1), np.int64(0), np.int64(0),
    )  # fmt: skip
    while at < end:
        tag = source[at]
        value, at = _varint(source, at + 1, end)
        if at > end:
            return
        if tag == _DATA_TAG:
            if value < 0 or value > end - at:
                return
            start, size = at, value
            at += value
        elif tag == _SIZE_TAGS[0]:
            channels = value
        elif tag == _SIZE_TAGS[1]:
            height = value
        elif tag == _SIZE_TAGS[2]:
            width = value
        elif tag == _LABEL_TAG:
            label = value
        elif tag == _ENCODED_TAG:
            encoded = value
        else:
            return
    row[START], row[SIZE], row[LABEL] = start, size, np.int32(label)
    row[CHANNELS], row[HEIGHT], row[WIDTH] = channels, height, width
    if encoded:
        _read_jpeg(source, start, start + size, row)
    elif _is_shape(channels, height, width, size):
        row[KIND] = PIXELS


@inlined
def _is_shape(channels: int, height: int, width: int, size: int) -> bool:
    """Is that an image, and of so many bytes? Each number may be anything."""
    if not (0 < channels <= size and 0 < height <= size and 0 < width <= size):
        return False
    return channels * height <= size and channels * height * width == size


@part
def _read_jpeg(source: Any, start: int, end: int, row: Any) -> None:
    """A JPEG up to its first scan."""
    if end - start < 2 or source[start] != 0xFF or source[start + 1] != _START:
        return
    at, frame = start + 2, np.int64(0)
    while at + 4 <= end and source[at] == 0xFF:
        marker = np.int64(source[at + 1])
        size = np.int64(source[at + 2]) << 8 | np.int64(source[at + 3])
        if at + 2 + size > end:
            return
        if 0xC0 <= marker <= _PROGRESSIVE:  # the frames that libjpeg decodes
            if size < 17 or source[at + 4] != 8 or source[at + 9] != 3:
                return
            frame = marker
            row[CHANNELS] = 3
            row[HEIGHT] = np.int64(source[at + 5]) << 8 | np.int64(source[at + 6])
            row[WIDTH] = np.int64(source[at + 7]) << 8 | np.int64(source[at + 8])
        elif marker == _SCAN:
            if frame and size >= 12 and row[HEIGHT] and row[WIDTH]:
                row[KIND] = JPEG
                if frame != _PROGRESSIVE and source[at + 4] == 3:
                    _follow_scan(source, at + 2 + size, end, row)
            return
        elif not (marker in TABLES or APPLICATIONS[0] <= marker <= APPLICATIONS[-1]):
            return
        at += 2 + size


@part
def _follow_scan(source: Any, start: int, end: int, row: Any) -> None:
    """Does the scan go on to an end marker that closes the file? Markers within it restart it."""
    last = end - 2
    if last < start or source[last] != 0xFF or source[last + 1] != _END:
        return
    other = False
    for i in range(start, last):  # all of it, which compiles to vector instructions
        follows = source[i + 1]
        other |= (source[i] == 0xFF) & (follows != 0) & ((follows & 0xF8) != _RESTART)
    if not other:
        row[KIND] = SEQUENTIAL_JPEG
