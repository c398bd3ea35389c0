"""pycaffe's io: what its functions give, and what they say of bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire import schema
from pycaffe_fire.data.image import encode_image
from pycaffe_fire.errors import DataError
from pycaffe_fire.pycaffe import io

# Results of scikit-image 0.26 (anti_aliasing=False, mode="constant") and scipy.ndimage.zoom; a
# case's last digit is its order.
RESIZED = np.load(Path(__file__).parents[1] / "golden" / "pycaffe_tools" / "resize.npz")
CASES = sorted({name.rpartition("_")[0] for name in RESIZED.files})


@pytest.mark.parametrize("case", CASES)
def test_resizing_agrees_with_scikit_image_and_scipy(case: str) -> None:
    image, expected = RESIZED[f"{case}_in"], RESIZED[f"{case}_out"]
    ours = io.resize_image(image, expected.shape[:2], interp_order=int(case[-1]))
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, expected, rtol=0, atol=3e-7)


def test_a_image_of_one_value_keeps_it() -> None:
    assert (io.resize_image(np.full((3, 3, 3), 0.25), (7, 5)) == np.float32(0.25)).all()


@pytest.mark.parametrize("image, order", [(np.zeros((3, 3)), 1), (np.zeros((3, 3, 1)), 3)])
def test_resizing_refuses(image: Any, order: int) -> None:
    with pytest.raises(DataError, match="resize|interp_order"):
        io.resize_image(image, (2, 2), order)


def test_load_image(tmp_path: Path) -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 10
    Image.fromarray(pixels).save(tmp_path / "colour.png")
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "grey.png")
    Image.fromarray(np.dstack([pixels, pixels[:, :, 0]])).save(tmp_path / "alpha.png")
    Image.fromarray(np.full((2, 2), 65535, np.uint16)).save(tmp_path / "deep.png")
    unit = (pixels / 255.0).astype(np.float32)
    for name in ("colour.png", "alpha.png"):
        loaded = io.load_image(tmp_path / name)
        assert loaded.dtype == np.float32
        np.testing.assert_array_equal(loaded, unit)
    grey = io.load_image(str(tmp_path / "colour.png"), color=False)
    assert grey.shape == (2, 3, 1)
    np.testing.assert_allclose(grey[..., 0], unit @ [0.2125, 0.7154, 0.0721], rtol=1e-6)
    tiled = io.load_image(tmp_path / "grey.png")
    np.testing.assert_array_equal(tiled, np.repeat(unit[:, :, :1], 3, axis=2))
    assert (io.load_image(tmp_path / "deep.png", color=False) == 1).all()


def test_images_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing.png: .*No such file"):
        io.load_image(tmp_path / "missing.png")
    (tmp_path / "bad.png").write_text("no image")
    with pytest.raises(DataError, match="bad.png"):
        io.load_image(tmp_path / "bad.png")


def test_oversample_gives_corners_centre_and_mirrors() -> None:
    image = np.arange(5 * 6 * 2, dtype=np.float32).reshape(5, 6, 2)
    crops = io.oversample([image, image + 100], (3, 4))
    assert crops.shape == (20, 3, 4, 2)
    for i, (y, x) in enumerate([(0, 0), (0, 2), (2, 0), (2, 2), (1, 1)]):
        np.testing.assert_array_equal(crops[i], image[y : y + 3, x : x + 4])
        np.testing.assert_array_equal(crops[5 + i], crops[i][:, ::-1])
        np.testing.assert_array_equal(crops[10 + i], crops[i] + 100)
    with pytest.raises(ValueError, match="do not fit"):
        io.oversample([image], (6, 6))


def transformer() -> io.Transformer:
    made = io.Transformer({"data": (1, 3, 4, 5)})
    made.set_transpose("data", (2, 0, 1))
    made.set_channel_swap("data", (2, 1, 0))
    made.set_raw_scale("data", 255.0)
    made.set_mean("data", np.array([1.0, 2.0, 3.0]))
    made.set_input_scale("data", 0.5)
    return made


def test_preprocess_in_caffes_order() -> None:
    image = np.random.default_rng(1).random((4, 5, 3), np.float32)
    before = image.copy()
    made = transformer().preprocess("data", image)
    means = np.array([1, 2, 3]).reshape(3, 1, 1)
    expected = (image.transpose(2, 0, 1)[::-1] * 255 - means) * 0.5
    np.testing.assert_allclose(made, expected, rtol=1e-5)
    np.testing.assert_array_equal(image, before)
    np.testing.assert_allclose(transformer().deprocess("data", made[None]), image, atol=1e-5)


def test_preprocess_resizes() -> None:
    image = np.random.default_rng(2).random((9, 7, 3), np.float32)
    plain = io.Transformer({"data": [1, 3, 4, 5]})
    np.testing.assert_array_equal(plain.preprocess("data", image), io.resize_image(image, (4, 5)))


def test_means_of_every_kind() -> None:
    made = io.Transformer({"data": (1, 3, 4, 5), "grey": (1, 1, 4, 5)})
    image = np.random.default_rng(3).random((3, 4, 5))
    made.set_mean("data", image)
    np.testing.assert_array_equal(made.mean["data"], image)
    large = np.random.default_rng(3).random((3, 8, 10))
    made.set_mean("data", large)
    resized = io.resize_image(large.transpose(1, 2, 0), (4, 5)).transpose(2, 0, 1)
    np.testing.assert_array_equal(made.mean["data"], resized)
    made.set_mean("grey", image[0])
    assert made.mean["grey"].shape == (1, 4, 5)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("set_mean", np.zeros(2), "2 channels"),
        ("set_mean", np.zeros((2, 4, 5)), "does not fit"),
        ("set_mean", np.zeros((1, 3, 4, 5)), "does not fit"),
        ("set_transpose", (1, 0), "3 axes"),
        ("set_channel_swap", (1, 0), "3 channels"),
    ],
)
def test_settings_that_do_not_fit(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(transformer(), name)("data", value)


def test_unknown_inputs_are_named() -> None:
    made: Any = transformer()
    for call in (made.preprocess, made.deprocess, made.set_mean, made.set_raw_scale):
        with pytest.raises(DataError, match='"label" is not one of the net inputs: data'):
            call("label", np.zeros(3))


def test_blobprotos() -> None:
    array = np.random.default_rng(4).random((2, 3, 4), np.float32)
    blob = io.array_to_blobproto(array, -array)
    np.testing.assert_array_equal(io.blobproto_to_array(blob), array)
    np.testing.assert_array_equal(io.blobproto_to_array(blob, return_diff=True), -array)
    legacy = schema.BlobProto(num=1, channels=2, height=1, width=2, data=[1, 2, 3, 4])
    assert io.blobproto_to_array(legacy).shape == (1, 2, 1, 2)
    scalar = io.blobproto_to_array(io.array_to_blobproto(np.float32(3)))
    assert scalar.shape == () and scalar == 3
    with pytest.raises(ValueError, match="diff has 0"):
        io.blobproto_to_array(legacy, return_diff=True)


def test_blobprotovectors() -> None:
    arrays = [np.arange(6.0).reshape(2, 3), np.zeros((0, 4)), np.ones(5)]
    text = io.arraylist_to_blobprotovector_str(arrays)
    assert isinstance(text, bytes)
    for array, again in zip(arrays, io.blobprotovector_str_to_arraylist(text), strict=True):
        np.testing.assert_array_equal(again, array)


def test_datums() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    datum = io.array_to_datum(pixels, 7)
    assert (datum.label, datum.data) == (7, pixels.tobytes())
    back = io.datum_to_array(datum)
    assert back.dtype == np.uint8
    np.testing.assert_array_equal(back, pixels)
    floats = io.array_to_datum(pixels * 0.5)
    assert not floats.HasField("label") and not floats.data
    np.testing.assert_array_equal(io.datum_to_array(floats), pixels * 0.5)
    with pytest.raises(ValueError, match="channels x height x width"):
        io.array_to_datum(pixels[0])
    datum.width = 5
    with pytest.raises(ValueError, match="holds 24"):
        io.datum_to_array(datum)


def test_encoded_datums_are_decoded() -> None:
    pixels = np.random.default_rng(5).integers(0, 255, (3, 4, 5)).astype(np.uint8)
    image = encode_image(pixels, "png", "test")
    datum = schema.Datum(data=image, encoded=True)
    np.testing.assert_array_equal(io.datum_to_array(datum), pixels)
