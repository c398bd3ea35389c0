"""The embedded shapes: the same bits everywhere, boxes and masks that fit what is drawn."""

from __future__ import annotations

import hashlib

import numpy as np

from pycaffe_fire.data import shapes


def test_always_the_same_scenes() -> None:
    found = list(shapes.scenes("train", 0, 16))
    content = hashlib.sha256()
    for scene in found:
        content.update(scene.image.tobytes() + scene.mask.tobytes())
        content.update(np.array(scene.shapes, np.float64).tobytes())
    assert content.hexdigest() == "a8b19893886384c74f235cb93070fe3b044a74a1f6ddc89d83a7d65c4a6b7c29"
    (part,) = shapes.scenes("train", 15, 1)
    assert part.shapes == found[15].shapes and np.array_equal(part.image, found[15].image)
    (other,) = shapes.scenes("test", 15, 1)
    assert not np.array_equal(other.image, part.image)


def test_boxes_are_those_of_the_mask() -> None:
    for scene in shapes.scenes("test", 0, 60):
        assert 1 <= len(scene.shapes) <= 4
        assert set(np.unique(scene.mask)) == {0} | {shape.label for shape in scene.shapes}
        if len(scene.shapes) > 1:
            continue
        (shape,) = scene.shapes
        rows, columns = np.nonzero(scene.mask)
        pixels = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        assert np.abs(np.array(pixels) - shape[1:]).max() <= 1.5  # thin tips cover less than half
        assert min(shape[1:]) >= 0 and max(shape[1:]) <= shapes.SIZE


def test_classes_are_balanced_and_stand_out() -> None:
    found = list(shapes.scenes("train", 0, 200))
    labels = np.bincount([shape.label for scene in found for shape in scene.shapes])
    assert labels[0] == 0 and len(labels) == len(shapes.NAMES) and labels[1:].min() > 80
    for scene in found:
        background = scene.image[:, scene.mask == 0].mean(axis=1)
        for label in {shape.label for shape in scene.shapes}:
            inside = scene.image[:, scene.mask == label].astype(float)
            assert np.abs(inside - background[:, None]).mean(axis=1).max() > 25
