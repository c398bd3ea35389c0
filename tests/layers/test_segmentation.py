"""Images with a class for every pixel: ImageSegData, DenseImageData and ImageLabelmapData."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire import Net, schema
from pycaffe_fire.errors import DataError, LayerError

Array = np.ndarray[Any, Any]
MEANS = (10.0, 20.0, 30.0)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Array, Array]]:
    """Six images (BGR, H x W x 3) with masks, and list.txt that names them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    made, lines = [], []
    for i in range(6):
        image = rng.integers(0, 256, (8, 10, 3), np.uint8)
        mask = rng.integers(0, 4, (8, 10), np.uint8)
        Image.fromarray(image[:, :, ::-1]).save(f"image{i}.png")
        Image.fromarray(mask).save(f"mask{i}.png")
        made.append((image, mask))
        lines.append(f"/image{i}.png /mask{i}.png\n")
    Path("list.txt").write_text("".join(lines))
    return made


def net_of(
    kind: str = "ImageSegData", more: str = "", transform: str = "", tops: int = 2, batch: int = 2,
    phase: int = schema.TRAIN, rest: str = "",
) -> Net:  # fmt: skip
    holder = "dense_image_data_param" if kind == "DenseImageData" else "image_data_param"
    means = " ".join(f"mean_value: {mean}" for mean in MEANS)
    names = " ".join(f'top: "{name}"' for name in ("data", "label", "size")[:tops])
    text = (
        f'layer {{ name: "in" type: "{kind}" {names} {holder} {{ source: "list.txt" '
        f'root_folder: "." batch_size: {batch} {more} }} '
        f"transform_param {{ {means} {transform} }} }}"
    )
    return Net(schema.parse_text(text + rest, schema.NetParameter()), phase)


def batches(net: Net, count: int) -> tuple[Array, Array]:
    data, label = [], []
    for step in range(count):
        net.context.step = step
        net.forward()
        data.append(net.blobs["data"].data.copy())
        label.append(net.blobs["label"].data.copy())
    return np.concatenate(data), np.concatenate(label)


@pytest.mark.parametrize("kind", ["ImageSegData", "DenseImageData", "ImageLabelmapData"])
def test_images_and_masks_in_their_order(kind: str, images: list[tuple[Array, Array]]) -> None:
    data, label = batches(net_of(kind), 3)
    assert label.shape == (6, 1, 8, 10)
    for i, (image, mask) in enumerate(images):
        np.testing.assert_allclose(data[i], image.transpose(2, 0, 1) - np.reshape(MEANS, (3, 1, 1)))
        np.testing.assert_array_equal(label[i, 0], mask)


@pytest.mark.parametrize("kind", ["ImageSegData", "DenseImageData"])
def test_images_and_masks_are_cut_alike(kind: str, images: list[tuple[Array, Array]]) -> None:
    """Every crop and mirror image of a batch is one of its image, and the mask's is the same."""
    data, label = batches(net_of(kind, "shuffle: true", "crop_size: 5 mirror: true"), 3)
    places = set()
    for got, mask in zip(data, label[:, 0], strict=True):
        fits = [
            (i, top, left, turn)
            for i, (image, _) in enumerate(images)
            for top in range(4)
            for left in range(6)
            for turn in (1, -1)
            if np.array_equal(
                image[top : top + 5, left : left + 5][:, ::turn].transpose(2, 0, 1),
                got + np.reshape(MEANS, (3, 1, 1)),
            )
        ]
        ((i, top, left, turn),) = fits
        want = images[i][1][top : top + 5, left : left + 5][:, ::turn]
        np.testing.assert_array_equal(mask, want)
        places.add((i, top, left, turn))
    assert {place[0] for place in places} == set(range(6))
    assert len({place[1:] for place in places}) > 2 and len({place[3] for place in places}) == 2


def test_what_is_too_small_is_padded(images: list[tuple[Array, Array]]) -> None:
    net = net_of(transform="crop_size: 12", tops=3, phase=schema.TEST)
    net.forward()
    data, label, size = (net.blobs[name].data for name in ("data", "label", "size"))
    image, mask = images[0]
    np.testing.assert_array_equal(label[0, 0, :8, :10], mask)
    assert (label[0, 0, 8:] == 255).all() and (label[0, 0, :, 10:] == 255).all()
    assert (data[:, :, 8:] == 0).all() and (data[:, :, :, 10:] == 0).all()
    assert size.shape == (2, 1, 1, 2) and size[0].ravel().tolist() == [8, 10]


def test_resizing_keeps_classes(images: list[tuple[Array, Array]]) -> None:
    _, label = batches(net_of(more="new_height: 4 new_width: 5"), 1)
    np.testing.assert_array_equal(label[0, 0], images[0][1][::2, ::2])


def test_palettes_are_class_numbers(images: list[tuple[Array, Array]]) -> None:
    mask = Image.fromarray(images[0][1], "P")
    mask.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0])
    mask.save("mask0.png")
    _, label = batches(net_of(), 1)
    np.testing.assert_array_equal(label[0, 0], images[0][1])


def test_single_images_may_differ_in_size(images: list[tuple[Array, Array]]) -> None:
    Image.fromarray(np.zeros((3, 4, 3), np.uint8)).save("image1.png")
    Image.fromarray(np.ones((3, 4), np.uint8)).save("mask1.png")
    net = net_of(batch=1, tops=3)
    shapes = []
    for step in range(3):
        net.context.step = step
        net.forward()
        shapes.append(net.blobs["label"].shape)
    assert shapes == [(1, 1, 8, 10), (1, 1, 3, 4), (1, 1, 8, 10)]
    with pytest.raises(DataError, match=r"image ./image1.png: has shape \(3, 3, 4\), the first"):
        batches(net_of(), 1)


def test_images_without_masks(images: list[tuple[Array, Array]]) -> None:
    Path("list.txt").write_text("/image0.png\n/image1.png\n")
    _, label = batches(net_of(more="label_type: NONE"), 1)
    assert (label == 255).all()
    with pytest.raises(LayerError, match="one label for each image, which ImageData reads"):
        net_of(more="label_type: IMAGE")


LOSS = """
layer { name: "score" type: "Convolution" bottom: "data" top: "score"
  convolution_param { num_output: 3 kernel_size: 1 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss"
  loss_param { ignore_label: %d } }
"""


def test_classes_that_the_net_does_not_know_are_named(images: list[tuple[Array, Array]]) -> None:
    with pytest.raises(DataError, match="mask ./mask0.png: has the class 3, outside the 3 classes"):
        batches(net_of(rest=LOSS % 255), 1)
    batches(net_of(rest=LOSS % 3), 1)


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        ("/image0.png\n", r'list.txt:1: expected "image mask"'),
        ("", "names no images"),
        ("/image0.png /none.png\n", "none.png: the image cannot be read"),
        ("/image0.png /small.png\n", "is 8 x 10, but its mask ./small.png 3 x 4"),
    ],
)
def test_bad_lists(lines: str, match: str, images: list[tuple[Array, Array]]) -> None:
    Image.fromarray(np.zeros((3, 4), np.uint8)).save("small.png")
    Path("list.txt").write_text(lines)
    with pytest.raises(DataError, match=match) as caught:
        net_of()
    assert 'layer "in" (ImageSegData)' in str(caught.value)


def test_bad_parameters(images: list[tuple[Array, Array]]) -> None:
    with pytest.raises(LayerError, match="must be given together, got 4 and 0"):
        net_of(more="new_height: 4")
    with pytest.raises(DataError, match="other changes are not; resize by new_height"):
        net_of(transform="resize_param { height: 4 width: 4 }")
    with pytest.raises(LayerError, match="needs a source"):
        text = 'layer { name: "in" type: "DenseImageData" top: "x" top: "y" }'
        Net(schema.parse_text(text, schema.NetParameter()), schema.TRAIN)
