"""pycaffe's Classifier: pictures in, class probabilities out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import schema
from .errors import DataError
from .io import Transformer, oversample, resize_image
from .net import Net


class Classifier(Net):
    """A net for pictures. Those are resized to `image_dims` and cropped to the net's input size.

    mean         subtracted in the net's channel order: a number per channel, or a picture
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
        self.transformer = picture_transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].shape[2:])
        wanted = self.crop_dims if image_dims is None or not len(image_dims) else image_dims
        self.image_dims = np.array(wanted)
        if (self.image_dims < self.crop_dims).any():
            raise DataError(
                f"image_dims {self.image_dims.tolist()} are smaller than the net's input, "
                f"{self.crop_dims.tolist()}"
            )

    def predict(self, inputs: Sequence[Any], oversample: bool = True) -> NDArray[np.float32]:
        """Probabilities (pictures, classes) of pictures as `io.load_image` gives them.

        With `oversample` they are means over ten crops: corners, centre, and mirrors of these.
        """
        if not len(inputs):
            raise DataError("no pictures to classify")
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


def picture_transformer(
    net: Net,
    mean: Any,
    input_scale: float | None,
    raw_scale: float | None,
    channel_swap: Sequence[int] | None,
) -> Transformer:
    """A Transformer for a net's first input, which must be for pictures."""
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
