"""pycaffe's io: images to a net's inputs and back, and arrays to Caffe's messages and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .. import schema
from ..data.image import decode_image
from ..errors import DataError
from ..schema.proto import BlobProto, Datum
from .interpolate import resize_image
from .proto import caffe_pb2 as caffe_pb2

__all__ = [
    "ImageError",
    "Transformer",
    "array_to_blobproto",
    "array_to_datum",
    "arraylist_to_blobprotovector_str",
    "blobproto_to_array",
    "blobprotovector_str_to_arraylist",
    "datum_to_array",
    "load_image",
    "oversample",
    "resize_image",
]

Floats = NDArray[np.float32]

_GREY_MODES = ("1", "L", "LA", "La")
_LUMINANCE = np.array([0.2125, 0.7154, 0.0721])  # scikit-image's shares of red, green and blue


class ImageError(DataError, OSError):
    """An image file cannot be read; an OSError too, which is what scripts catch."""


class InputError(DataError, ValueError):
    """An array or setting that does not fit; a ValueError too, which is what scripts catch."""


# Arrays and messages.


def blobproto_to_array(blob: BlobProto, return_diff: bool = False) -> NDArray[Any]:
    """The data (or diff) of a BlobProto, legacy four-dimensional ones included."""
    single, double = (blob.diff, blob.double_diff) if return_diff else (blob.data, blob.double_data)
    values = np.array(single if len(single) else double)
    legacy = ("num", "channels", "height", "width")
    if any(blob.HasField(name) for name in legacy):
        shape = tuple(getattr(blob, name) for name in legacy)
    else:
        shape = tuple(blob.shape.dim)
    if values.size != np.prod(shape, dtype=np.int64):
        what = "diff" if return_diff else "data"
        raise InputError(f"the BlobProto says shape {shape}, but its {what} has {values.size}")
    return values.reshape(shape)


def array_to_blobproto(arr: Any, diff: Any = None) -> BlobProto:
    """A BlobProto with the array's shape and values, and those of `diff` if given."""
    array = np.asarray(arr)
    blob = schema.BlobProto()
    blob.shape.dim.extend(array.shape)
    blob.data.extend(array.astype(float).flat)
    if diff is not None:
        blob.diff.extend(np.asarray(diff).astype(float).flat)
    return blob


def arraylist_to_blobprotovector_str(arraylist: Iterable[Any]) -> bytes:
    """A serialised BlobProtoVector of several arrays."""
    vector = schema.BlobProtoVector(blobs=[array_to_blobproto(array) for array in arraylist])
    text: bytes = vector.SerializeToString()
    return text


def blobprotovector_str_to_arraylist(text: bytes) -> list[NDArray[Any]]:
    """The arrays of a serialised BlobProtoVector."""
    return [blobproto_to_array(blob) for blob in schema.BlobProtoVector.FromString(text).blobs]


def array_to_datum(arr: Any, label: int | None = None) -> Datum:
    """A Datum of a (channels, height, width) array: uint8 as data, other types as float_data."""
    array = np.asarray(arr)
    if array.ndim != 3:
        raise InputError(f"a Datum holds channels x height x width, got shape {array.shape}")
    datum = schema.Datum()
    datum.channels, datum.height, datum.width = array.shape
    if array.dtype == np.uint8:
        datum.data = array.tobytes()
    else:
        datum.float_data.extend(array.astype(float).flat)
    if label is not None:
        datum.label = int(label)
    return datum


def datum_to_array(datum: Datum) -> NDArray[Any]:
    """A Datum's (channels, height, width) array; the label is not part of it.

    An encoded image is decoded, in Caffe's BGR order (pycaffe fails on those).
    """
    if datum.encoded:
        image: NDArray[np.uint8] = decode_image(datum.data, "the Datum").copy()
        return image
    shape = (datum.channels, datum.height, datum.width)
    values: NDArray[Any] = np.array(datum.float_data, dtype=float)
    if len(datum.data):
        values = np.frombuffer(datum.data, np.uint8).copy()
    if values.size != np.prod(shape, dtype=np.int64):
        raise InputError(f"the Datum says shape {shape}, but holds {values.size} values")
    return values.reshape(shape)


# Images.


def load_image(filename: str | os.PathLike[str], color: bool = True) -> Floats:
    """An image as float32 in 0..1: (height, width, 3) in RGB, or (height, width, 1) if not color.

    Alpha is dropped; images are taken as they lie in the file, whatever its EXIF entry says.
    """
    name = os.fspath(filename)
    try:
        with Image.open(name) as image:
            pixels = _unit_pixels(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ImageError(f"{name}: the image cannot be read: {reason}") from None
    if color:
        return np.tile(pixels, (1, 1, 3)) if pixels.shape[2] == 1 else pixels
    grey = pixels if pixels.shape[2] == 1 else (pixels @ _LUMINANCE)[:, :, np.newaxis]
    return grey.astype(np.float32)


def _unit_pixels(image: Image.Image) -> Floats:
    """(height, width, 1 or 3) in 0..1."""
    if image.mode.startswith("I"):  # 16 bits, the only deep images there are in practice
        return (np.asarray(image) / 65535.0).astype(np.float32)[:, :, np.newaxis]
    pixels = np.asarray(image.convert("L" if image.mode in _GREY_MODES else "RGB"))
    return (pixels.reshape(*pixels.shape[:2], -1) / 255.0).astype(np.float32)


def oversample(images: Sequence[Any], crop_dims: Sequence[int]) -> Floats:
    """Ten crops of every (height, width, channels) image: corners, centre, and their mirrors."""
    first = np.asarray(images[0])
    height, width = (int(n) for n in crop_dims)
    down, right = first.shape[0] - height, first.shape[1] - width
    if down < 0 or right < 0:
        raise InputError(f"crops of {height} x {width} do not fit images of {first.shape}")
    corners = [(y, x) for y in (0, down) for x in (0, right)]
    places = [*corners, (down // 2, right // 2)]
    crops = np.empty((len(images), 10, height, width, first.shape[2]), np.float32)
    for image, ten in zip(images, crops, strict=True):
        for i, (y, x) in enumerate(places):
            ten[i] = image[y : y + height, x : x + width]
        ten[5:] = ten[:5, :, ::-1]
    return crops.reshape(-1, height, width, first.shape[2])


class Transformer:
    """Turns images as load_image gives them into what a net's inputs expect, and back.

    `preprocess` resizes, transposes, swaps channels, scales by raw_scale, subtracts the mean and
    scales by input_scale, in this order; steps that were not set are left out.
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]) -> None:
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, NDArray[Any]] = {}
        self.input_scale: dict[str, float] = {}

    def _shape(self, in_: str) -> tuple[int, ...]:
        if in_ not in self.inputs:
            raise InputError(f'"{in_}" is not one of the net inputs: {", ".join(self.inputs)}')
        return self.inputs[in_]

    def preprocess(self, in_: str, data: Any) -> Floats:
        """The image (height, width, channels) as the net's input wants it."""
        size = self._shape(in_)[2:]
        values = np.asarray(data, np.float32)
        if values.shape[:2] != size:
            values = resize_image(values, size)
        if in_ in self.transpose:
            values = values.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            values = values[list(self.channel_swap[in_])]
        if in_ in self.raw_scale:
            values = values * np.float32(self.raw_scale[in_])
        if in_ in self.mean:
            values = values - self.mean[in_].astype(np.float32)
        if in_ in self.input_scale:
            values = values * np.float32(self.input_scale[in_])
        return values

    def deprocess(self, in_: str, data: Any) -> NDArray[Any]:
        """The image that an input was made from: `preprocess` backwards, except for its size."""
        self._shape(in_)
        values = np.array(data).squeeze()
        if in_ in self.input_scale:
            values = values / self.input_scale[in_]
        if in_ in self.mean:
            values = values + self.mean[in_]
        if in_ in self.raw_scale:
            values = values / self.raw_scale[in_]
        if in_ in self.channel_swap:
            values = values[np.argsort(self.channel_swap[in_])]
        if in_ in self.transpose:
            values = values.transpose(np.argsort(self.transpose[in_]))
        return values

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """The order of an image's axes in the net: (2, 0, 1) puts channels first."""
        axes = len(self._shape(in_)) - 1
        if sorted(order) != list(range(axes)):
            raise InputError(f'input "{in_}" needs an order of its {axes} axes, got {order}')
        self.transpose[in_] = order

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """The order of channels in the net: (2, 1, 0) makes BGR of RGB. Needs channels first."""
        channels = self._shape(in_)[1]
        if len(order) != channels:
            raise InputError(f'input "{in_}" has {channels} channels, got an order of {order}')
        self.channel_swap[in_] = order

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """A factor before the mean is subtracted: 255 where a net learned from bytes."""
        self._shape(in_)
        self.raw_scale[in_] = scale

    def set_mean(self, in_: str, mean: Any) -> None:
        """A number for every channel, or an image, which is resized to the input if need be."""
        shape, mean = self._shape(in_), np.asarray(mean)
        if mean.ndim == 1:
            if mean.shape[0] != shape[1]:
                raise InputError(
                    f'the mean has {mean.shape[0]} channels, but input "{in_}" has {shape[1]}'
                )
            mean = mean[:, np.newaxis, np.newaxis]
        else:
            mean = mean[np.newaxis] if mean.ndim == 2 else mean
            if mean.ndim != 3 or mean.shape[0] not in (1, shape[1]):
                raise InputError(
                    f'a mean of shape {mean.shape} does not fit input "{in_}" of {shape[1:]}; it '
                    f"must be channels x height x width, or a number for every channel"
                )
            if mean.shape[1:] != shape[2:]:
                mean = resize_image(mean.transpose(1, 2, 0), shape[2:]).transpose(2, 0, 1)
        self.mean[in_] = mean

    def set_input_scale(self, in_: str, scale: float) -> None:
        """A factor after the mean was subtracted."""
        self._shape(in_)
        self.input_scale[in_] = scale
