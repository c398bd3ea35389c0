"""Class folders become databases, a mean and names of classes, all of it or nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire import schema
from pycaffe_fire.data.datum import datum_image, parse_datum
from pycaffe_fire.data.db import open_database
from pycaffe_fire.data.folder import FolderSet, convert_folder
from pycaffe_fire.data.image_list import read_list
from pycaffe_fire.errors import DataError

COLOURS = {"cat": (200, 10, 20), "dog": (10, 200, 20), "emu": (10, 20, 200)}


def fill(folder: Path, count: int, colour: tuple[int, int, int]) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        Image.new("RGB", (6, 4), colour).save(folder / f"{number}.png")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name, colour in COLOURS.items():
        fill(tmp_path / "images" / name, 10, colour)
    return tmp_path / "images"


def asked(images: Path, **more: object) -> FolderSet:
    return FolderSet(str(images), str(images.parent / "out"), height=4, width=6, **more)  # type: ignore[arg-type]


def records(path: Path) -> list[tuple[int, tuple[int, ...]]]:
    """Every record's label and the colour of its first pixel, in RGB."""
    database = open_database(str(path), "LMDB")
    found = []
    for number in range(len(database)):
        datum = parse_datum(database.record(number), "record")
        found.append((datum.label, tuple(int(v) for v in datum_image(datum, "record")[::-1, 0, 0])))
    return found


def test_each_class_is_divided_and_labelled_by_the_order_of_names(images: Path) -> None:
    made = convert_folder(asked(images, val=0.3))
    out = images.parent / "out"
    assert made.classes == ["cat", "dog", "emu"]
    assert made.counts == {"train": [7, 7, 7], "val": [3, 3, 3]} and not made.skipped
    assert (out / "labels.txt").read_text() == "cat\ndog\nemu\n"
    colours = list(COLOURS.values())
    for part in ("train", "val"):
        assert all(colour == colours[label] for label, colour in records(out / f"{part}_lmdb"))
    paths = [{e.path for e in read_list(out / f"{part}.txt")} for part in ("train", "val")]
    assert not paths[0] & paths[1] and len(paths[0] | paths[1]) == 30
    mean = schema.read_blob(str(out / "mean.binaryproto"))
    assert mean.shape == (1, 3, 4, 6)
    expected = np.mean(colours, axis=0)[::-1]
    np.testing.assert_allclose(mean[0, :, 0, 0], expected, rtol=1e-6)


def test_the_division_is_the_same_every_time(images: Path) -> None:
    first = convert_folder(asked(images))
    (images.parent / "out").rename(images.parent / "before")
    assert convert_folder(asked(images)).counts == first.counts
    lists = [(images.parent / name / "val.txt").read_text() for name in ("before", "out")]
    assert lists[0] == lists[1]


def test_folders_train_and_val_are_taken_as_they_are(tmp_path: Path) -> None:
    for part, count in (("train", 3), ("val", 1)):
        for name in ("a", "b"):
            fill(tmp_path / "images" / part / name, count, (1, 2, 3))
    made = convert_folder(asked(tmp_path / "images"))
    assert made.classes == ["a", "b"] and made.counts == {"train": [3, 3], "val": [1, 1]}
    fill(tmp_path / "images" / "val" / "c", 1, (1, 2, 3))
    with pytest.raises(DataError, match="val/c: no class of that name"):
        convert_folder(FolderSet(str(tmp_path / "images"), str(tmp_path / "other")))


def test_an_image_that_cannot_be_read_is_named_or_skipped(images: Path) -> None:
    (images / "dog" / "bad.png").write_text("no image")
    (images / "dog" / "notes.txt").write_text("no image, and not called one")
    with pytest.raises(DataError, match=r"images/dog/bad\.png: .*cannot be decoded"):
        convert_folder(asked(images))
    assert [p.name for p in images.parent.iterdir()] == ["images"]  # nothing half-written
    made = convert_folder(asked(images, policy="skip"))
    assert made.skipped == 1 and made.ignored == ["dog/notes.txt"]


def test_refusals(images: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="out: exists already"):
        convert_folder(asked(images))
    (tmp_path / "out").rmdir()
    with pytest.raises(DataError, match="between 0 and 1"):
        convert_folder(asked(images, val=1.0))
    with pytest.raises(DataError, match="nowhere: cannot be read"):
        convert_folder(asked(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="holds 0 class folders"):
        convert_folder(asked(images / "cat"))
    (images / "empty").mkdir()
    with pytest.raises(DataError, match="empty: holds no images"):
        convert_folder(asked(images))
    (images / "empty").rmdir()
    fill(images / "one", 1, (0, 0, 0))
    with pytest.raises(DataError, match="one/0.png: is the only image of its class"):
        convert_folder(asked(images))
