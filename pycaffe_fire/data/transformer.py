"""Caffe's transform_param: crop, mirror, mean and scale, applied to a whole batch at once.

    top = (crop(image) - crop(mean)) * scale, then mirrored left to right

In the training phase the crop lies at random, in the test phase in the middle; mirroring is a coin
toss in both, as in Caffe. The draws depend on the seed and the global sample number alone. What
the forks change before that, image by image, is in augment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend import random
from ..backend.cpu import library
from ..errors import BackendError, DataError, WeightsError
from ..schema import read_blob
from ..schema.proto import BatchSampler, TransformationParameter
from .augment import Augmenter
from .image import Jpeg
from .kernels import BYTES, FLOATS, IMAGE, PACKED, Transform
from .objects import Window


class Transformer:
    """The transforms of one data layer, from its TransformationParameter.

    `key` is the random stream of the layer, see backend.random.key; `where` starts error texts.
    `samplers` are given if the images have objects.
    """

    def __init__(
        self,
        param: TransformationParameter,
        train: bool,
        key: int,
        where: str = "transform_param",
        samplers: Sequence[BatchSampler] | None = None,
    ) -> None:
        self._where = where
        self.crop = self._read_crop(param)
        self.force_color = bool(param.force_color)
        self.force_gray = bool(param.force_gray)
        self._mirror = bool(param.mirror)
        self.scale = np.float32(param.scale)
        self._mean_values = [float(v) for v in param.mean_value]
        self._mean_file = str(param.mean_file)
        self._train = train
        self._key = key if param.random_seed < 0 else random.key(param.random_seed, "transform")
        if self.force_color and self.force_gray:
            raise DataError(f"{where}: force_color and force_gray cannot both be set")
        if self._mean_file and self._mean_values:
            raise DataError(f"{where}: give mean_file or mean_value, not both")
        self._mean = self._read_mean() if self._mean_file else None
        self.augment = Augmenter(param, self.crop, self._key, where, samplers)

    def _read_crop(self, param: TransformationParameter) -> tuple[int, int] | None:
        """(height, width) of the crop, if there is one."""
        size, height, width = int(param.crop_size), int(param.crop_h), int(param.crop_w)
        if bool(height) != bool(width) or (size and height):
            raise DataError(
                f"{self._where}: give crop_size, or both crop_h and crop_w; got crop_size {size}, "
                f"crop_h {height}, crop_w {width}"
            )
        return (size or height, size or width) if size or height else None

    def _read_mean(self) -> NDArray[np.float32]:
        try:
            blob: NDArray[np.float32] = np.asarray(read_blob(self._mean_file), np.float32)
        except WeightsError as error:
            raise DataError(
                f"{self._where}: mean_file {error} (compute_image_mean DATABASE FILE makes one)"
            ) from None
        if blob.ndim == 4 and blob.shape[0] == 1:
            blob = blob[0]
        if blob.ndim != 3:
            raise DataError(
                f"{self._mean_file}: a mean has shape 1 x channels x height x width, "
                f"this one {blob.shape}"
            )
        return np.ascontiguousarray(blob)

    def output_shape(self, shape: tuple[int, int, int], where: str) -> tuple[int, int, int]:
        """The shape after the transform of an image of `shape`; refuses one that does not fit."""
        channels, height, width = shape
        if self.crop is not None and (self.crop[0] > height or self.crop[1] > width):
            what = f"{self.crop[0]} x {self.crop[1]}"
            if self.crop[0] == self.crop[1]:
                what = str(self.crop[0])
            raise DataError(
                f"{where}: crop_size {what} is larger than the image ({height} x {width}); "
                "resize the images or lower crop_size"
            )
        if self._mean is not None and self._mean.shape != shape:
            raise DataError(
                f"{where}: the image has shape {shape} but the mean in {self._mean_file} "
                f"{self._mean.shape}; compute the mean from this database"
            )
        if len(self._mean_values) > 1 and len(self._mean_values) != channels:
            raise DataError(
                f"{self._where}: {len(self._mean_values)} mean_value for images of "
                f"{channels} channels; give one, or one per channel"
            )
        return (channels, *self.crop) if self.crop is not None else shape

    def __call__(
        self, images: Iterable[NDArray[Any]], samples: range, out: NDArray[np.float32]
    ) -> None:
        """Transform (channels, height, width) images that fit, one per sample, into `out`.

        Images are taken one by one, so that a decoded image is still in the cache.
        """
        draws = self._draws(samples).tolist()
        mean = self._mean_of(out.shape[1])
        described, last = np.zeros(1, IMAGE), None
        kernel = self._kernel(described, samples, mean, out) if library.available() else None
        for i, image in enumerate(images):
            if image is not last:  # decoded ones mostly have the same memory
                last, form = image, _describe(image)
                down, right = _spare(image.shape, out.shape, mean.shape)
            place = self._place(draws[i], down, right)
            if kernel is None:
                _with_numpy(image, place, mean, self.scale, out[i])
            else:
                described[0] = *form, *place, i
                kernel.run()

    def cut(
        self, images: Iterable[NDArray[Any] | Jpeg], samples: range, pixels: NDArray[np.uint8],
        places: NDArray[np.int32],
    ) -> None:  # fmt: skip
        """Only crop 8-bit images, into `pixels` (N, C, H, W); what is left to do is to mirror them
        and to apply `mean_for` and `scale`, and `places` (N, 3) says where each one was cut: top,
        left, and whether it is mirrored. One that is still encoded is only given its place. Raises
        TypeError for an image of another kind."""
        draws = self._draws(samples).tolist()
        _, _, height, width = pixels.shape
        for i, image in enumerate(images):
            if not isinstance(image, Jpeg) and image.dtype != np.uint8:
                raise TypeError("not 8-bit")
            down, right = image.shape[1] - height, image.shape[2] - width
            top, left, _ = places[i] = self._place(draws[i], down, right)
            if not isinstance(image, Jpeg):
                pixels[i] = image[:, top : top + height, left : left + width]

    def rows_seen(self, heights: NDArray[np.int64], samples: range) -> NDArray[np.int64]:
        """How many rows of each sample's image, from the top, have to be there for its crop."""
        if self.crop is None:
            return heights
        down = heights - self.crop[0]
        top, _, _ = self._place(self._draws(samples).astype(np.int64).T, down, down)
        seen: NDArray[np.int64] = top + self.crop[0]
        return seen

    def _place(self, draw: Any, down: Any, right: Any) -> tuple[Any, Any, Any]:
        """Where the crop begins in an image that is larger by `down` and `right`: row, column;
        and whether it is mirrored. Of one image, or of many in arrays."""
        coin, top, left = draw
        turned = coin & 1 if self._mirror else 0
        if self._train:
            return top * (down + 1) >> 32, left * (right + 1) >> 32, turned
        return down // 2, right // 2, turned

    def place(self, shape: tuple[int, ...], sample: int) -> tuple[int, int, bool]:
        """Where the crop of this sample's image begins (row, column), and whether it is
        mirrored."""
        _, height, width = shape
        high, wide = self.crop or (height, width)
        draw = self._draws(range(sample, sample + 1)).tolist()[0]
        top, left, turned = self._place(draw, height - high, width - wide)
        return top, left, bool(turned)

    def view(self, shape: tuple[int, ...], sample: int) -> tuple[Window, bool]:
        """The window that the crop cuts out of this sample's image, and whether it is mirrored."""
        _, height, width = shape
        high, wide = self.crop or (height, width)
        top, left, turned = self.place(shape, sample)
        window = (left / width, top / height, (left + wide) / width, (top + high) / height)
        return window, turned

    def _draws(self, samples: range) -> NDArray[np.uint32]:
        """(coin for mirroring, vertical, horizontal place) for each sample."""
        return random.bits_batch(self._key, 0, samples.start, len(samples), 3)

    def transform_pixels(
        self,
        addresses: NDArray[np.int64],
        shape: tuple[int, int, int],
        samples: range,
        out: NDArray[np.float32],
    ) -> None:
        """The same for contiguous uint8 images of one shape, given by address; needs the native
        kernels."""
        _, height, width = shape
        mean = self._mean_of(out.shape[1])
        images = np.zeros(len(addresses), IMAGE)
        images["address"], images["kind"] = addresses, BYTES
        images["channel_stride"], images["row_stride"] = height * width, width
        images["column_stride"] = 1
        draws = self._draws(samples).astype(np.int64).T
        images["top"], images["left"], images["mirror"] = self._place(
            draws, *_spare(shape, out.shape, mean.shape)
        )
        images["sample"] = np.arange(len(samples))
        self._kernel(images, samples, mean, out).run()

    def _kernel(
        self, images: NDArray[Any], samples: range, mean: NDArray[np.float32],
        out: NDArray[np.float32],
    ) -> Transform:  # fmt: skip
        """The kernel for as many images at a time as `images` describes."""
        batch, channels, height, width = out.shape
        if len(samples) > batch:
            raise BackendError(f"a batch of {batch} has no room for {len(samples)} samples")
        return Transform(
            threads=1, images=images.view(np.int64), mean=mean, out=out, count=len(images),
            samples=batch, channels=channels, height=height, width=width,
            mean_height=mean.shape[1], mean_width=mean.shape[2], scale=self.scale,
        )  # fmt: skip

    @property
    def mean_values(self) -> list[float]:
        """The mean of each channel, or one for all, or none."""
        return self._mean_values

    def mean_for(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The mean image, or for values one line (channels, 1, width of the output's shape)."""
        channels, _, width = shape[-3:]
        mean = self._mean_of(channels)
        return mean if self._mean is not None else np.repeat(mean, width, axis=2)

    def _mean_of(self, channels: int) -> NDArray[np.float32]:
        """The mean image, or for values (channels, 1, 1)."""
        if self._mean is not None:
            return self._mean
        mean = np.zeros((channels, 1, 1), np.float32)
        if self._mean_values:
            mean[:, 0, 0] = self._mean_values
        return mean


def _with_numpy(
    image: NDArray[Any],
    place: tuple[int, int, int],
    mean: NDArray[np.float32],
    scale: np.float32,
    out: NDArray[np.float32],
) -> None:
    (top, left, mirror), (_, height, width) = place, out.shape
    window = (slice(None), slice(top, top + height), slice(left, left + width))
    one = mean.shape[1:] == (1, 1)
    np.subtract(image[window], mean if one else mean[window], out=out, dtype=np.float32)
    out *= scale
    if mirror:
        out[...] = out[:, :, ::-1].copy()


def _spare(image: tuple[int, ...], out: tuple[int, ...], mean: tuple[int, ...]) -> tuple[int, int]:
    """By how much an image is larger than its crop; the mean has its shape, or is one a channel."""
    down, right = image[1] - out[2], image[2] - out[3]
    if image[0] != out[1] or min(down, right) < 0 or mean not in (image, (out[1], 1, 1)):
        raise BackendError(
            f"an image of shape {image} with a mean of shape {mean} has no crop of {out[1:]}"
        )
    return down, right


def _describe(image: NDArray[Any]) -> tuple[int, int, int, int, int]:
    """The first fields of IMAGE: address, strides in elements, and kind."""
    size = image.itemsize
    channel, row, column = image.strides
    address: int = image.__array_interface__["data"][0]
    if size == 1 and len(image) == 3 and (channel, column) == (-1, 4):
        return address - 2, 0, row // 4, 1, PACKED  # blue comes first and lies third
    return address, channel // size, row // size, column // size, FLOATS if size == 4 else BYTES
