"""The data kernels: records.c, transform.c and strokes.c of backend/cpu/native.

Records and images are given by address, so nothing is copied before it is transformed.
"""

from __future__ import annotations

import numpy as np

from ..backend.cpu.library import Bytes, Doubles, Floats, Int32s, Ints, Kernel
from ..errors import BackendError

# Where a record is.
SPAN = np.dtype([("address", np.int64), ("size", np.int64)])

# What a record holds: `start` and `size` are the image's bytes, counted from the record's first;
# `shape` is (channels, height, width). A record of kind OTHER has only its kind.
RECORD = np.dtype([
    ("kind", np.int64), ("start", np.int64), ("size", np.int64), ("label", np.int64),
    ("shape", np.int64, 3),
])  # fmt: skip
# Kinds of records. Pixels: bytes of exactly the shape. A JPEG is in color; a sequential one is a
# single scan up to its end marker, whose rows may be decoded from the top as far as needed.
OTHER, PIXELS, JPEG, SEQUENTIAL_JPEG = range(4)

# An image, the place of its crop, and of the result in the batch; strides count elements.
IMAGE = np.dtype([
    ("address", np.int64), ("channel_stride", np.int64), ("row_stride", np.int64),
    ("column_stride", np.int64), ("kind", np.int64), ("top", np.int64), ("left", np.int64),
    ("mirror", np.int64), ("sample", np.int64),
])  # fmt: skip
# Kinds of elements. Packed: red, green, blue and a fourth byte in a word for each pixel.
BYTES, FLOATS, PACKED = range(3)


class ReadRecords(Kernel):
    """Find the images in a batch of Datum records; `spans` and `found` are views as int64."""

    name = "read_records"
    spans: Ints
    found: Ints
    records: int

    def check(self) -> None:
        self.need(
            spans=self.records * SPAN.itemsize // 8, found=self.records * RECORD.itemsize // 8
        )


class Transform(Kernel):
    """Crop, subtract the mean, scale and mirror `count` images; `images` is a view as int64.

    Each image, and the mean unless it is one for each channel (1x1), must hold its crop.
    """

    name = "transform"
    images: Ints
    mean: Floats
    out: Floats
    count: int
    samples: int
    channels: int
    height: int
    width: int
    mean_height: int
    mean_width: int
    scale: float

    def check(self) -> None:
        self.need(
            images=self.count * IMAGE.itemsize // 8,
            mean=self.channels * self.mean_height * self.mean_width,
            out=self.samples * self.channels * self.height * self.width,
        )


class Resize(Kernel):
    """Resize an 8-bit image, given by address and strides in bytes, with 2, 4 or 8 taps."""

    name = "resize"
    image: int
    channel_stride: int
    row_stride: int
    column_stride: int
    columns: Ints
    across: Int32s
    rows: Ints
    down: Int32s
    out: Bytes
    channels: int
    height: int
    width: int
    old_height: int
    old_width: int
    taps: int

    def check(self) -> None:
        across, down = self.width * self.taps, self.height * self.taps
        self.need(
            columns=across, across=across, rows=down, down=down,
            out=self.channels * self.height * self.width,
        )  # fmt: skip
        for name, places, size in (
            ("columns", self.columns, self.old_width),
            ("rows", self.rows, self.old_height),
        ):
            if places.size and not 0 <= places.min() <= places.max() < size:
                raise BackendError(f"kernel resize: {name} are not within 0 and {size - 1}")
        if self.taps not in (2, 4, 8):
            raise BackendError(f"kernel resize: takes 2, 4 or 8 taps, got {self.taps}")


class DrawStrokes(Kernel):
    """Draw `count` images of size x size pixels with a pen that moves along straight pieces."""

    name = "draw_strokes"
    ends: Doubles
    radius: Doubles
    out: Doubles
    count: int
    pieces: int
    size: int

    def check(self) -> None:
        self.need(
            ends=self.count * self.pieces * 4, radius=self.count, out=self.count * self.size**2
        )
