"""The native reader of records against protobuf's own, with nothing to read after a record.

Records are stored at the very end of a page that no page follows: one byte too far ends the
process, so the fuzzing runs in a child.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend.cpu import library
from pycaffe_fire.data.datum import datum_image, parse_datum
from pycaffe_fire.data.kernels import OTHER, PIXELS, RECORD, SPAN, ReadRecords
from pycaffe_fire.data.order import SequentialOrder
from pycaffe_fire.data.source import DatabaseSource
from pycaffe_fire.data.transformer import Transformer
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.errors import BackendError, DataError

SHAPE = (1, 2, 2)
# channels 1, height 2, width 2, field 4 as a number instead of bytes, label 3: no pixels in it.
NO_PIXELS = b"\x08\x01\x10\x02\x18\x02\x20\x04\x28\x03"
GOOD = b"\x08\x01\x10\x02\x18\x02\x22\x04abcd\x28\x03"

FUZZ = """
import ctypes, io, mmap, random, sys
import numpy as np
from pycaffe_fire import schema
from pycaffe_fire.data.datum import datum_image, parse_datum
from PIL import Image
from pycaffe_fire.data.kernels import JPEG, PIXELS, RECORD, SPAN, ReadRecords
from pycaffe_fire.errors import DataError

libc = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * PAGE)
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert libc.mprotect(ctypes.c_void_p(base + PAGE), PAGE, 0) == 0
shape = (1, 2, 2)
good = schema.Datum(channels=1, height=2, width=2, data=b"abcd", label=3).SerializeToString()
rng = random.Random(int(sys.argv[1]))
TAGS = [8, 16, 24, 32, 34, 35, 37, 40, 42, 50, 53, 56, 58, 0, 1, 2, 128, 162]
out = io.BytesIO()
Image.new("RGB", (8, 8)).save(out, "JPEG", comment=b"text", restart_marker_blocks=1)
found = jpegs = 0

def mutated_jpeg():  # with other bytes, and cut anywhere
    data = bytearray(out.getvalue())
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(data))
        data[at] = rng.choice([0, 1, 2, 3, 8, 16, 255, 0xC0, 0xC2, 0xC4, 0xD0, 0xD9, 0xDA, 0xE0])
    if rng.random() < 0.7:
        del data[rng.randrange(len(data)) :]
    if rng.random() < 0.2:
        data += b"\\xff\\xd9"
    record = schema.Datum(encoded=True, label=3, data=bytes(data)).SerializeToString()
    if rng.random() < 0.5:  # the data last, so that nothing follows them
        record = schema.Datum(encoded=True, label=3).SerializeToString()
        record += schema.Datum(data=bytes(data)).SerializeToString()
    return record if rng.random() < 0.8 else record[: rng.randrange(len(record) + 1)]

def mutated():
    if rng.random() < 0.4:
        return mutated_jpeg()
    if rng.random() < 0.4:  # fields in any order and of any wire type
        parts = [bytes([rng.choice(TAGS), rng.choice([0, 1, 2, 3, 4, 5, 127, 128, 255])])
                 + (b"abcdefgh"[: rng.choice([0, 1, 4, 8])] if rng.random() < 0.4 else b"")
                 for _ in range(rng.randrange(8))]
        return b"".join(parts)
    record = bytearray(good)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(record) + 1)
        what = rng.randrange(4)
        if what == 0 and at < len(record):
            record[at] = rng.choice([*TAGS, rng.randrange(256), 255])
        elif what == 1:
            record[at:at] = bytes([rng.choice(TAGS), rng.randrange(256)])
        elif what == 2:
            del record[at : at + rng.randrange(1, 4)]
        else:
            record = record[: at or 1]
        record = record or bytearray(good)
    return bytes(record)

def expected(record):
    message = schema.Datum()
    try:
        message.ParseFromString(record)
    except Exception:
        return None
    plain = (message.channels, message.height, message.width) == shape and not message.encoded
    return (bytes(message.data), message.label) if plain and len(message.data) == 4 else None

for turn in range(int(sys.argv[2])):
    record = mutated()
    address = base + PAGE - len(record)
    memory[PAGE - len(record) : PAGE] = record
    memory[: PAGE - len(record)] = bytes([turn % 256]) * (PAGE - len(record))
    row, span = np.zeros(1, RECORD), np.array([(address, len(record))], SPAN)
    ReadRecords(threads=1, spans=span.view(np.int64), found=row.view(np.int64), records=1).run()
    kind, start, size, label, found_shape = row[0].tolist()
    taken = kind == PIXELS and tuple(found_shape) == shape
    if kind >= JPEG:
        jpegs += 1
        assert 0 <= start and 4 <= size and start + size <= len(record), (record, row)
    view = memoryview(memory)[PAGE - len(record) : PAGE]
    truth = expected(record)
    if taken:
        found += 1
        assert 0 <= start <= len(record) - 4, (record, start)
        assert truth == (record[start : start + 4], label), record
    try:
        datum = parse_datum(view, "k")
        image = datum_image(datum, "k") if not datum.encoded else None
    except DataError:
        assert not taken, record
        continue
    if truth is not None:  # whatever protobuf takes, the general reader takes alike
        assert image is not None and (image.tobytes(), datum.label) == truth, record
print("held", found, jpegs)
"""


def test_a_number_in_the_place_of_the_pixels_is_no_image(tmp_path: Path) -> None:
    """It was taken for the pixels' length, and what lay behind the record was trained on."""
    with DatabaseWriter(tmp_path / "x") as writer:
        writer.put(b"0", GOOD)
        writer.put(b"1", NO_PIXELS)
    transformer = Transformer(schema.TransformationParameter(), False, 0)
    source = DatabaseSource(tmp_path / "x", "LMDB", transformer, SequentialOrder())
    data, label = np.full((2, *SHAPE), -1, np.float32), np.empty(2, np.float32)
    with pytest.raises(DataError, match="record '1': the Datum says .* but holds 0"):
        source.fill(range(2), data, label)
    skipping = DatabaseSource(tmp_path / "x", "LMDB", transformer, SequentialOrder(), policy="skip")
    skipping.fill(range(2), data, label)
    assert label.tolist() == [3, 3] and bytes(data[1].ravel().astype(np.uint8)) == b"abcd"


def test_numbers_are_cut_to_32_bits_as_protobuf_does() -> None:
    wide = b"\x08\x81\x80\x80\x80\x10" + GOOD[2:]  # channels 2^32 + 1
    assert datum_image(parse_datum(wide, "k"), "k").shape == SHAPE
    negative = b"\x08" + b"\xff" * 9 + b"\x01" + GOOD[2:]
    with pytest.raises(DataError, match=r"no image \(shape \(-1, 2, 2\)\)"):
        datum_image(parse_datum(negative, "k"), "k")


def test_kernels_read_nothing_after_a_record(native_isa: str) -> None:
    command = [sys.executable, "-c", FUZZ, "7", "8000"]
    environment = {**os.environ, library.ISA_VARIABLE: native_isa}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-2000:] or f"status {done.returncode}"
    word, found, jpegs = done.stdout.split()
    assert word == "held" and int(found) > 50 and int(jpegs) > 50  # enough of them were good


def read(records: list[bytes], threads: int = 1) -> Any:
    found, held = np.zeros(len(records), RECORD), [np.frombuffer(r, np.uint8) for r in records]
    spans = np.array([(each.ctypes.data, each.size) for each in held], SPAN)
    ReadRecords(
        threads=threads, spans=spans.view(np.int64), found=found.view(np.int64),
        records=len(records),
    ).run()  # fmt: skip
    return found


def number(value: int) -> bytes:
    """A varint of ten bytes, as protobuf writes negative numbers."""
    low = [value >> 7 * i & 127 | 128 for i in range(9)]
    return bytes([*low, value >> 63 & 1])


def test_what_records_hold(native_isa: str) -> None:
    cases = {
        GOOD: (PIXELS, 8, 4, 3, [1, 2, 2]),
        b"\x28" + number(-1) + GOOD[:-2]: (PIXELS, 19, 4, -1, [1, 2, 2]),
        b"\x08" + number(-1) + GOOD[2:]: (OTHER, 17, 4, 3, [-1, 2, 2]),
        b"\x10" + number(1 << 62) + GOOD[:2] + GOOD[4:]: (OTHER, 17, 4, 3, [1, 1 << 62, 2]),
        GOOD[:-2] + b"\x22" + number(-1): (OTHER, 0, 0, 0, [0, 0, 0]),
        GOOD[:-2] + b"\x22" + number((1 << 63) - 1): (OTHER, 0, 0, 0, [0, 0, 0]),
        GOOD + b"\x28" + b"\xff" * 10: (OTHER, 0, 0, 0, [0, 0, 0]),
        NO_PIXELS: (OTHER, 0, 0, 0, [0, 0, 0]),
        b"\x38\x01": (OTHER, 0, -1, 0, [0, 0, 0]),
    }
    for threads in (1, 3):
        found = read(list(cases), threads)
        assert found.tobytes() == np.array(list(cases.values()), RECORD).tobytes()


@pytest.mark.skipif(not library.available(), reason="the CPU kernels are not compiled")
def test_the_kernel_needs_room() -> None:
    with pytest.raises(BackendError, match="read_records: found has 7 elements, .* needs 14"):
        ReadRecords(
            threads=1, spans=np.zeros(4, np.int64), found=np.zeros(7, np.int64), records=2
        ).run()
