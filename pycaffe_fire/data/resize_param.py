"""Intel's and SSD's resize_param: warp, fit the smaller side, or fit the larger side and pad."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..errors import DataError
from ..schema.proto import ResizeParameter
from . import resize
from .objects import Window
from .pixel_limit import check_pixels

Pixels = NDArray[np.uint8]

_MODES = schema.ResizeParameter
_METHODS = {
    _MODES.LINEAR: resize.LINEAR,
    _MODES.AREA: resize.AREA,
    _MODES.NEAREST: resize.NEAREST,
    _MODES.CUBIC: resize.CUBIC,
    _MODES.LANCZOS4: resize.LANCZOS,
}
_PADS = {_MODES.MIRRORED: "reflect", _MODES.REPEAT_NEAREST: "edge"}


class Chooser(Protocol):
    def below(self, limit: int) -> int:
        """A random number from 0 to limit - 1."""


def check_resize(param: ResizeParameter, where: str, boxes: bool = False) -> None:
    """`boxes`: there are objects, to whose boxes height_scale and width_scale apply."""
    if (param.height_scale or param.width_scale) and not boxes:
        raise DataError(
            f"{where}: height_scale and width_scale are about boxes, which only AnnotatedData "
            "reads; remove them"
        )
    if bool(param.height_scale) != bool(param.width_scale):
        raise DataError(f"{where}: give both height_scale and width_scale, or none")


def padded_window(param: ResizeParameter, height: int, width: int) -> Window:
    """What the resized image shows of one of this size: all of it, and perhaps padding."""
    if param.resize_mode != _MODES.FIT_LARGE_SIZE_AND_PAD:
        return (0.0, 0.0, 1.0, 1.0)
    # The larger of the two scales is what the padded side would be, in parts of what it is.
    down, right = height / param.height, width / param.width
    below, beside = max(1.0, right / down) - 1, max(1.0, down / right) - 1
    return (-beside / 2, -below / 2, 1 + beside / 2, 1 + below / 2)


def apply_resize(
    image: Pixels, param: ResizeParameter, dice: Chooser, size: tuple[int, int] | None = None
) -> Pixels:
    """`image` at the size (height, width) that the parameter, or `size`, asks for."""
    height, width = size or (param.height, param.width)
    check_pixels(height, width, "resize_param: a resized image")
    method = resize.LINEAR
    if param.interp_mode:
        method = _METHODS[param.interp_mode[dice.below(len(param.interp_mode))]]
    if param.resize_mode == _MODES.WARP:
        return resize.resize(image, height, width, method)
    aspect = np.float32(image.shape[2]) / np.float32(image.shape[1])
    wider = aspect > np.float32(width) / np.float32(height)
    if wider == (param.resize_mode == _MODES.FIT_LARGE_SIZE_AND_PAD):
        fitted = (max(1, int(np.float32(width) / aspect)), width)
    else:
        fitted = (height, max(1, int(aspect * np.float32(height))))
    image = resize.resize(image, *fitted, method)
    if param.resize_mode == _MODES.FIT_LARGE_SIZE_AND_PAD:
        return _pad(image, height - fitted[0], width - fitted[1], param)
    return image


def _pad(image: Pixels, down: int, right: int, param: ResizeParameter) -> Pixels:
    """`image` in the middle of a canvas larger by `down` rows and `right` columns."""
    around = ((0, 0), (down // 2, down - down // 2), (right // 2, right - right // 2))
    if param.pad_mode in _PADS:
        mode: Any = _PADS[param.pad_mode]
        return np.pad(image, around, mode=mode)
    values = list(param.pad_value) or [0.0]
    if len(values) not in (1, len(image)):
        raise DataError(
            f"resize_param: {len(values)} pad_value for images of {len(image)} channels; "
            "give one, or one per channel"
        )
    out = np.pad(image, around)
    border = np.ones(out.shape[1:], bool)
    border[around[1][0] :, around[2][0] :][: image.shape[1], : image.shape[2]] = False
    fill = np.clip(np.rint(np.array(values)), 0, 255).astype(np.uint8)
    out[:, border] = np.broadcast_to(fill.reshape(-1, 1), (len(image), 1))
    return out


def resize_shorter(image: Pixels, shorter: int, param: ResizeParameter, dice: Chooser) -> Pixels:
    """The shorter side at the given length, the other in proportion."""
    _, height, width = image.shape
    if height < width:
        size = (shorter, int(np.float32(width) / np.float32(height) * shorter))
    else:
        size = (int(np.float32(height) / np.float32(width) * shorter), shorter)
    return apply_resize(image, param, dice, size)
