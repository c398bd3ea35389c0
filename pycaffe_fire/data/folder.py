"""Class folders to everything that training needs: databases, mean, names of the classes.

Images lie in one folder per class. Those of a class are divided between training and validation,
unless the classes themselves lie in folders called train and val.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..backend import random
from ..errors import DataError
from ..schema.files import replacing
from .bad_records import FAIL
from .convert import ImageSet
from .image_list import Entry
from .survey import check_here, compute_mean, write_mean
from .writer import new_folder

ENDINGS = (
    ".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm",
)  # fmt: skip
PARTS = ("train", "val")
_SPLIT_KEY = random.key(1, "fire_data folder")
_SHOWN = 3  # files that are named as examples


@dataclass
class FolderSet:
    """What `fire_data folder` is asked for."""

    images: str
    out: str
    val: float = 0.2  # the share of each class that is not trained on
    height: int = 256
    width: int = 256
    gray: bool = False
    encoded: bool = False
    policy: str = FAIL
    threads: int = 0


@dataclass
class FolderResult:
    """What was made: classes by label, images of each in the two databases, the mean colour."""

    classes: list[str]
    counts: dict[str, list[int]]  # by part, then by label
    skipped: int
    ignored: list[str]  # files that are no images by their names
    mean: NDArray[np.float32]


def convert_folder(asked: FolderSet) -> FolderResult:
    """Make train_lmdb, val_lmdb, mean.binaryproto, labels.txt, train.txt and val.txt in `out`.

    `out` must not exist; it appears when everything in it is complete and was read back.
    """
    if not 0 < asked.val < 1:
        raise DataError(f"the share for validation must lie between 0 and 1, got {asked.val:g}")
    classes, lists, ignored = _find(asked)
    root = os.path.join(asked.images, "")
    counts, skipped = {}, 0
    with new_folder(asked.out) as folder:
        _write_lines(folder / "labels.txt", classes)
        for part in PARTS:
            list_file, database = folder / f"{part}.txt", folder / f"{part}_lmdb"
            _write_lines(list_file, [f"{entry.path} {entry.label}" for entry in lists[part]])
            _, left_out = ImageSet(
                root=root, list_file=str(list_file), database=str(database), shuffle=True,
                gray=asked.gray, resize_height=asked.height, resize_width=asked.width,
                encoded=asked.encoded, policy=asked.policy, threads=asked.threads,
            ).convert()  # fmt: skip
            found = check_here(str(database), classes=len(classes), threads=asked.threads)
            if found.problems:
                raise DataError(
                    f"{len(found.problems):,} records were damaged: {found.problems[0]}"
                )
            counts[part] = [found.labels[label] for label in range(len(classes))]
            skipped += left_out
        mean = compute_mean(str(folder / "train_lmdb"), threads=asked.threads)
        write_mean(folder / "mean.binaryproto", mean)
    return FolderResult(classes, counts, skipped, ignored, mean)


def _find(asked: FolderSet) -> tuple[list[str], dict[str, list[Entry]], list[str]]:
    """The classes, the images of both parts, and the files that are no images."""
    top, ignored = Path(asked.images), list[str]()
    inside = _folders(top)
    if {folder.name for folder in inside} == set(PARTS):
        found = {part: _images(top, top / part, ignored) for part in PARTS}
        classes = sorted(found["train"])
        if strange := sorted(set(found["val"]) - set(classes)):
            raise DataError(f"{top / 'val' / strange[0]}: no class of that name in {top / 'train'}")
        numbers = {name: label for label, name in enumerate(classes)}
        lists = {
            part: [Entry(path, numbers[name]) for name in sorted(of) for path in of[name]]
            for part, of in found.items()
        }
    else:
        images = _images(top, top, ignored)
        classes = sorted(images)
        lists = _divide([images[name] for name in classes], asked.val)
    if len(classes) < 2:
        raise DataError(
            f"{top}: holds {len(classes)} class folders, needs at least 2: one folder of images "
            "for each class, such as images/cat and images/dog"
        )
    return classes, lists, ignored


def _folders(top: Path) -> list[Path]:
    try:
        return sorted(p for p in top.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError as error:
        raise DataError(f"{top}: cannot be read: {error.strerror}; give a folder") from None


def _images(top: Path, folder: Path, ignored: list[str]) -> dict[str, list[str]]:
    """The images of every class as paths below `top`, folders inside classes included."""
    found = {}
    for of_class in _folders(folder):
        paths = []
        for here, folders, files in os.walk(of_class, followlinks=True):
            folders.sort()
            for name in sorted(files):
                path = os.path.relpath(os.path.join(here, name), top)
                if name.startswith(".") or not name.lower().endswith(ENDINGS):
                    ignored += [] if name.startswith(".") else [path]
                elif "\n" in path or "\r" in path:
                    raise DataError(f"{path!r}: has a line break in its name; rename it")
                else:
                    paths.append(path)
        if not paths:
            raise DataError(
                f"{of_class}: holds no images ({', '.join(ENDINGS)}); fill or remove the folder"
            )
        found[of_class.name] = paths
    return found


def _divide(images: Sequence[Sequence[str]], share: float) -> dict[str, list[Entry]]:
    """The same share of each class for validation, drawn at random, the same every time."""
    lists: dict[str, list[Entry]] = {part: [] for part in PARTS}
    for label, paths in enumerate(images):
        if len(paths) < 2:
            raise DataError(
                f"{paths[0]}: is the only image of its class; it needs one to train on and one to "
                "validate with"
            )
        held = min(len(paths) - 1, max(1, round(share * len(paths))))
        order = np.argsort(random.bits(_SPLIT_KEY, label, 0, len(paths)), kind="stable")
        chosen = set(order[:held].tolist())
        for number, path in enumerate(paths):
            lists["val" if number in chosen else "train"].append(Entry(path, label))
    return lists


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    with replacing(path, DataError) as temporary:
        temporary.write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogateescape"
        )


def ignored_text(ignored: Sequence[str]) -> str:
    """`2 files are no images by their names: a.txt, b.csv`"""
    examples = ", ".join(ignored[:_SHOWN]) + (", ..." if len(ignored) > _SHOWN else "")
    what = "file is no image by its name" if len(ignored) == 1 else "files are no images by name"
    return f"{len(ignored):,} {what}: {examples}"
