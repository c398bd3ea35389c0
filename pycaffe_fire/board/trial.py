"""Trying weights on an image of one's own: scores, activations, what the net looks at.

Runs in a worker process; the image is not trusted.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .. import schema
from ..backend import cpu_backend
from ..data.image import read_image
from ..data.resize import resize
from ..data.transformer import Transformer
from ..errors import DataError, FireError, NetError
from ..layers import Context
from ..layers.detection_output import DetectionOutput
from ..net import Net
from .deploy import deploy_net
from .images import blob_png, classes_png, coloured, pixels_of, png

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
MOST_PIXELS = 50_000_000
TOP = 5
OCCLUSION_STEPS = 12  # windows along each side
MOST_BOXES = 100

Floats = NDArray[np.float32]


class Trial:
    """A net for single images, made from a test net and a snapshot's weights."""

    def __init__(
        self, prototxt: str, model: str, shape: list[int], stored: list[int] | None
    ) -> None:
        test = schema.parse_text(prototxt, schema.NetParameter())
        deployed = deploy_net(test, shape)
        self._net = Net(deployed.net, cpu_backend(), Context(seed=1))
        self._net.copy_from(model)
        self._net.plan_inference()
        self._shape = shape
        self._transformer, self._size = _preparation(test, shape, stored)
        self._input = self._net.layers[0].top[0]
        self._output = deployed.outputs[-1]
        self._seen: Floats | None = None
        self._pixels: Any = None

    @property
    def _kind(self) -> str:
        if any(isinstance(layer, DetectionOutput) for layer in self._net.layers):
            return "detection"
        shape = self._net.blobs[self._output].shape
        return "segmentation" if len(shape) == 4 and min(shape[2:]) > 1 else "classification"

    def do_image(self, image: str) -> dict[str, Any]:
        """Run an image (a file's bytes in base64): what the net says of it."""
        data = base64.b64decode(image)
        check_image(data)
        pixels = read_image("the image", self._shape[0] != 1, data)
        height, width = self._size
        small = resize(pixels, height, width)
        seen = np.empty((1, *self._shape), np.float32)
        self._transformer([small], range(1), seen)
        self._seen, self._pixels = seen, self._cropped(small)
        values = self._run(seen)
        found: dict[str, Any] = {
            "kind": self._kind,
            "size": [int(pixels.shape[2]), int(pixels.shape[1])],
            "image": _base64(png(pixels_of(self._pixels))),
            "blobs": [[name, list(blob.shape)] for name, blob in self._net.blobs.items()],
        }
        if self._kind == "detection":
            return found | {"boxes": _boxes(values)}
        if self._kind == "segmentation":
            classes = values[0].argmax(0)
            numbers, counts = np.unique(classes, return_counts=True)
            shares = [
                [int(n), float(c) / classes.size] for n, c in zip(numbers, counts, strict=True)
            ]
            return found | {"mask": _base64(classes_png(classes)), "shares": shares}
        scores = values.reshape(-1)
        best = np.argsort(-scores)[:TOP]
        return found | {"top": [[int(i), float(scores[i])] for i in best]}

    def do_blob(self, name: str) -> str:
        """A blob's values for the image of last time, as a PNG file in base64."""
        self._again()
        if name not in self._net.blobs:
            raise NetError(f'the net has no blob "{name}"')
        return _base64(blob_png(np.array(self._net.blobs[name].data)))

    def do_occlusion(self, target: int) -> Iterator[dict[str, Any]]:
        """How much the score of a class drops where a grey square covers the image."""
        seen = self._again()
        if self._kind != "classification":
            raise FireError("an occlusion map needs a net that gives one score for each class")
        whole = float(self._run(seen).reshape(-1)[target])
        height, width = self._shape[1:]
        tall, wide = max(1, height // 4), max(1, width // 4)
        tops = np.unique(np.linspace(0, height - tall, OCCLUSION_STEPS).astype(int))
        lefts = np.unique(np.linspace(0, width - wide, OCCLUSION_STEPS).astype(int))
        drops, counts = np.zeros((height, width)), np.zeros((height, width))
        for row, top in enumerate(tops):
            for left in lefts:
                covered = seen.copy()
                covered[0, :, top : top + tall, left : left + wide] = seen.mean()
                drop = whole - float(self._run(covered).reshape(-1)[target])
                drops[top : top + tall, left : left + wide] += drop
                counts[top : top + tall, left : left + wide] += 1
            yield {"progress": [row + 1, len(tops)]}
        drops /= np.maximum(counts, 1)
        strongest = float(drops.max())
        yield {"result": {"map": _base64(png(coloured(np.maximum(drops, 0)))), "score": whole,
                          "drop": strongest}}  # fmt: skip

    def _again(self) -> Floats:
        if self._seen is None:
            raise FireError("give an image first")
        self._run(self._seen)
        return self._seen

    def _run(self, seen: Floats) -> Floats:
        self._net.blobs[self._input].data[...] = seen
        self._net.run_forward()
        return np.array(self._net.blobs[self._output].data)

    def _cropped(self, image: Any) -> Any:
        height, width = self._shape[1:]
        top, left = (image.shape[1] - height) // 2, (image.shape[2] - width) // 2
        return np.array(image[:, top : top + height, left : left + width])


def check_image(data: bytes) -> None:
    """Refuse what is no image of a known kind or too large, before it is decoded."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"not an image of a known kind ({', '.join(FORMATS)}): {error}") from None
    if width * height > MOST_PIXELS:
        raise DataError(f"the image has {width} x {height} pixels; {MOST_PIXELS:,} are allowed")


def _preparation(
    test: Any, shape: list[int], stored: list[int] | None
) -> tuple[Transformer, tuple[int, int]]:
    """The data layer's transform without its coin tosses, and the size of images before it."""
    param = schema.TransformationParameter()
    first = next((layer for layer in test.layer if not layer.bottom), None)
    if first is not None:
        param.CopyFrom(first.transform_param)
    param.mirror = False
    made = Transformer(param, False, 0)
    if stored is None or (made.crop is None):
        return made, (shape[1], shape[2])
    return made, (max(stored[1], shape[1]), max(stored[2], shape[2]))


def _boxes(values: Floats) -> list[list[float]]:
    """Label, confidence and corners (parts of the image) of detections, the surest first."""
    rows = values.reshape(-1, 7)
    rows = rows[rows[:, 1] >= 0]
    rows = rows[np.argsort(-rows[:, 2])][:MOST_BOXES]
    return [[int(row[1]), *(float(value) for value in row[2:])] for row in rows]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
