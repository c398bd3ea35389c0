"""The pixel-changing options that the forks of Caffe added to transform_param.

In the order in which they are applied, before the crop: distort_param (colours), expand_param (a
larger canvas), AnnotatedData's batch_sampler (a window), then one of random_resize_param,
random_aspect_ratio_param and NVIDIA's random resize and stretch, then resize_param, noise_param,
and bgr2rgb. Boxes of objects move along with the pixels. Random choices depend on seed and sample
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import floor, sqrt
from typing import Any

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from ..backend import random
from ..errors import DataError
from ..schema.proto import BatchSampler, TransformationParameter
from . import colour, resize
from .batch_sampler import check_samplers, cut, sample_window
from .noise import add_noise, check_noise
from .objects import NO_OBJECTS, Scene, Window, through_window
from .pixel_limit import check_pixels
from .resize_param import apply_resize, check_resize, padded_window, resize_shorter

Pixels = NDArray[np.uint8]
Step = Callable[[Scene, "Dice"], Scene]

_STREAM = 1  # crop and mirror draw from step 0 of the layer's key
_NVIDIA = (
    "img_rand_resize_lower", "img_rand_resize_upper", "rand_resize_ratio_lower",
    "rand_resize_ratio_upper", "vertical_stretch_lower", "vertical_stretch_upper",
    "horizontal_stretch_lower", "horizontal_stretch_upper",
)  # fmt: skip
_METHODS = (resize.NEAREST, resize.LINEAR, resize.CUBIC, resize.AREA)  # by OpenCV's number


class Dice:
    """The random choices of one sample, in the order in which they are asked for."""

    _ENOUGH = 128  # nearly always

    def __init__(self, key: int, sample: int) -> None:
        self._words = self._endless(key, sample)

    def _endless(self, key: int, sample: int) -> Iterator[int]:
        done, count = 0, self._ENOUGH
        while True:
            yield from random.bits(key, _STREAM, sample, count)[done:].tolist()
            done, count = count, 4 * count

    def below(self, limit: int) -> int:
        """A whole number from 0 to limit - 1."""
        return next(self._words) * limit >> 32

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * next(self._words) * 2.0**-32

    def chance(self, probability: float) -> bool:
        return self.between(0.0, 1.0) < probability


class Augmenter:
    """What the forks' fields of one TransformationParameter ask for; false if nothing.

    `samplers` are those of a layer whose images have objects; other layers have none (None).
    """

    def __init__(
        self,
        param: TransformationParameter,
        crop: tuple[int, int] | None,
        key: int,
        where: str,
        samplers: Sequence[BatchSampler] | None = None,
    ) -> None:
        self._param = param
        self._crop = crop
        self._key = key
        self._where = where
        self._samplers = samplers
        self.emit = param.emit_constraint if _has(param, "emit_constraint") else None
        self._refuse()
        self._steps = self._make_steps()

    def __bool__(self) -> bool:
        return bool(self._steps)

    def __call__(self, image: NDArray[Any], sample: int, where: str) -> NDArray[Any]:
        """The changed image of one sample."""
        return self.change(Scene(image, NO_OBJECTS), sample, where).image

    def change(self, scene: Scene, sample: int, where: str) -> Scene:
        """The changed image of one sample and its objects."""
        if self._steps and scene.image.dtype != np.uint8:
            raise DataError(f"{where}: {self._where} resizes or colours, which needs 8-bit images")
        dice = Dice(self._key, sample)
        for step in self._steps:
            scene = step(scene, dice)
        return scene

    def _through(self, window: Window, image: Pixels, scene: Scene) -> Scene:
        """The scene of which only a window is left, as this image."""
        return Scene(image, through_window(scene.objects, window, self.emit))

    def _refuse(self) -> None:
        param, where = self._param, self._where
        _refuse_infinite(param, where)
        for field in ("flow", "pad"):
            if param.HasField(field) and getattr(param, field):
                raise DataError(f"{where}: {field} is not supported; remove it")
        if param.forward_packing:
            raise DataError(f"{where}: forward_packing must be NCHW")
        if self.emit is not None and self._samplers is None:
            raise DataError(
                f"{where}: emit_constraint is about boxes, which only AnnotatedData reads; remove "
                "it"
            )
        resizing = [
            f for f in ("random_resize_param", "random_aspect_ratio_param") if _has(param, f)
        ]
        resizing += ["random resize or stretch"] if self._nvidia() else []
        if len(resizing) > 1:
            raise DataError(f"{where}: give only one of {' and '.join(resizing)}")
        if _has(param, "expand_param") and param.mean_file:
            raise DataError(f"{where}: expand_param needs mean_value, not mean_file")

    def _nvidia(self) -> bool:
        return any(self._param.HasField(field) for field in _NVIDIA)

    def _make_steps(self) -> list[Step]:
        param, steps = self._param, list[Step]()
        if _has(param, "distort_param"):
            self._check_distortion()
            steps.append(_on_pixels(self._distort))
        if _has(param, "expand_param") and param.expand_param.max_expand_ratio > 1.01:
            steps.append(self._expand)
        if self._samplers:
            check_samplers(self._samplers)
            steps.append(self._sample)
        if _has(param, "random_resize_param"):
            self._check_crop("random_resize_param")
            steps.append(_on_pixels(self._random_resize))
        elif _has(param, "random_aspect_ratio_param"):
            self._check_crop("random_aspect_ratio_param")
            steps.append(self._random_aspect)
        elif self._nvidia():
            self._check_crop("random resize")
            steps.append(_on_pixels(self._random_stretch))
        if _has(param, "resize_param"):
            if not (param.resize_param.height and param.resize_param.width):
                raise DataError(f"{self._where}: resize_param needs height and width")
            check_resize(
                param.resize_param, f"{self._where} resize_param", self._samplers is not None
            )
            steps.append(self._resize)
        if _has(param, "noise_param"):
            check_noise(param.noise_param, f"{self._where} noise_param")
            steps.append(_on_pixels(self._noise))
        if param.bgr2rgb:
            steps.append(_on_pixels(lambda image, dice: image[::-1]))
        return steps

    def _check_crop(self, field: str) -> None:
        param = self._param
        if self._crop is None:
            raise DataError(f"{self._where}: {field} needs crop_size, or every size would differ")
        if field in ("random_resize_param", "random_aspect_ratio_param"):
            check_resize(getattr(param, field).resize_param, f"{self._where} {field}")
        low, high = param.img_rand_resize_lower, param.img_rand_resize_upper
        if bool(low) != bool(high) or low > high:
            raise DataError(
                f"{self._where}: img_rand_resize_lower and _upper must be given together, the "
                f"lower first, got {low} and {high}"
            )

    # Colours.

    def _check_distortion(self) -> None:
        p = self._param.distort_param
        for name in ("contrast", "saturation"):
            low, high = getattr(p, f"{name}_lower"), getattr(p, f"{name}_upper")
            if getattr(p, f"{name}_prob") > 0 and not 0 <= low <= high:
                raise DataError(
                    f"{self._where}: distort_param needs 0 <= {name}_lower <= {name}_upper, "
                    f"got {low:g} and {high:g}"
                )

    def _distort(self, image: Pixels, dice: Dice) -> Pixels:
        p = self._param.distort_param
        late = not dice.chance(0.5)  # contrast before or after the changes of colour
        if dice.chance(p.brightness_prob):
            image = colour.linear(image, 1.0, dice.between(-p.brightness_delta, p.brightness_delta))
        contrast = dice.between(p.contrast_lower, p.contrast_upper)
        contrast = contrast if dice.chance(p.contrast_prob) else 1.0
        if contrast != 1.0 and not late:
            image = colour.linear(image, contrast, 0.0)
        if len(image) == 3:
            if dice.chance(p.saturation_prob):
                factor = dice.between(p.saturation_lower, p.saturation_upper)
                image = colour.adjust_saturation(image, factor)
            if dice.chance(p.hue_prob):
                image = colour.adjust_hue(image, dice.between(-p.hue_delta, p.hue_delta))
        if contrast != 1.0 and late:
            image = colour.linear(image, contrast, 0.0)
        if len(image) == 3 and dice.chance(p.random_order_prob):
            order = [0, 1, 2]
            image = image[[order.pop(dice.below(n)) for n in (3, 2, 1)]]
        return image

    # Sizes.

    def _expand(self, scene: Scene, dice: Dice) -> Scene:
        p, image = self._param.expand_param, scene.image
        if not dice.chance(p.prob):
            return scene
        ratio = dice.between(1.0, p.max_expand_ratio)
        channels, height, width = image.shape
        size = (int(height * ratio), int(width * ratio))
        check_pixels(*size, "transform_param: an image enlarged by expand_param")
        canvas = np.empty((channels, *size), np.uint8)
        fill = list(self._param.mean_value) or [0.0]
        canvas[...] = np.rint(np.array(fill)).astype(np.uint8).reshape(-1, 1, 1)
        top = dice.below(canvas.shape[1] - height + 1)
        left = dice.below(canvas.shape[2] - width + 1)
        canvas[:, top : top + height, left : left + width] = image
        right, down = canvas.shape[2] - left, canvas.shape[1] - top
        window = (-left / width, -top / height, right / width, down / height)
        return self._through(window, canvas, scene)

    def _sample(self, scene: Scene, dice: Dice) -> Scene:
        assert self._samplers is not None
        window = sample_window(scene, self._samplers, dice)
        return scene if window is None else self._through(window, cut(scene, window), scene)

    def _resize(self, scene: Scene, dice: Dice) -> Scene:
        p, size = self._param.resize_param, (scene.image.shape[1], scene.image.shape[2])
        return self._through(padded_window(p, *size), apply_resize(scene.image, p, dice), scene)

    def _noise(self, image: Pixels, dice: Dice) -> Pixels:
        return add_noise(image, self._param.noise_param, dice)

    def _random_resize(self, image: Pixels, dice: Dice) -> Pixels:
        p = self._param.random_resize_param
        low = p.min_size or min(image.shape[1:])
        high = max(low, p.max_size or max(image.shape[1:]))
        return resize_shorter(image, low + dice.below(high - low + 1), p.resize_param, dice)

    def _random_aspect(self, scene: Scene, dice: Dice) -> Scene:
        """A random part of the image, stretched to the crop."""
        p, crop = self._param.random_aspect_ratio_param, self._crop or (1, 1)
        image, (_, height, width) = scene.image, scene.image.shape
        change = p.aspect_ratio_change or 1.0
        for _ in range(min(p.max_attempt, 20)):
            side = sqrt(dice.between(p.min_area_ratio, p.max_area_ratio) * height * width)
            aspect = dice.between(min(change, 1 / change), max(change, 1 / change))
            new = (int(side * aspect), int(side / aspect))
            h, w = new[::-1] if dice.chance(0.5) else new
            if 0 < h <= height and 0 < w <= width:
                top, left = dice.below(height - h + 1), dice.below(width - w + 1)
                part = image[:, top : top + h, left : left + w]
                window = (left / width, top / height, (left + w) / width, (top + h) / height)
                part = apply_resize(part, p.resize_param, dice, crop)
                return self._through(window, part, scene)
        return Scene(resize_shorter(image, max(crop), p.resize_param, dice), scene.objects)

    def _random_stretch(self, image: Pixels, dice: Dice) -> Pixels:
        """NVIDIA's: a random length of the shorter side, aspect ratio and stretch."""
        p = self._param
        _, height, width = image.shape
        shorter = min(height, width)
        if p.img_rand_resize_upper:
            span = p.img_rand_resize_upper - p.img_rand_resize_lower + 1
            shorter = p.img_rand_resize_lower + dice.below(span)
        scale = shorter / min(height, width)
        h, w = scale * height, scale * width
        if p.rand_resize_ratio_lower >= 1 and p.rand_resize_ratio_upper > 1:
            ratio = dice.between(p.rand_resize_ratio_lower, p.rand_resize_ratio_upper)
            wide = w > h or (w == h and dice.chance(0.5))
            h, w = (h, h * ratio) if wide else (w * ratio, w)
        if p.vertical_stretch_lower > 0 and p.vertical_stretch_upper > 0:
            h *= dice.between(p.vertical_stretch_lower, p.vertical_stretch_upper)
        if p.horizontal_stretch_lower > 0 and p.horizontal_stretch_upper > 0:
            w *= dice.between(p.horizontal_stretch_lower, p.horizontal_stretch_upper)
        least = self._crop or (1, 1)
        new_height, new_width = max(least[0], floor(h + 0.5)), max(least[1], floor(w + 0.5))
        if not p.allow_upscale:
            new_height, new_width = min(new_height, height), min(new_width, width)
        shrinks = new_height <= height and new_width <= width
        method = p.interpolation_algo_down if shrinks else p.interpolation_algo_up
        return resize.resize(image, new_height, new_width, _METHODS[method])


def _on_pixels(change: Callable[[Pixels, Dice], Pixels]) -> Step:
    """A step that leaves every object at its place."""
    return lambda scene, dice: Scene(change(scene.image, dice), scene.objects)


def _has(param: Message, field: str) -> bool:
    return bool(param.HasField(field))


def _refuse_infinite(param: Message, where: str) -> None:
    """Raise DataError if a number of the message, or of one inside it, is infinite or NaN."""
    for field, value in param.ListFields():
        if isinstance(value, Message):
            _refuse_infinite(value, f"{where} {field.name}")
        elif field.cpp_type == field.CPPTYPE_FLOAT and not np.isfinite(value).all():
            raise DataError(f"{where}: {field.name} must be finite, got {value}")
