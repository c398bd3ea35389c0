"""Images to arrays and back, with the pixels that OpenCV gives Caffe.

Every image is a (channels, height, width) view in BGR order, whatever its memory looks like.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from ..errors import DataError
from .arrow import shared_pixels
from .pixel_limit import PIXELS_VARIABLE, check_pixels, max_pixels
from .resize import resize

# What each of Pillow's 8-bit modes becomes; colours stay colours and alpha stays, as in OpenCV.
_MODES = {
    **dict.fromkeys(("RGB", "P", "CMYK", "YCbCr"), "RGB"),
    **dict.fromkeys(("RGBA", "LA", "PA"), "RGBA"),
    **dict.fromkeys(("L", "1"), "L"),
}
_GRAY = (3737, 19234, 9797)  # shares of blue, green and red in 1/32768, cut off as libpng does
_ENCODERS = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "bmp": "BMP", "tiff": "TIFF"}
_JPEG_QUALITY = 95  # OpenCV's
_ORIENTATION, _ON_ITS_SIDE = 0x0112, range(5, 9)  # an entry of EXIF, and those that swap the sides
_APP14, _JPEG_END, _PADDING = 0xEE, b"\xff\xd9", 64  # markers; how far from the end the last is
# After segments of other kinds, which may have no size, libjpeg could find a frame elsewhere, and
# write past the image made for ours.
_SEGMENTS = frozenset((0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)))
# What OpenCV reads, and GIF. Parsers of rare formats want memory as a damaged header says.
FORMATS = (
    "JPEG", "PNG", "BMP", "DIB", "TIFF", "WEBP", "PPM", "JPEG2000", "SUN", "GIF",
)  # fmt: skip


# In the environment: decode JPEGs at a fraction of their size where they are made smaller anyway.
FAST_JPEG = "PYCAFFE_FIRE_FAST_JPEG"


def decode_image(
    data: bytes | memoryview,
    where: str,
    force_color: bool = False,
    force_gray: bool = False,
    reuse: bool = False,
) -> NDArray[np.uint8]:
    """Decode PNG, JPEG, ...; as many channels as the image has, unless one is forced.

    With `reuse` the result holds only until the same thread decodes its next image.
    """
    image = _decode_jpeg(data, reuse) if not force_gray else None
    if image is not None:
        return image
    return _view(_decode(io.BytesIO(data), where, force_color, force_gray, upright=False))


def read_image(path: str, color: bool = True, data: bytes | None = None) -> NDArray[np.uint8]:
    """An image file in colour (3 channels) or grey, turned upright if its EXIF entry says so.

    `data` are the file's bytes, for a caller that has read them already.
    """
    file = io.BytesIO(read_bytes(path) if data is None else data)
    return _view(_decode(file, path, color, not color, upright=True))


Size = Callable[[int, int], tuple[int, int]]


def read_resized(path: str, color: bool, size: Size) -> NDArray[np.uint8]:
    """`read_image`, resized to what `size` makes of its height and width.

    With FAST_JPEG a JPEG that becomes less than half as high and wide is decoded at a half, a
    quarter or an eighth of its size, without its finest frequencies: several times as fast, and the
    pixels differ a little from Caffe's.
    """
    target = (0, 0)

    def reduce(image: Image.Image) -> tuple[int, int]:
        nonlocal target
        width, height = image.size
        turned = image.getexif().get(_ORIENTATION, 1) in _ON_ITS_SIDE
        target = size(width, height) if turned else size(height, width)
        least = target if turned else target[::-1]
        return least if os.environ.get(FAST_JPEG) else image.size

    file = io.BytesIO(read_bytes(path))
    return resize(_view(_decode(file, path, color, not color, True, reduce)), *target)


def read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: the image cannot be read: {reason}") from None


def encode_image(
    image: NDArray[np.uint8], kind: str, where: str, quality: int = _JPEG_QUALITY
) -> bytes:
    """The image as a file of the given kind ("jpg", "png", ...); the quality is a JPEG's."""
    if kind.lower() not in _ENCODERS:
        raise DataError(
            f'{where}: images cannot be encoded as "{kind}"; known: {", ".join(_ENCODERS)}'
        )
    out = io.BytesIO()
    pixels = image[0] if len(image) == 1 else np.ascontiguousarray(image[::-1].transpose(1, 2, 0))
    Image.fromarray(pixels).save(out, _ENCODERS[kind.lower()], quality=quality)
    return out.getvalue()


def _decode(
    file: Any, where: str, color: bool, gray: bool, upright: bool,
    reduce: Callable[[Image.Image], tuple[int, int]] = lambda image: image.size,
) -> Image.Image:  # fmt: skip
    """`reduce` gives the width and height that will do, before the image is decoded."""
    try:
        with Image.open(file, formats=FORMATS) as image:
            check_pixels(image.height, image.width, where)
            least = reduce(image)
            kind = _MODES.get(image.mode)
            if _is_deep(image) and (color or gray):
                upper = _upper_bytes(image)
                return upper if gray else upper.convert("RGB")
            if kind is None:
                raise DataError(f"{where}: images of mode {image.mode} are not 8-bit; convert it")
            if gray:
                image.draft("L", least)  # the brightness that a JPEG stores anyway
            elif color:
                kind = "RGB"
                if least != image.size:
                    image.draft(None, least)
            image.load()
            turned = ImageOps.exif_transpose(image) if upright and "exif" in image.info else image
            if gray and turned.mode != "L":
                return _gray(turned.convert("RGB"))
            return turned if turned.mode == kind else turned.convert("L" if gray else kind)
    except DataError:
        raise
    except Image.DecompressionBombError:
        raise DataError(
            f"{where}: has far more than {max_pixels():,} pixels; if that is right, set "
            f"{PIXELS_VARIABLE} and Pillow's MAX_IMAGE_PIXELS"
        ) from None
    except Exception as error:  # decoders of rare formats raise whatever their parsers do
        if isinstance(error, MemoryError):
            raise
        text = str(error).replace(f" {file!r}", "")
        raise DataError(f"{where}: the image cannot be decoded: {text}") from None


def _is_deep(image: Image.Image) -> bool:
    """Grey in 16 bits; older Pillows read such a PNG as 32-bit numbers."""
    return image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PNG")


def _upper_bytes(image: Image.Image) -> Image.Image:
    """What OpenCV keeps of 16 bits where it is told the kind of image it should read."""
    return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))


def _gray(image: Image.Image) -> Image.Image:
    blue, green, red = (plane.astype(np.int32) for plane in _view(image))
    mixed = (_GRAY[0] * blue + _GRAY[1] * green + _GRAY[2] * red) >> 15
    return Image.fromarray(mixed.astype(np.uint8))


def _view(image: Image.Image) -> NDArray[np.uint8]:
    width, height = image.size
    if image.mode == "L":
        return np.frombuffer(image.tobytes(), np.uint8).reshape(1, height, width)
    pixels = shared_pixels(image)
    if pixels is None:  # Pillow keeps four bytes per pixel: taking all four is a plain copy
        raw = image.tobytes("raw", "RGBX" if image.mode == "RGB" else "RGBA")
        pixels = np.frombuffer(raw, np.uint8)
    pixels = pixels.reshape(height, width, 4)
    backwards = pixels[:, :, 2::-1] if image.mode == "RGB" else pixels[:, :, (2, 1, 0, 3)]
    planes: NDArray[np.uint8] = backwards.transpose(2, 0, 1)
    return planes


class _Canvas:
    """An image to decode into again and again, while its memory is in the cache.

    `pixels` are the array that `_view` gives of it; None where Pillow does not share its memory.
    """

    def __init__(self, width: int, height: int) -> None:
        self.size = width, height
        self._image = Image.new("RGB", self.size)
        shared = shared_pixels(self._image)
        self.pixels = None if shared is None else _view(self._image)
        # The last pixel's fourth byte in each row: the decoder makes it 255.
        self._written = None if shared is None else shared[4 * width - 1 :: 4 * width]

    def decode(self, data: bytes | memoryview, rows: int) -> bool:
        """Whether `data`, a colour JPEG of this size, was decoded; of fewer rows than there are
        it is only said whether they were."""
        width, height = self.size
        decoder = Image._getdecoder("RGB", "jpeg", ("RGB", ""))
        decoder.setimage(self._image.im, (0, 0, width, rows))
        if rows == height or self._written is None:
            return bool(decoder.decode(data) == (-1, 0))
        self._written[rows - 1] = 0
        decoder.decode(data)  # complains that there are more
        return bool(self._written[rows - 1])


class _Canvases(threading.local):
    """The canvas that a thread used last."""

    last: _Canvas | None = None


_canvases = _Canvases()


def decode_rows(
    data: bytes | memoryview, width: int, height: int, rows: int
) -> NDArray[np.uint8] | None:
    """A colour JPEG of this size, which holds until the same thread decodes its next; only the
    first `rows` of its rows are decoded. None if that cannot be done."""
    canvas = _canvases.last
    if canvas is None or canvas.size != (width, height):
        canvas = _canvases.last = _Canvas(width, height)
    return canvas.pixels if canvas.pixels is not None and canvas.decode(data, rows) else None


def _decode_jpeg(data: bytes | memoryview, reuse: bool) -> NDArray[np.uint8] | None:
    """A plain colour JPEG straight through the decoder, without looking at the rest of the file.

    None for everything that needs more care, broken files included: the general way then finds
    the words. This spares the interpreter a fifth of the time a small image takes.
    """
    frame = _jpeg_frame(data)
    if frame is None:
        return None
    width, height, components, _ = frame
    if components != 3 or width * height > max_pixels():
        return None
    pixels = decode_rows(data, width, height, height) if reuse else None
    if pixels is not None:
        return pixels
    image = Image.new("RGB", (width, height))
    try:
        image.frombytes(data, "jpeg", "RGB", "")
    except (OSError, ValueError):
        return None
    return _view(image)


class _Frame(NamedTuple):
    """What an 8-bit JPEG is, as its header says."""

    width: int
    height: int
    components: int
    as_rgb: bool  # colours are not stored as brightness and two differences


def _jpeg_frame(data: bytes | memoryview) -> _Frame | None:
    if bytes(data[:3]) != b"\xff\xd8\xff":
        return None
    at, as_rgb = 2, False
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        size = data[at + 2] << 8 | data[at + 3]
        if 0xC0 <= marker <= 0xC2:  # the frames that libjpeg decodes: baseline and progressive
            height = data[at + 5] << 8 | data[at + 6]
            width = data[at + 7] << 8 | data[at + 8]
            usable = data[at + 4] == 8 and width and height
            as_rgb |= bytes(data[at + 10 : at + 19 : 3]) == b"RGB"  # the components' own names
            return _Frame(width, height, data[at + 9], as_rgb) if usable else None
        if marker not in _SEGMENTS:
            return None
        if marker == _APP14 and bytes(data[at + 4 : at + 9]) == b"Adobe" and at + 15 < len(data):
            as_rgb |= data[at + 15] == 0
        at += 2 + size
    return None


class Jpeg(NamedTuple):
    """An image that is still encoded, for a device that decodes it."""

    data: bytes
    label: int
    shape: tuple[int, int, int]  # channels, height and width that it will have


def plain_jpeg(
    data: bytes | memoryview, label: int, color: bool, gray: bool, upright: bool = False
) -> Jpeg | None:
    """A JPEG of one or three components, as far as its header and its end tell; None for anything
    that `decode_image` (or with `upright` `read_image`) should look at with more care."""
    frame = _jpeg_frame(data)
    if frame is None or frame.components not in (1, 3) or frame.as_rgb:
        return None
    if frame.width * frame.height > max_pixels() or _JPEG_END not in bytes(data[-_PADDING:]):
        return None
    if upright and _is_turned(data):
        return None
    channels = 1 if gray else 3 if color else frame.components
    return Jpeg(bytes(data), label, (channels, frame.height, frame.width))


def _is_turned(data: bytes | memoryview) -> bool:
    if b"Exif" not in bytes(data[: 1 << 16]):
        return False
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
            return bool(image.getexif().get(_ORIENTATION, 1) != 1)
    except Exception:  # whatever the parser of a damaged entry raises
        return True


def is_file_of_kind(path: str, kind: str) -> bool:
    """Can the file's own bytes be stored as this kind? (By its name, as Caffe decides it.)"""
    ending = os.path.basename(path).rpartition(".")[2].lower()
    return ending == kind or (ending, kind) == ("jpeg", "jpg")
