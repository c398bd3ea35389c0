"""The Datum reader against protobuf, images in Caffe's layout, and the texts of errors."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire import schema
from pycaffe_fire.data.datum import datum_image, encode_datum, parse_datum
from pycaffe_fire.data.image import decode_image
from pycaffe_fire.errors import DataError
from tests.random_numbers import RNG


@pytest.mark.parametrize("label", [0, 7, 300, 2**31 - 1, -5])
def test_bytes_agree_with_protobuf(label: int) -> None:
    image = RNG.integers(0, 256, (3, 5, 7), dtype=np.uint8)
    message = schema.Datum(
        channels=3, height=5, width=7, label=label, data=image.tobytes(), encoded=False
    )
    datum = parse_datum(message.SerializeToString(), "db")
    assert (datum.channels, datum.height, datum.width, datum.label) == (3, 5, 7, label)
    assert np.array_equal(datum_image(datum, "db"), image)
    back = schema.Datum.FromString(encode_datum(image, label))
    assert back.data == image.tobytes() and back.label == label
    assert (back.channels, back.height, back.width) == (3, 5, 7)


def test_floats_agree_with_protobuf() -> None:
    image = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    message = schema.Datum(channels=2, height=3, width=4, float_data=image.ravel().tolist())
    unpacked = message.SerializeToString()
    packed = schema.Datum(channels=2, height=3, width=4).SerializeToString()
    packed += bytes([6 << 3 | 2, image.nbytes]) + image.tobytes()
    for record in (unpacked, packed, encode_datum(image, 1)):
        got = datum_image(parse_datum(record, "db"), "db")
        assert got.dtype == np.float32 and np.array_equal(got, image)
    assert (
        list(schema.Datum.FromString(encode_datum(image, 1)).float_data) == image.ravel().tolist()
    )


def test_unknown_fields_are_skipped() -> None:
    record = encode_datum(np.zeros((1, 1, 1), np.uint8), 3)
    extra = (
        bytes([15 << 3 | 1])
        + b"12345678"
        + bytes([14 << 3 | 5])
        + b"1234"
        + bytes([13 << 3 | 2, 1, 9])
    )
    assert parse_datum(extra + record, "db").label == 3


def test_every_truncation_is_noticed() -> None:
    whole = encode_datum(RNG.integers(0, 256, (1, 20, 20), dtype=np.uint8), 200)
    assert len(datum_image(parse_datum(whole, "k"), "k")) == 1
    for cut in range(len(whole) - 3):  # without the label it is whole again
        with pytest.raises(DataError, match="k: "):
            datum_image(parse_datum(whole[:cut], "k"), "k")


@pytest.mark.parametrize("record", [b"\xff" * 20, b"\x0b\x01", b"\x0d\x01", b"\x35\x01\x02"])
def test_garbage_is_refused(record: Any) -> None:
    with pytest.raises(DataError, match="db, record 'a': is not a Datum"):
        parse_datum(record, "db, record 'a'")


def encode(pixels: Any, kind: str, mode: Any = None) -> Any:
    out = io.BytesIO()
    Image.fromarray(pixels, mode).save(out, kind)
    return out.getvalue()


def test_images_are_bgr() -> None:
    rgb = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
    data = encode(rgb, "PNG")
    assert np.array_equal(decode_image(data, "p"), rgb[:, :, ::-1].transpose(2, 0, 1))
    gray = decode_image(data, "p", force_gray=True)
    expected = rgb @ np.array([0.299, 0.587, 0.114])
    assert gray.shape == (1, 6, 5) and (expected - gray[0] >= 0).all()  # cut off, as libpng
    assert (expected - gray[0]).max() < 1.01
    rgba = RNG.integers(0, 256, (4, 5, 4), dtype=np.uint8)
    got = decode_image(encode(rgba, "PNG"), "p")
    assert np.array_equal(got, rgba[:, :, (2, 1, 0, 3)].transpose(2, 0, 1))
    assert decode_image(encode(rgba, "PNG"), "p", force_color=True).shape == (3, 4, 5)


def test_gray_images() -> None:
    gray = RNG.integers(0, 256, (6, 5), dtype=np.uint8)
    data = encode(gray, "PNG")
    assert np.array_equal(decode_image(data, "p")[0], gray)
    color = decode_image(data, "p", force_color=True)
    assert color.shape == (3, 6, 5) and np.array_equal(color[1], gray)
    assert decode_image(encode(gray, "JPEG"), "p").shape == (1, 6, 5)


def test_bad_images() -> None:
    data = encode(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8), "JPEG")
    for bad in (data[: len(data) // 2], b"", b"nonsense"):
        with pytest.raises(DataError, match="record 'k': the image cannot be decoded"):
            decode_image(bad, "record 'k'")
    deep = encode(np.zeros((4, 4), np.uint16), "PNG")
    with pytest.raises(DataError, match="not 8-bit"):
        decode_image(deep, "k")


def test_sixteen_bits_keep_the_upper_eight_where_the_kind_is_forced() -> None:
    """As cv::imread does; a record whose kind is not forced stays deep, which Caffe refuses."""
    pixels = RNG.integers(0, 1 << 16, (4, 5), dtype=np.uint16)
    data = encode(pixels, "PNG")
    assert np.array_equal(decode_image(data, "k", force_gray=True), [pixels >> 8])
    assert np.array_equal(decode_image(data, "k", force_color=True), [pixels >> 8] * 3)


def test_sizes_that_lie() -> None:
    message = schema.Datum(channels=3, height=5, width=7, data=b"short")
    with pytest.raises(DataError, match=r"says \(3, 5, 7\) = 105 values but holds 5"):
        datum_image(parse_datum(message.SerializeToString(), "k"), "k")
    with pytest.raises(DataError, match="no image"):
        datum_image(parse_datum(b"", "k"), "k")
