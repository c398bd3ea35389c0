"""The compiled inner loop of the transformer: crop, mean, scale and mirror, without the GIL.

Images are given by address, so bytes go from the database's memory map, or from where they were
decoded, straight to the float batch.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..backend.compiled import Intrinsic, inlined, kernel, part
from ..backend.instructions import at, empty, finish_streams, free, goes_past, stream_copy

# Columns of the table that describes one image per row; strides count elements.
ADDRESS, CHANNEL_STRIDE, ROW_STRIDE, COLUMN_STRIDE, KIND, TOP, LEFT, MIRROR = range(8)
COLUMNS = 8
BYTES, FLOATS, PACKED = range(3)  # packed: red, green, blue and a fourth byte per pixel


def _cast(element: str) -> Any:
    def cast(typing_context: Any, address: Any) -> Any:
        types = importlib.import_module("numba.core.types")
        signature = types.CPointer(getattr(types, element))(types.int64)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return signature, generate

    return Intrinsic(cast)


bytes_at = _cast("uint8")
_floats_at = _cast("float32")
_words_at = _cast("uint32")


@inlined
def _means(mean: Any, channel: int, left: int, y: int, width: int) -> Any:
    """The line of means under a line of the crop; one line may serve for the whole channel."""
    _, lines, columns = mean.shape
    same = lines == 1 and columns == width
    return at(mean, channel * columns if same else (channel * lines + y) * columns + left)


@part
def _transform(source: Any, table: Any, i: int, mean: Any, scale: Any, out: Any) -> None:
    _, channels, height, width = out.shape
    row, lines = at(table, i * COLUMNS), at(out, i * channels * height * width)
    step, mirror = row[COLUMN_STRIDE], row[MIRROR]
    last, past = width - 1, goes_past(out)
    room = empty(width, np.float32)
    for c in range(channels):
        for h in range(height):
            y = h + row[TOP]
            seen = at(source, c * row[CHANNEL_STRIDE] + y * row[ROW_STRIDE] + row[LEFT] * step)
            target, means = (
                at(lines, (c * height + h) * width),
                _means(mean, c, row[LEFT], y, width),
            )
            line = room if past else target
            # Contiguous loops apart from the general one: they compile to vector instructions. All
            # write forwards: memory takes that twice as fast as lines written from their ends.
            if step == 1 and mirror:
                for w in range(width):
                    line[w] = (np.float32(seen[last - w]) - means[last - w]) * scale
            elif step == 1:
                for w in range(width):
                    line[w] = (np.float32(seen[w]) - means[w]) * scale
            else:
                first, turn = (last, -1) if mirror else (0, 1)
                for w in range(width):
                    x = first + w * turn
                    line[w] = (np.float32(seen[x * step]) - means[x]) * scale
            if past:
                stream_copy(line, target, width)
    free(room)
    finish_streams()


@part
def _transform_packed(source: Any, table: Any, i: int, mean: Any, scale: Any, out: Any) -> None:
    """Colour images as the decoder leaves them, a word per pixel."""
    _, channels, height, width = out.shape
    row, lines = at(table, i * COLUMNS), at(out, i * channels * height * width)
    last, mirror, past = width - 1, row[MIRROR], goes_past(out)
    room = empty(width, np.float32)
    for h in range(height):  # rows outside, so that a line of pixels is fetched once
        y = h + row[TOP]
        seen = at(source, y * row[ROW_STRIDE] + row[LEFT])
        for c in range(3):
            shift = np.uint32(16 - 8 * c)
            target, means = (
                at(lines, (c * height + h) * width),
                _means(mean, c, row[LEFT], y, width),
            )
            line = room if past else target
            if mirror:
                for w in range(width):
                    value = np.float32(np.int32((seen[last - w] >> shift) & np.uint32(255)))
                    line[w] = (value - means[last - w]) * scale
            else:
                for w in range(width):
                    value = np.float32(np.int32((seen[w] >> shift) & np.uint32(255)))
                    line[w] = (value - means[w]) * scale
            if past:
                stream_copy(line, target, width)
    free(room)
    finish_streams()


@kernel("i8[:,::1], i8, i8, f4[:,:,::1], f4, f4[:,:,:,::1]")
def transform_batch(table: Any, start: int, stop: int, mean: Any, scale: Any, out: Any) -> None:
    """out[i] = (crop of image i - mean) * scale, mirrored where the table says so."""
    for i in range(start, stop):
        row = at(table, i * COLUMNS)
        if row[KIND] == FLOATS:
            _transform(_floats_at(row[ADDRESS]), table, i, mean, scale, out)
        elif row[KIND] == PACKED:
            _transform_packed(_words_at(row[ADDRESS]), table, i, mean, scale, out)
        else:
            _transform(bytes_at(row[ADDRESS]), table, i, mean, scale, out)
