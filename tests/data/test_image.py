"""Decoding: the short way and the long way agree, odd files, EXIF, and errors with the name."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire.data import image as image
from pycaffe_fire.data.arrow import shared_pixels
from pycaffe_fire.data.image import (
    FAST_JPEG,
    decode_image,
    encode_image,
    read_image,
    read_resized,
)
from pycaffe_fire.data.resize import resize
from pycaffe_fire.errors import DataError
from tests.random_numbers import RNG

shares_pixels = pytest.mark.skipif(
    shared_pixels(Image.new("RGB", (1, 1))) is None,
    reason="this Pillow does not share its pixels; from 11.2 on it does",
)


def photo(height: int = 24, width: int = 40) -> Any:
    patches = RNG.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(patches).resize((width, height), Image.Resampling.BICUBIC)


def encode(image: Any, kind: str, **options: Any) -> Any:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
def test_jpeg_both_ways(monkeypatch: pytest.MonkeyPatch, options: Any) -> None:
    data = encode(photo(), "JPEG", quality=90, **options)
    expected = np.asarray(Image.open(io.BytesIO(data)))[:, :, ::-1].transpose(2, 0, 1)
    decoded = image._decode_jpeg(data, reuse=False)
    assert decoded is not None and np.array_equal(decoded, expected)
    assert np.array_equal(decode_image(data, "p", reuse=True), expected)
    assert np.array_equal(decode_image(data, "p"), expected)
    monkeypatch.setattr(image, "_decode_jpeg", lambda data, reuse: None)
    assert np.array_equal(decode_image(data, "p"), expected)
    monkeypatch.undo()
    monkeypatch.setattr(image, "shared_pixels", lambda image: None)
    assert np.array_equal(decode_image(memoryview(data), "p"), expected)
    monkeypatch.setattr(image, "_canvases", image._Canvases())
    assert np.array_equal(decode_image(data, "p", reuse=True), expected)


@shares_pixels
def test_one_canvas_per_thread_and_size() -> None:
    files = [encode(photo(*size), "JPEG") for size in ((24, 40), (24, 40), (16, 16))]
    expected = [decode_image(data, "p") for data in files]
    for _ in range(2):
        for data, pixels in zip(files, expected, strict=True):
            assert np.array_equal(decode_image(data, "p", reuse=True), pixels)
    first = decode_image(files[0], "p", reuse=True)
    decode_image(files[1], "p", reuse=True)
    assert np.array_equal(first, expected[1])  # as said: valid until the next one
    other: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: other.append(decode_image(files[0], "p", reuse=True)))
    thread.start()
    thread.join()
    assert np.array_equal(other[0], expected[0]) and np.array_equal(first, expected[1])


def test_pixels_outlive_the_image() -> None:
    data = encode(photo(64, 64), "PNG")
    views = [decode_image(data, "p") for _ in range(20)]
    expected = np.asarray(Image.open(io.BytesIO(data)))[:, :, ::-1].transpose(2, 0, 1)
    assert all(np.array_equal(view, expected) for view in views)


def test_jpegs_of_other_kinds() -> None:
    gray = encode(photo().convert("L"), "JPEG")
    assert decode_image(gray, "p").shape == (1, 24, 40)
    assert decode_image(gray, "p", force_color=True).shape == (3, 24, 40)
    cmyk = encode(photo().convert("CMYK"), "JPEG")
    assert decode_image(cmyk, "p").shape == (3, 24, 40)
    color = encode(photo(), "JPEG")
    with Image.open(io.BytesIO(color)) as image:
        image.draft("L", image.size)
        assert np.array_equal(decode_image(color, "p", force_gray=True)[0], np.asarray(image))


def test_truncated_jpeg() -> None:
    data = encode(photo(), "JPEG")
    for cut in (3, 50, len(data) // 2):
        with pytest.raises(DataError, match="db, record 'k': the image cannot be decoded"):
            decode_image(data[:cut], "db, record 'k'")


def test_gray_of_a_png_is_libpngs(tmp_path: Path) -> None:
    photo().save(tmp_path / "a.png")
    red, green, blue = np.asarray(Image.open(tmp_path / "a.png")).astype(int).transpose(2, 0, 1)
    got = read_image(str(tmp_path / "a.png"), color=False)
    assert np.array_equal(got[0], (9797 * red + 19234 * green + 3737 * blue) >> 15)


def test_exif_turns_files_but_not_records(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn right
    data = encode(photo(), "JPEG", exif=exif)
    (tmp_path / "a.jpg").write_bytes(data)
    assert read_image(str(tmp_path / "a.jpg")).shape == (3, 40, 24)
    assert decode_image(data, "p").shape == (3, 24, 40)


def test_encoding() -> None:
    image = decode_image(encode(photo(), "PNG"), "p")
    assert np.array_equal(decode_image(encode_image(image, "png", "p"), "p"), image)
    gray = image[:1]
    assert np.array_equal(decode_image(encode_image(gray, "PNG", "p"), "p"), gray)
    assert encode_image(image, "jpg", "p")[:3] == b"\xff\xd8\xff"
    with pytest.raises(DataError, match='p: images cannot be encoded as "gif3"; known: jpg'):
        encode_image(image, "gif3", "p")


def test_formats_that_opencv_does_not_read_are_refused(tmp_path: Path) -> None:
    """Their parsers are written for good files."""
    for kind in ("DDS", "PCX", "SGI", "TGA"):
        (tmp_path / "a").write_bytes(encode(photo(), kind))
        with pytest.raises(DataError, match="a: the image cannot be decoded: cannot identify"):
            read_image(str(tmp_path / "a"))
    for kind in ("BMP", "GIF", "TIFF", "PPM"):
        (tmp_path / "a").write_bytes(encode(photo(), kind))
        assert read_image(str(tmp_path / "a")).shape == (3, 24, 40)


def test_files_that_are_not_there_or_no_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no.png: the image cannot be read: No such file"):
        read_image(str(tmp_path / "no.png"))
    (tmp_path / "bad.png").write_bytes(b"hello")
    with pytest.raises(DataError, match="bad.png: the image cannot be decoded: cannot identify"):
        read_image(str(tmp_path / "bad.png"))


# Files that are made smaller.


def shrunk(height: int, width: int) -> tuple[int, int]:
    """By the shorter side, so that it matters whether an image stands or lies."""
    scale = 20 / min(height, width)
    return round(height * scale), round(width * scale)


def turned_exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


FILES = {
    "colour": lambda: encode(photo(160, 200), "JPEG", quality=95),
    "turned": lambda: encode(photo(160, 200), "JPEG", quality=95, exif=turned_exif()),
    "grey": lambda: encode(photo(160, 200).convert("L"), "JPEG", quality=95),
    "PNG": lambda: encode(photo(160, 200), "PNG"),
    "deep PNG": lambda: encode(Image.fromarray(np.full((90, 60), 40_000, np.uint16)), "PNG"),
    "not half": lambda: encode(photo(30, 36), "JPEG", quality=95),
}


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_a_resized_file_is_the_whole_one_resized(tmp_path: Path, name: str, color: bool) -> None:
    path = tmp_path / "image"
    path.write_bytes(FILES[name]())
    whole = read_image(str(path), color)
    right = resize(whole, *shrunk(*whole.shape[1:]))
    assert np.array_equal(read_resized(str(path), color, shrunk), right)


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_fast_jpegs_have_the_size_and_nearly_the_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, color: bool
) -> None:
    path = tmp_path / "image"
    path.write_bytes(FILES[name]())
    right = read_resized(str(path), color, shrunk)
    monkeypatch.setenv(FAST_JPEG, "1")
    sizes: list[tuple[int, int]] = []
    decode = image._view
    monkeypatch.setattr(image, "_view", lambda im: sizes.append(im.size) or decode(im))
    fast = read_resized(str(path), color, shrunk)
    assert fast.shape == right.shape
    assert np.abs(fast.astype(int) - right).mean() < 6
    reduced = name in ("colour", "turned", "grey")
    assert (max(sizes[-1]) < 60) == (reduced or name == "not half"), "decoded at another size"
    assert np.array_equal(fast, right) != reduced
