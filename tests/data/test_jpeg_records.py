"""Encoded records in batches: bit-equal to Pillow and plain arithmetic, whatever they are; and
broken ones are refused as ever, though only the rows that a crop needs are decoded."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire import schema
from pycaffe_fire.backend import random
from pycaffe_fire.backend.cpu import library
from pycaffe_fire.data import image as images
from pycaffe_fire.data.datum import datum_image, encode_datum, image_datum, parse_datum
from pycaffe_fire.data.image import decode_image, decode_rows
from pycaffe_fire.data.loader import Loader
from pycaffe_fire.data.order import SequentialOrder, leaf_schedule
from pycaffe_fire.data.pixel_limit import PIXELS_VARIABLE
from pycaffe_fire.data.record_batch import RecordBatch
from pycaffe_fire.data.source import DatabaseSource
from pycaffe_fire.data.transformer import Transformer
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.errors import DataError

from .test_image import shares_pixels

RNG = np.random.default_rng(6)
KEY = random.key(4, "data")
needs_library = pytest.mark.skipif(
    not library.available(), reason="the CPU kernels are not compiled"
)
SIDES = 83, 101  # rows and columns, neither a multiple of a block
CROP = 66
JPEGS: dict[str, dict[str, Any]] = {
    "usual": {},
    "no subsampling": {"subsampling": 0},
    "half as wide": {"subsampling": 1},
    "progressive": {"progressive": True},
    "restarted": {"restart_marker_blocks": 3},
    "optimised": {"optimize": True, "quality": 30},
    "with EXIF and a comment": {"exif": b"Exif\0\0" + bytes(300), "comment": b"\xff\xc0 a comment"},
}  # fmt: skip


def photo(height: int = SIDES[0], width: int = SIDES[1]) -> Image.Image:
    patches = Image.fromarray(RNG.integers(0, 256, (9, 9, 3), dtype=np.uint8))
    smooth = np.asarray(patches.resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    grain = RNG.integers(-9, 10, smooth.shape)
    return Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8))


def encode(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def by_pillow(data: bytes) -> Any:
    """(channels, rows, columns), blue first."""
    with Image.open(io.BytesIO(data)) as image:
        pixels = np.asarray(image if image.mode == "L" else image.convert("RGB"))
    return np.atleast_3d(pixels)[:, :, ::-1].transpose(2, 0, 1)


def files() -> list[bytes]:
    """JPEGs of all kinds, with other files of the same size among them."""
    found = [encode(photo(), **options) for options in JPEGS.values()]
    found += [found[0] + b"\0\0", encode(photo().convert("CMYK")), encode(photo(), "PNG")]
    return [*found, *found[:3]]


def write(path: Path, records: list[bytes]) -> Path:
    with DatabaseWriter(path) as writer:
        for i, record in enumerate(records):
            writer.put(b"key%03d" % i, record)
    return path


def open_source(path: Path, train: bool = True, **fields: Any) -> DatabaseSource:
    transformer = Transformer(schema.TransformationParameter(**fields), train, KEY)
    return DatabaseSource(path, "LMDB", transformer, SequentialOrder())


def expected(pixels: Any, sample: int, train: bool, mean: Any, scale: float) -> Any:
    coin, down, right = (int(word) for word in random.bits(KEY, 0, sample, 3))
    spare_down, spare_right = SIDES[0] - CROP, SIDES[1] - CROP
    y, x = spare_down // 2, spare_right // 2
    if train:
        y, x = down * (spare_down + 1) >> 32, right * (spare_right + 1) >> 32
    full = (pixels.astype(np.float32) - mean) * np.float32(scale)
    cut = full[:, y : y + CROP, x : x + CROP]
    return cut[:, :, ::-1] if coin & 1 else cut


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("mean", ["none", "values", "file"])
def test_batches_are_pillows_pixels(tmp_path: Path, train: bool, mean: str) -> None:
    fields: dict[str, Any] = {"crop_size": CROP, "mirror": True, "scale": 0.017}
    subtract = np.zeros((3, *SIDES), np.float32)
    if mean == "values":
        fields["mean_value"] = [104, 117, 123]
        subtract += np.array([104, 117, 123], np.float32)[:, None, None]
    elif mean == "file":
        subtract = RNG.uniform(50, 200, subtract.shape).astype(np.float32)
        blob = schema.BlobProto(num=1, channels=3, height=SIDES[0], width=SIDES[1])
        blob.data.extend(subtract.ravel().tolist())
        (tmp_path / "mean").write_bytes(blob.SerializeToString())
        fields["mean_file"] = str(tmp_path / "mean")
    pixels = [by_pillow(data) for data in files_given(tmp_path)]
    count = 3 * len(pixels)
    source = open_source(tmp_path / "db", train, **fields)
    batch, label = np.empty((count, 3, CROP, CROP), np.float32), np.empty(count, np.float32)
    source.fill(range(40, 40 + count), batch, label)
    for i, sample in enumerate(range(40, 40 + count)):
        record = sample % len(pixels)
        wanted = expected(pixels[record], sample, train, subtract, 0.017)
        assert np.array_equal(batch[i], wanted), (record, sample)
        assert label[i] == record


def files_given(folder: Path) -> list[bytes]:
    found = files()
    records = [image_datum(data, i) for i, data in enumerate(found)]
    raw = by_pillow(encode(photo(), "PNG"))
    records.append(encode_datum(raw, len(records)))
    records.append(encode_datum(raw.astype(np.float32), len(records)))
    write(folder / "db", records)
    png = encode(Image.fromarray(raw[::-1].transpose(1, 2, 0)), "PNG")
    return [*found, png, png]


def test_bytes_for_a_device_are_the_same(tmp_path: Path) -> None:
    found = files()
    write(tmp_path / "db", [image_datum(data, i) for i, data in enumerate(found)])
    pixels = [by_pillow(data) for data in found]
    source = open_source(tmp_path / "db", crop_size=CROP, mirror=True)
    bytes_, places = np.empty((20, 3, CROP, CROP), np.uint8), np.empty((20, 3), np.int32)
    source.cut(range(20), bytes_, places, np.empty(20, np.float32))
    for i, (top, left, _) in enumerate(places.tolist()):
        wanted = pixels[i % len(pixels)][:, top : top + CROP, left : left + CROP]
        assert np.array_equal(bytes_[i], wanted)


@pytest.mark.parametrize("forced", [{}, {"force_gray": True}, {"force_color": True}])
def test_grey_files_and_forced_channels(tmp_path: Path, forced: dict[str, bool]) -> None:
    colours = [photo(), photo().convert("L")]
    if not forced:
        colours = colours[1:]  # else the shapes differ
    found = [encode(each) for each in colours]
    write(tmp_path / "db", [image_datum(data, 0) for data in found])
    source = open_source(tmp_path / "db", **forced)
    batch = np.empty((len(found), *source.shape), np.float32)
    source.fill(range(len(found)), batch)
    for got, data in zip(batch, found, strict=True):
        assert np.array_equal(got, decode_image(data, "p", **forced))


def test_sizes_that_differ(tmp_path: Path) -> None:
    """Each is cropped where its own size says, and one that is too small is refused."""
    sizes = [(70, 90), (66, 66), (131, 67), (70, 90)]
    found = [encode(photo(*size)) for size in sizes]
    write(tmp_path / "db", [image_datum(data, 0) for data in found])
    source = open_source(tmp_path / "db", crop_size=66)
    batch = np.empty((12, 3, 66, 66), np.float32)
    source.fill(range(12), batch)
    for i in range(12):
        pixels = by_pillow(found[i % 4])
        top, left, _ = source.transformer.place(pixels.shape, i)
        assert np.array_equal(batch[i], pixels[:, top : top + 66, left : left + 66])
    found.append(encode(photo(65, 90)))
    write(tmp_path / "small", [image_datum(data, 0) for data in found])
    with pytest.raises(DataError, match="record 'key004': crop_size 66 is larger than the image"):
        open_source(tmp_path / "small", crop_size=66).fill(range(12), batch)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_for_any_threads(tmp_path: Path, threads: int) -> None:
    write(tmp_path / "db", [image_datum(data, i) for i, data in enumerate(files())])
    source = open_source(tmp_path / "db", crop_size=CROP, mirror=True)
    whole, label = np.empty((48, 3, CROP, CROP), np.float32), np.empty(48, np.float32)
    source.fill(range(48), whole, label)
    with Loader(source, leaf_schedule(6, 1, [0]), 6, threads=threads) as loader:
        for first in range(0, 48, 6):
            batch = loader.next()
            assert np.array_equal(batch.data, whole[first : first + 6])
            assert np.array_equal(batch.label, label[first : first + 6])


# Rows that no crop needs.


def first_rows(data: bytes, rows: int) -> Any:
    """What a batch makes of the file; None if it leaves it to the general reader."""
    found = RecordBatch([image_datum(data, 3)]).image(0, rows)
    return None if found is None else found[:, :rows].copy()


@shares_pixels
@needs_library
@pytest.mark.parametrize("options", JPEGS.values(), ids=list(JPEGS))
def test_first_rows(options: dict[str, Any]) -> None:
    data = encode(photo(), **options)
    pixels = by_pillow(data)
    for rows in (*range(1, 36), *range(60, SIDES[0] + 1)):
        assert np.array_equal(first_rows(data, rows), pixels[:, :rows]), rows


@shares_pixels
def test_rows_below_are_left_alone() -> None:
    data = encode(photo(64, 40))
    pixels: Any = decode_rows(data, 40, 64, 64)
    pixels[...] = 7
    assert np.array_equal(decode_rows(data, 40, 64, 10)[:, :10], by_pillow(data)[:, :10])  # type: ignore[index]
    assert (pixels[:, 10:] == 7).all()


def verdict(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DataError as error:
        return str(error)


def damaged(data: bytes) -> bytes:
    changed, at = bytearray(data), RNG.integers(len(data))
    kind = RNG.integers(4)
    if kind == 0:
        changed[at] = (0, 255, int(RNG.integers(256)))[RNG.integers(3)]
    elif kind == 1:  # a marker, anywhere
        changed[at : at + 2] = bytes([255, RNG.integers(1, 256)])
    elif kind == 2:
        del changed[at : at + RNG.integers(1, 40)]
    else:
        del changed[at:]
    return bytes(changed)


@shares_pixels
@needs_library
@pytest.mark.parametrize("options", JPEGS.values(), ids=list(JPEGS))
def test_damaged_files_have_the_same_fate(options: dict[str, Any]) -> None:
    """Whatever Pillow refuses as a whole is refused, wherever the damage is; and what it takes has
    the same pixels."""
    good = encode(photo(48, 40), **options)
    taken = refused = 0
    for _ in range(250):
        data, rows = damaged(good), int(RNG.integers(1, 49))
        found = first_rows(data, rows)
        general = verdict(lambda data=data: decode_image(data, "it"))  # type: ignore[misc]
        if isinstance(general, str):
            refused += 1
            assert found is None, general
        elif found is not None:
            taken += 1
            assert np.array_equal(found, general[:, :rows])
    assert taken > 20 and refused > 50


def test_a_file_cut_off_below_the_crop_is_refused(tmp_path: Path) -> None:
    data = encode(photo(64, 64))
    for cut in (1, 100, len(data) // 3):
        path = write(tmp_path / f"{cut}", [image_datum(data, 0), image_datum(data[:-cut], 1)])
        source = open_source(path, train=False, crop_size=8)
        with pytest.raises(DataError, match="key001': the image cannot be decoded: .* truncated"):
            source.fill(range(2), np.empty((2, 3, 8, 8), np.float32))


def test_a_limit_of_pixels_holds_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "db", [image_datum(encode(photo(64, 64)), 0)])
    source = open_source(tmp_path / "db")
    monkeypatch.setenv(PIXELS_VARIABLE, "4095")
    with pytest.raises(DataError, match="has 64 x 64 pixels, more than 4,095"):
        source.fill(range(1), np.empty((1, 3, 64, 64), np.float32))


# Headers in which one frame can be mistaken for another.


def two_faced() -> bytes:
    """A JPEG of 64 x 64 whose first marker is padded by one byte: a reader that takes the padding
    for a marker, and what follows for its size, finds a frame of 8 x 8 in a comment."""
    whole, small = encode(photo(64, 64)), encode(photo(8, 8))
    frame = small[small.index(b"\xff\xc0") :][:19]
    size = 0xFFF0
    found_at = 4 + (0xFE << 8 | size >> 8)
    text = (bytes(found_at - 7) + frame).ljust(size - 2, b"\0")
    return whole[:2] + b"\xff\xff\xfe" + size.to_bytes(2, "big") + text + whole[2:]


@needs_library
def test_no_frame_is_believed_after_a_marker_without_a_size() -> None:
    """The decoder would write 64 pixels into rows that have room for 8."""
    whole = encode(photo(64, 64))
    padded = [whole[:2] + start + whole[2:] for start in (b"\xff\x01", b"\xff\xd0", b"\xff")]
    for data in (*padded, two_faced()):
        assert images._jpeg_frame(data) is None and first_rows(data, 8) is None
    data = two_faced()
    assert np.array_equal(decode_image(data, "it", reuse=True), by_pillow(data))


@shares_pixels
@needs_library
def test_the_native_reader_agrees_with_the_general_one() -> None:
    """On damaged records, too: what it takes, the other takes for the same."""
    raw = RNG.integers(0, 256, (2, 3, 30), dtype=np.uint8)
    taken = 0
    for whole in (encode_datum(raw, 300), image_datum(encode(photo(16, 16)), 300)):
        broken = [whole[:cut] for cut in range(0, len(whole), 1 + len(whole) // 200)]
        for _ in range(1000):
            changed = bytearray(whole)
            changed[RNG.choice([*range(10), -1, -2, -3])] = RNG.integers(256)
            broken.append(bytes(changed))
        for record in [whole, *broken]:
            batch = RecordBatch([record])
            image = batch.image(0, int(batch.heights[0]))
            if image is not None:
                taken += 1
                datum = parse_datum(record, "it")
                assert datum.label == batch.labels[0]
                assert np.array_equal(datum_image(datum, "it"), image)
    assert 200 < taken < 2000
