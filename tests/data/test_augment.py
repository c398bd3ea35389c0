"""The forks' options of transform_param: their definitions, determinism, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend import random
from pycaffe_fire.data import colour
from pycaffe_fire.data.augment import Augmenter, Dice
from pycaffe_fire.data.resize import NEAREST, resize
from pycaffe_fire.data.transformer import Transformer
from pycaffe_fire.errors import DataError
from tests.random_numbers import RNG

KEY = random.key(4, "augment")
IMAGE = np.random.default_rng(3).integers(0, 256, (3, 40, 60), dtype=np.uint8)


def param(text: str) -> Any:
    return schema.parse_text(text, schema.TransformationParameter(), "t")


def augmented(text: str, samples: range = range(30), image: Any = IMAGE) -> Any:
    transformer = Transformer(param(text), True, KEY)
    return [transformer.augment(image, sample, "here") for sample in samples]


def test_rectangular_crop() -> None:
    transformer = Transformer(param("crop_h: 10 crop_w: 20"), False, KEY)
    assert transformer.output_shape((3, 40, 60), "here") == (3, 10, 20)
    out = np.empty((1, 3, 10, 20), np.float32)
    transformer([IMAGE], range(1), out)
    assert np.array_equal(out[0], IMAGE[:, 15:25, 20:40])
    with pytest.raises(DataError, match=r"crop_size 10 x 70 is larger than the image \(40 x 60\)"):
        Transformer(param("crop_h: 10 crop_w: 70"), False, KEY).output_shape((3, 40, 60), "here")


@pytest.mark.parametrize(
    "mode, shape",
    [("WARP", (20, 20)), ("FIT_SMALL_SIZE", (20, 30)), ("FIT_LARGE_SIZE_AND_PAD", (20, 20))],
)
def test_resize_param(mode: str, shape: Any) -> None:
    text = f"resize_param {{ height: 20 width: 20 resize_mode: {mode} pad_value: 7 }}"
    (got,) = augmented(text, range(1))
    assert got.shape == (3, *shape)
    if mode == "WARP":
        assert np.array_equal(got, resize(IMAGE, 20, 20))
    if mode == "FIT_LARGE_SIZE_AND_PAD":  # 20 wide, so 13 high, between 3 and 4 lines of padding
        assert np.array_equal(got[:, 3:16], resize(IMAGE, 13, 20))
        assert (got[:, :3] == 7).all() and (got[:, 16:] == 7).all()


def test_padding_by_neighbours() -> None:
    text = "resize_param { height: 60 width: 60 resize_mode: FIT_LARGE_SIZE_AND_PAD pad_mode: %s }"
    (near,) = augmented(text % "REPEAT_NEAREST", range(1))
    assert (near[:, :10] == IMAGE[:, :1]).all()
    (mirrored,) = augmented(text % "MIRRORED", range(1))
    assert np.array_equal(mirrored[:, :10], IMAGE[:, 1:11][:, ::-1])


def test_random_resize() -> None:
    text = "crop_size: 12 random_resize_param { min_size: 16 max_size: 24 resize_param {} }"
    sizes = [image.shape for image in augmented(text, range(60))]
    assert {height for _, height, _ in sizes} == set(range(16, 25))
    assert all(width == int(np.float32(1.5) * height) for _, height, width in sizes)


def test_random_aspect() -> None:
    text = """crop_size: 12 random_aspect_ratio_param {
        min_area_ratio: 0.1 max_area_ratio: 0.5 aspect_ratio_change: 0.75 resize_param {} }"""
    images = augmented(text, range(40))
    assert all(image.shape == (3, 12, 12) for image in images)
    assert len({image.tobytes() for image in images}) > 30


def test_nvidias_resize_and_stretch() -> None:
    text = "crop_size: 16 img_rand_resize_lower: 20 img_rand_resize_upper: 30 "
    images = augmented(text, range(60))
    assert {min(image.shape[1:]) for image in images} == set(range(20, 31))
    first = images[0]
    assert np.array_equal(
        first, resize(IMAGE, first.shape[1], first.shape[2], NEAREST)
    )  # its default
    stretched = augmented(text + "rand_resize_ratio_lower: 1 rand_resize_ratio_upper: 1.2")
    assert all(1 <= i.shape[2] / i.shape[1] <= 1.25 for i in stretched)
    assert len({i.shape for i in stretched}) > 15
    tall = augmented("crop_size: 16 vertical_stretch_lower: 2 vertical_stretch_upper: 2")
    assert all(image.shape == (3, 40, 60) for image in tall)  # never larger than it was
    tall = augmented(
        "crop_size: 16 allow_upscale: true vertical_stretch_lower: 2 vertical_stretch_upper: 2"
    )
    assert all(image.shape == (3, 80, 60) for image in tall)


def test_expansion_keeps_the_image() -> None:
    for image in augmented("mean_value: 9 expand_param { prob: 1 max_expand_ratio: 3 }"):
        assert image.shape[1] >= 40 and image.shape[2] >= 60
        places = np.flatnonzero((image != 9).any(axis=(0, 2)))
        top = places[0] if len(places) else 0
        left = np.flatnonzero((image != 9).any(axis=(0, 1)))[0]
        assert np.array_equal(image[:, top : top + 40, left : left + 60], IMAGE)


def test_distortion() -> None:
    fields = "brightness_prob: {p} brightness_delta: 30 contrast_prob: {p} contrast_lower: 0.5 "
    fields += "contrast_upper: 1.5 hue_prob: {p} hue_delta: 18 saturation_prob: {p} "
    fields += "saturation_lower: 0.5 saturation_upper: 1.5 random_order_prob: {p}"
    never = augmented("distort_param { " + fields.format(p=0) + " }")
    assert all(np.array_equal(image, IMAGE) for image in never)
    always = augmented("distort_param { " + fields.format(p=1) + " }")
    assert len({image.tobytes() for image in always}) == 30
    gray = augmented("distort_param { " + fields.format(p=1) + " }", image=IMAGE[:1])
    assert all(image.shape == (1, 40, 60) for image in gray)


def test_colours_against_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    pixels = np.ascontiguousarray(IMAGE.transpose(1, 2, 0))
    hsv = cv2.cvtColor(pixels, cv2.COLOR_BGR2HSV)
    got = np.stack(colour.to_hsv(IMAGE))
    assert np.array_equal(got, hsv.transpose(2, 0, 1))
    back = cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR).transpose(2, 0, 1)
    assert np.abs(colour._to_bgr(*got).astype(int) - back).max() <= 1


def test_colours_of_known_pixels() -> None:
    red = np.array([0, 0, 200], np.uint8).reshape(3, 1, 1)
    assert colour.adjust_hue(red, 60.0).ravel().tolist() == [0, 200, 0]  # a third of the circle
    assert colour.adjust_saturation(red, 0.0).ravel().tolist() == [200, 200, 200]
    assert colour.linear(red, 1.0, 100.0).ravel().tolist() == [100, 100, 255]


def test_channels_the_other_way_round() -> None:
    (got,) = augmented("bgr2rgb: true", range(1))
    assert np.array_equal(got, IMAGE[::-1])


def test_choices_belong_to_the_sample() -> None:
    text = "crop_size: 12 random_resize_param { min_size: 16 max_size: 24 resize_param {} }"
    assert all(
        np.array_equal(a, b)
        for a, b in zip(augmented(text, range(5, 9)), augmented(text)[5:9], strict=True)
    )
    dice = Dice(KEY, 0)
    numbers = [dice.below(10) for _ in range(100)]
    assert set(numbers) == set(range(10))


def test_random_seed_of_the_layer() -> None:
    image = RNG.integers(0, 256, (1, 30, 30), dtype=np.uint8)

    def crop(text: str, key: Any) -> Any:
        out = np.empty((1, 1, 4, 4), np.float32)
        Transformer(param("crop_size: 4 " + text), True, key)([image], range(9, 10), out)
        return out.tobytes()

    assert crop("random_seed: 5", 1) == crop("random_seed: 5", 2) != crop("", 2)


@pytest.mark.parametrize(
    "text, message",
    [
        ("crop_size: 3 crop_h: 2 crop_w: 2", "crop_size, or both crop_h and crop_w"),
        ("crop_h: 2", "crop_size, or both crop_h and crop_w"),
        ("noise_param { saltpepper: true }", "saltpepper needs saltpepper_param with a value"),
        (
            "noise_param { saltpepper_param { fraction: 1 value: 1 value: -inf } }",
            "transform_param noise_param saltpepper_param: value must be finite",
        ),
        ("expand_param { max_expand_ratio: inf }", "max_expand_ratio must be finite, got inf"),
        ("scale: nan", "transform_param: scale must be finite, got nan"),
        ("noise_param { jpeg: 101 }", "a quality of at most 100"),
        ("emit_constraint {}", "only AnnotatedData reads"),
        ("flow: true", "flow is not supported"),
        ("pad: 3", "pad is not supported"),
        ("forward_packing: NHWC", "must be NCHW"),
        ("random_resize_param {}", "random_resize_param needs crop_size"),
        ("resize_param { height: 3 }", "resize_param needs height and width"),
        ("resize_param { height: 3 width: 3 height_scale: 3 }", "only AnnotatedData reads"),
        ("crop_size: 3 img_rand_resize_lower: 9", "must be given together"),
        (
            "distort_param { contrast_prob: 1 contrast_lower: 2 }",
            "contrast_lower <= contrast_upper",
        ),
        ("mean_file: 'm' expand_param {}", "expand_param needs mean_value"),
        (
            "crop_size: 3 random_resize_param {} random_aspect_ratio_param {}",
            "only one of random_resize_param and random_aspect_ratio_param",
        ),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    options = param(text)
    crop = (options.crop_size, options.crop_size) if options.crop_size else None
    with pytest.raises(DataError, match=message):
        if "crop_h" in text:
            Transformer(options, True, KEY)
        else:
            Augmenter(options, crop, KEY, "transform_param")


@pytest.mark.parametrize("mode", ["WARP", "FIT_SMALL_SIZE", "FIT_LARGE_SIZE_AND_PAD"])
@pytest.mark.parametrize("pad", ["CONSTANT", "MIRRORED"])
def test_sizes_are_checked_before_memory_is_taken(mode: str, pad: str) -> None:
    size = f"height: 2147483647 width: 9 resize_mode: {mode} pad_mode: {pad}"
    with pytest.raises(DataError, match="9 x 2147483647 pixels, more than"):
        augmented(f"resize_param {{ {size} }}", range(1))


def test_floats_cannot_be_resized() -> None:
    with pytest.raises(DataError, match="here: .*needs 8-bit images"):
        augmented("resize_param { height: 3 width: 3 }", range(1), IMAGE.astype(np.float32))
