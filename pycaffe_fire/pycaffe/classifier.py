"""pycaffe's Classifier: images in, class probabilities out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import escape as glob_escape
from glob import glob
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..errors import DataError
from ..schema.files import replacing
from .io import Transformer, load_image, oversample, resize_image
from .net import Net


class Classifier(Net):
    """A net for images. Those are resized to `image_dims` and cropped to the net's input size.

    mean         subtracted in the net's channel order: a number per channel, or an image
    input_scale  factor after the mean was subtracted
    raw_scale    factor before that, 255 for nets that learned from bytes
    channel_swap order of channels, (2, 1, 0) for nets that learned from BGR
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str],
        image_dims: Sequence[int] | None = None,
        mean: Any = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
    ) -> None:
        super().__init__(os.fspath(model_file), schema.TEST, weights=os.fspath(pretrained_file))
        self.transformer = image_transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].shape[2:])
        wanted = self.crop_dims if image_dims is None or not len(image_dims) else image_dims
        self.image_dims = np.array(wanted)
        if (self.image_dims < self.crop_dims).any():
            raise DataError(
                f"image_dims {self.image_dims.tolist()} are smaller than the net's input, "
                f"{self.crop_dims.tolist()}"
            )

    def predict(self, inputs: Sequence[Any], oversample: bool = True) -> NDArray[np.float32]:
        """Probabilities (images, classes) of images as `io.load_image` gives them.

        With `oversample` they are means over ten crops: corners, centre, and mirrors of these.
        """
        if not len(inputs):
            raise DataError("no images to classify")
        resized = [resize_image(image, tuple(self.image_dims)) for image in inputs]
        crops: Sequence[Any] = self._centres(resized)
        if oversample:
            crops = list(_ten_crops(resized, tuple(self.crop_dims)))
        name = self.inputs[0]
        ready = [self.transformer.preprocess(name, crop) for crop in crops]
        found = self.forward_all(None, **{name: np.stack(ready)})[self.outputs[0]]
        if oversample:
            found = found.reshape(len(inputs), 10, -1).mean(1)
        predictions: NDArray[np.float32] = found
        return predictions

    def _centres(self, images: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        (height, width), (top, left) = self.crop_dims, (self.image_dims - self.crop_dims) // 2
        return [image[top : top + height, left : left + width] for image in images]


_ten_crops = oversample  # the name is an argument of `predict`, as in pycaffe


def image_transformer(
    net: Net,
    mean: Any,
    input_scale: float | None,
    raw_scale: float | None,
    channel_swap: Sequence[int] | None,
) -> Transformer:
    """A Transformer for a net's first input, which must be for images."""
    if not net.inputs or len(net.blobs[net.inputs[0]].shape) != 4:
        shapes = {name: list(net.blobs[name].shape) for name in net.inputs}
        raise DataError(
            f"{net.source}: the first input must be batch x channels x height x width, but the "
            f"inputs are {shapes or 'none'}; give a deploy.prototxt, which begins with an Input "
            f"layer"
        )
    name = net.inputs[0]
    made = Transformer({name: net.blobs[name].shape})
    made.set_transpose(name, (2, 0, 1))
    if mean is not None:
        made.set_mean(name, mean)
    if input_scale is not None:
        made.set_input_scale(name, input_scale)
    if raw_scale is not None:
        made.set_raw_scale(name, raw_scale)
    if channel_swap is not None:
        made.set_channel_swap(name, channel_swap)
    return made


def read_images(path: str, ending: str) -> list[NDArray[Any]]:
    """The images of a file, of a folder (those whose names end so), or of a .npy array."""
    if path.endswith(".npy"):
        images = read_array(path)
        if images.ndim != 4:
            raise DataError(
                f"{path}: must hold images x height x width x channels, got {images.shape}"
            )
        return list(images)
    if not os.path.isdir(path):
        return [load_image(path)]
    names = sorted(glob(os.path.join(glob_escape(path), f"*.{ending}")))
    if not names:
        raise DataError(f"{path}: no *.{ending} in this folder; --ext names another ending")
    return [load_image(name) for name in names]


def read_mean(path: str) -> NDArray[Any]:
    """A mean to subtract: a .npy array, or a .binaryproto as compute_image_mean writes it."""
    if path.endswith(".npy"):
        return read_array(path)
    mean: NDArray[Any] = schema.read_blob(path)
    return mean[0] if mean.ndim == 4 else mean


def read_array(path: str) -> NDArray[Any]:
    """A .npy file of numbers; one with Python objects, which could run code, is refused."""
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False)
    except Exception as error:  # of the file, of its header, of memory that the header asks for
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read as a NumPy array: {reason}") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise DataError(f"{path}: holds no array of numbers")
    return array


def write_array(path: str, array: NDArray[Any]) -> None:
    """Write a .npy file, completely or not at all."""
    with replacing(path, DataError) as temporary, temporary.open("wb") as file:
        np.save(file, array)
