"""The limit on the pixels of an image: a small file or a field may ask for billions of them."""

from __future__ import annotations

import os

from ..errors import DataError

PIXELS_VARIABLE = "PYCAFFE_FIRE_MAX_PIXELS"
_MAX_PIXELS = 1 << 25
_MOST_DIGITS = 18  # of a number of pixels


def max_pixels() -> int:
    """How many pixels an image may have; an environment variable sets it."""
    given = os.environ.get(PIXELS_VARIABLE, "")
    if given and not (given.isdecimal() and len(given) <= _MOST_DIGITS):
        raise DataError(f'{PIXELS_VARIABLE} is a number of pixels, got "{given[:100]}"')
    return int(given or _MAX_PIXELS)


def check_pixels(height: int, width: int, where: str) -> None:
    """Refuse an image of this size before it is decoded or made."""
    if height * width > max_pixels():
        raise DataError(
            f"{where}: has {width} x {height} pixels, more than {max_pixels():,}; if that is "
            f"right, set {PIXELS_VARIABLE}"
        )
