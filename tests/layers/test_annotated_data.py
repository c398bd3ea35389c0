"""AnnotatedData: images with boxes as SSD feeds them, the same on any number of leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.data.annotation import encode_annotated
from pycaffe_fire.data.datum import encode_datum, image_datum
from pycaffe_fire.data.image import encode_image
from pycaffe_fire.data.resize import resize
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.errors import DataError, LayerError
from pycaffe_fire.layers import Context

COUNT = 12


def image(number: int) -> Any:
    """A frame of one colour with a bright rectangle for every object."""
    height, width = 120 + 12 * (number % 3), 180 - 9 * (number % 4)
    pixels = np.full((3, height, width), 10 * (number % 8), np.uint8)
    for row in rows(number).tolist():
        x1, x2 = (round(v * width) for v in (row[2], row[4]))
        y1, y2 = (round(v * height) for v in (row[3], row[5]))
        pixels[:, y1:y2, x1:x2] = 200 + 10 * int(row[0])
    return pixels


def rows(number: int) -> Any:
    """Number 5 has no objects; others one or two."""
    if number == 5:
        return np.zeros((0, 7), np.float32)
    first = [1 + number % 4, 0, 0.1, 0.25, 0.4, 0.75, 0]
    second = [1 + (number + 1) % 4, 0, 0.5, 0.5, 0.9, 1.0, 1]
    return np.array([first, second][: 1 + number % 2], np.float32)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("annotated") / "db"
    with DatabaseWriter(path) as writer:
        for i in range(COUNT):
            datum = encode_datum(image(i), i)
            if i % 3 == 0:
                datum = image_datum(encode_image(image(i), "png", "test"), i)
            writer.put(b"%08d" % i, encode_annotated(datum, rows(i)))
    return path


def net_text(path: Path, transform: str = "", own: str = "", batch: int = 4, data: str = "") -> str:
    return (
        f'layer {{ name: "d" type: "AnnotatedData" top: "data" top: "label" '
        f"transform_param {{ {transform} }} annotated_data_param {{ {own} }} "
        f'data_param {{ source: "{path}" backend: LMDB batch_size: {batch} {data} }} }}'
    )


def make_net(text: str, phase: int = caffe.TEST, **context: Any) -> Any:
    net = schema.parse_text(text, schema.NetParameter(), "net")
    net.state.phase = phase
    return caffe.Net(net, phase, context=Context(**context) if context else None)


def batches(text: str, count: int = 3, phase: int = caffe.TEST, **context: Any) -> Any:
    net = make_net(text, phase, **context)
    found = []
    for step in range(count):
        net.context.step = step
        for leaf in net.context.own_leaves:
            net.context.leaf = leaf
            net.run_forward()
            found.append((net.blobs["data"].data.copy(), net.blobs["label"].data.copy()))
    net.close()
    return found


WARP = "resize_param { height: 30 width: 36 }"


def test_rows_of_the_label_top(database: Path) -> None:
    own = "anno_type: BBOX batch_sampler { max_sample: 1 max_trials: 1 }"
    number = 0
    for data, label in batches(net_text(database, WARP, own)):
        expected = []
        for i in range(4):
            assert np.array_equal(data[i], resize(image(number), 30, 36))
            expected += [[i, *row] for row in rows(number).tolist()]
            number += 1
        assert label.shape == (1, 1, len(expected), 8)
        assert np.allclose(label[0, 0], np.array(expected, np.float32), atol=1e-6)


def test_a_batch_without_objects_has_one_row_of_minus_one(database: Path) -> None:
    found = batches(net_text(database, WARP, batch=1), 6)
    assert found[5][1].shape == (1, 1, 1, 8) and (found[5][1] == -1).all()
    net = make_net(net_text(database, WARP))
    assert net.blobs["label"].shape == (1, 1, 1, 8)  # known before any batch: the first record's
    net.close()


def test_records_without_a_type_have_labels(tmp_path: Path) -> None:
    with DatabaseWriter(tmp_path / "plain") as writer:
        for i in range(4):
            writer.put(b"%d" % i, encode_annotated(encode_datum(image(0), 10 + i), None))
    ((_, label),) = batches(net_text(tmp_path / "plain"), 1)
    assert label.shape == (4, 1, 1, 1) and label.ravel().tolist() == [10, 11, 12, 13]


def bright(data: Any, value: float) -> tuple[float, float, float, float]:
    """The box of the pixels nearest to a value, in parts of the image."""
    ys, xs = np.nonzero(np.abs(data - value) < 5)
    height, width = data.shape
    box = (xs.min() / width, ys.min() / height, (xs.max() + 1) / width, (ys.max() + 1) / height)
    return tuple(map(float, box))  # type: ignore[return-value]


AUGMENTED = """mirror: true mean_value: 0 resize_param { height: 80 width: 80 interp_mode: NEAREST }
    expand_param { prob: 0.5 max_expand_ratio: 2 } emit_constraint { emit_type: CENTER }"""
SAMPLERS = """batch_sampler { max_sample: 1 max_trials: 1 }
    batch_sampler { sampler { min_scale: 0.5 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }
        sample_constraint { min_jaccard_overlap: 0.1 } max_sample: 1 max_trials: 50 }"""


def test_boxes_stay_on_their_objects(database: Path) -> None:
    """Expansion, windows, resizing, cropping and mirroring move boxes as they move pixels."""
    for transform in (AUGMENTED, AUGMENTED + " crop_h: 70 crop_w: 60"):
        seen = mirrored = 0
        text = net_text(database, transform, SAMPLERS)
        for data, label in batches(text, 20, caffe.TRAIN, seed=3):
            for item, group, _, *box, _ in label[0, 0].tolist():
                if item < 0:
                    continue
                place = bright(data[int(item), 0], 200 + 10 * group)
                assert np.abs(np.array(place) - box).max() < 0.06, (place, box)
                seen += 1
                mirrored += group == 1 and box[0] > 0.5
        assert seen > 60 and mirrored


def test_padded_and_fitted_images(database: Path) -> None:
    modes = "resize_param { height: 48 width: 48 interp_mode: NEAREST resize_mode: %s }"
    for mode in ("FIT_LARGE_SIZE_AND_PAD", "FIT_SMALL_SIZE"):
        for data, label in batches(net_text(database, modes % mode, batch=1), 12):
            assert (min if mode == "FIT_SMALL_SIZE" else max)(data.shape[2:]) == 48
            for item, group, _, *box, _ in label[0, 0].tolist():
                if item >= 0:
                    place = bright(data[0, 0], 200 + 10 * group)
                    assert np.abs(np.array(place) - box).max() < 0.05
    with pytest.raises(LayerError, match="FIT_SMALL_SIZE leaves images of different sizes"):
        make_net(net_text(database, modes % "FIT_SMALL_SIZE"))


def test_boxes_in_units_of_another_size(database: Path) -> None:
    mode = "resize_param { height: 40 width: 40 resize_mode: FIT_SMALL_SIZE %s }"
    plain = batches(net_text(database, mode % "", batch=1), 2)
    scaled = batches(net_text(database, mode % "height_scale: 20 width_scale: 30", batch=1), 2)
    for (data, label), (_, other) in zip(plain, scaled, strict=True):
        height, width = data.shape[2:]
        factors = np.array([width / 30, height / 20] * 2)
        assert np.allclose(other[..., 3:7], label[..., 3:7] * factors, rtol=0.02)
    with pytest.raises(LayerError, match="give both height_scale and width_scale"):
        make_net(net_text(database, mode % "height_scale: 20", batch=1))


NOISY = (
    AUGMENTED
    + """ noise_param { saltpepper: true saltpepper_param { fraction: 0.02 value: 9 } }
    distort_param { brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 contrast_lower: 0.5
    contrast_upper: 1.5 hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 saturation_lower: 0.5
    saturation_upper: 1.5 random_order_prob: 0.2 }"""
)


def test_the_same_augmentation_for_any_leaves(database: Path) -> None:
    text = net_text(database, NOISY, SAMPLERS, batch=8, data="shuffle: true")
    whole = batches(text, 3, caffe.TRAIN, seed=5)
    parts = batches(text, 3, caffe.TRAIN, seed=5, leaves=4, own_leaves=(0, 1, 2, 3))
    for step, (data, label) in enumerate(whole):
        own = parts[4 * step : 4 * step + 4]
        assert np.array_equal(np.concatenate([d for d, _ in own]), data)
        moved = [part[0, 0] + [2 * i, *[0] * 7] for i, (_, part) in enumerate(own)]
        stacked = np.concatenate([p[p[:, 2] >= 0] for p in moved])
        assert np.array_equal(stacked, label[0, 0])
    other = batches(text, 1, caffe.TRAIN, seed=6)
    assert not np.array_equal(other[0][0], whole[0][0])


def test_images_of_different_sizes_are_named(database: Path) -> None:
    with pytest.raises(DataError, match=r'layer "d".*record \'00000001\': has shape .* resize_par'):
        batches(net_text(database), 1)


def test_bad_records_are_skipped(tmp_path: Path) -> None:
    with DatabaseWriter(tmp_path / "db") as writer:
        for i in range(4):
            record = encode_annotated(encode_datum(image(0), 0), rows(i))
            writer.put(b"%d" % i, record if i != 2 else record[:50])
    text = net_text(tmp_path / "db", batch=2)
    ((_, first), (_, second)) = batches(text, 2, bad_records="skip")
    assert np.allclose(second[0, 0, :2, 1:], rows(3)) and len(first[0, 0]) == 3
    with pytest.raises(DataError, match="record '2': is not an AnnotatedDatum record"):
        batches(text, 2)


@pytest.mark.parametrize(
    "transform, own, message",
    [
        ("", "batch_sampler { sampler { min_scale: 2 } }", "batch_sampler 0: needs 0 < min_scale"),
        ("resize_param { height: 3 }", "", "resize_param needs height and width"),
        ("noise_param { jpeg: 300 }", "", "a quality of at most 100"),
    ],
)
def test_wrong_parameters(database: Path, transform: str, own: str, message: str) -> None:
    with pytest.raises(LayerError, match=message):
        make_net(net_text(database, transform, own))


def test_a_source_is_needed() -> None:
    with pytest.raises(LayerError, match="data_param needs a source"):
        make_net('layer { name: "d" type: "AnnotatedData" top: "data" }')
