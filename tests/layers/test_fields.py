"""Single fields that no other test gives: each changes what its definition says, and no more."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.data.resize import LINEAR, NEAREST, resize
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.solver import Solver, SolverOptions
from tests.data.test_augment import IMAGE, augmented
from tests.layers.test_data_layers import make_net
from tests.net.net_cases import layer
from tests.solver.solver_cases import (
    SGD,
    body,
    make,
    rows_layer,
    weights,
    write_records,
    write_rows,
)


def shape_of(top: str, text: str) -> tuple[int, ...]:
    net = caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN)
    shape: tuple[int, ...] = net.blobs[top].shape
    return shape


def given(name: str, *dims: int) -> str:
    listed = " ".join(f"dim: {d}" for d in dims)
    return layer("Input", name, "", name, f"input_param {{ shape {{ {listed} }} }}")


def test_sizes_of_unpooled_tops() -> None:
    two = given("x", 1, 2, 3, 3) + given("mask", 1, 2, 3, 3)
    square = layer("Unpooling", "u", "x mask", "u",
                   "unpooling_param { kernel_size: 2 stride: 2 unpool_size: 5 }")  # fmt: skip
    assert shape_of("u", two + square) == (1, 2, 5, 5)
    narrow = layer("Upsample", "u", "x mask", "u", "upsample_param { scale: 2 pad_out_w: true }")
    assert shape_of("u", two + narrow) == (1, 2, 6, 5)


def test_engines_of_activations_change_nothing() -> None:
    values = np.linspace(-3, 3, 6, dtype=np.float32).reshape(1, 6)
    for kind, field in (("Sigmoid", "sigmoid_param"), ("TanH", "tanh_param")):
        tops = []
        for engine in ("", f"{field} {{ engine: CAFFE }}"):
            text = given("x", 1, 6) + layer(kind, "y", "x", "y", engine)
            net = caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TEST)
            tops.append(np.array(net.forward(x=values)["y"]))
        np.testing.assert_array_equal(tops[0], tops[1])


def test_nvidias_stretch_in_width_and_its_interpolation() -> None:
    stretch = "crop_size: 16 allow_upscale: true horizontal_stretch_lower: 2 "
    wide = augmented(stretch + "horizontal_stretch_upper: 2")
    assert all(image.shape == (3, 40, 120) for image in wide)
    text = "crop_size: 16 img_rand_resize_lower: 20 img_rand_resize_upper: 20 "
    (small,) = augmented(text + "interpolation_algo_down: INTER_LINEAR", range(1))
    assert np.array_equal(small, resize(IMAGE, 20, 30, LINEAR))
    large = "crop_size: 16 allow_upscale: true img_rand_resize_lower: 80 img_rand_resize_upper: 80 "
    (found,) = augmented(large + "interpolation_algo_up: INTER_NEAREST", range(1))
    assert np.array_equal(found, resize(IMAGE, 80, 120, NEAREST))


def test_attempts_at_a_random_aspect() -> None:
    """A part larger than the image is never found; without an attempt there is none either."""
    asked = "crop_size: 8 random_aspect_ratio_param { %s min_area_ratio: 0.2 max_area_ratio: 0.3 }"
    drawn, none = augmented(asked % ""), augmented(asked % "max_attempt: 0")
    assert all(image.shape == none[0].shape for image in none)
    assert all(np.array_equal(image, none[0]) for image in none)
    assert len({image.tobytes() for image in drawn}) > 10


def batches(folder: Path, extra: str) -> Any:
    source = write_records(folder)
    net = make_net(
        'layer { name: "d" type: "Data" top: "data" top: "label" '
        f'data_param {{ source: "{source}" batch_size: 4 backend: LMDB {extra} }} }}'
    )
    return [np.array(net.forward()["data"]) for _ in range(8)]


@pytest.mark.parametrize("extra", ["precache: true", "cache: true", "prefetch: 1", "threads: 3"])
def test_records_are_the_same_however_they_are_read(tmp_path: Path, extra: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for one, other in zip(batches(tmp_path / "a", ""), batches(tmp_path / "b", extra), strict=True):
        np.testing.assert_array_equal(one, other)


def test_encoded_gray_images_are_forced_to_colour(tmp_path: Path) -> None:

    file = io.BytesIO()
    Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4)).save(file, "PNG")
    datum = schema.Datum(data=file.getvalue(), encoded=True, label=1)
    with DatabaseWriter(tmp_path / "gray_lmdb") as writer:
        writer.put(b"0", datum.SerializeToString())
    for extra, channels in (("", 1), ("force_encoded_color: true", 3)):
        net = make_net(
            'layer { name: "d" type: "Data" top: "data" top: "label" data_param { '
            f'source: "{tmp_path}/gray_lmdb" batch_size: 1 backend: LMDB {extra} }} }}'
        )
        assert net.blobs["data"].shape == (1, channels, 3, 4)


def test_a_solver_s_own_training_net(tmp_path: Path) -> None:
    net = rows_layer(write_rows(tmp_path), 4) + body()
    one = make(net, SGD)
    text = schema.parse_text(SGD, schema.SolverParameter())
    text.train_net_param.CopyFrom(schema.parse_text(net, schema.NetParameter()))
    other = Solver(text, SolverOptions(cpu_backend(1), seed=5))
    one.step(2)
    other.step(2)
    for name, value in weights(one).items():
        np.testing.assert_array_equal(value, weights(other)[name])


def test_window_fields_of_the_oldest_nets() -> None:
    net = schema.parse_text(
        'layers { layer { name: "w" type: "window_data" det_bg_threshold: 0.25 '
        "det_fg_fraction: 0.125 batchsize: 2 } top: 'data' top: 'label' }",
        schema.NetParameter(),
    )
    param = net.layer[0].window_data_param
    assert (param.bg_threshold, param.fg_fraction, param.batch_size) == (0.25, 0.125, 2)


def test_fields_that_even_caffe_did_not_use(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    schema.parse_text(
        'layers { layer { name: "r" type: "relu" new_num: 3 new_channels: 2 } }',
        schema.NetParameter(),
    )
    for field in ("new_num", "new_channels"):
        assert f'layer "r": {field} has no effect, as in Caffe' in caplog.text
