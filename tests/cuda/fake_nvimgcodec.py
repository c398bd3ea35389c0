"""A stand-in for nvidia.nvimgcodec 0.9: what `backend/cuda/jpeg.py` calls, by Pillow.

Its rules, and where they are written down in the real wheel (tests/cuda/test_jpeg.py compares the
names and arguments, and what CodeStream refuses):
- Decoder(device_id, max_num_cpu_threads, backends, options): the docstring of Decoder.__init__;
  only backends that are listed decode, so that without CPU_ONLY nothing but JPEG is.
- CodeStream(bytes) raises RuntimeError for what is no image: seen.
- decode(streams, params=, cuda_stream=) returns a list with None for each image that cannot be
  decoded: the docstring of Decoder.decode.
- The host's part is done when decode returns, the device's may not be; it is ordered with
  cuda_stream, before and after: nvimgcodec.h at nvimgcodecFutureWaitForAll and skip_pre_sync.
- An image is (height, width, channels) of bytes, red first, or one channel with ColorSpec.GRAY; its
  rows may be padded: strides of __cuda_array_interface__.
- Its memory is the library's, and is freed with the object, at once or on a stream that nobody
  promises: the docstring of Image.cuda calls it detached from the stream.

Pixels are Pillow's with their lowest bit turned over, so that nobody takes them for the CPU's.
"""

from __future__ import annotations

import ctypes
import enum
import io
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image as Pillow

from tests.cuda.fake_cupy.races import checker

__version__ = "0.9.0"
PADDING = 3  # bytes after every row
FREED = 0xCD

ColorSpec = enum.Enum("ColorSpec", "UNCHANGED SYCC SRGB GRAY")
BackendKind = enum.Enum("BackendKind", "CPU_ONLY GPU_ONLY HYBRID_CPU_GPU HW_GPU_ONLY")


class Backend:
    def __init__(self, backend_kind: BackendKind, load_hint: float = 1.0) -> None:
        self.backend_kind = backend_kind


class DecodeParams:
    def __init__(
        self, apply_exif_orientation: bool = True, color_spec: ColorSpec = ColorSpec.SRGB,
        allow_any_depth: bool = False,
    ) -> None:  # fmt: skip
        self.apply_exif_orientation, self.color_spec = apply_exif_orientation, color_spec


class CodeStream:
    def __init__(self, bytes: bytes) -> None:  # noqa: A002
        try:
            with Pillow.open(io.BytesIO(bytes)) as image:
                self.codec_name = str(image.format).lower()
                self.mode, self.progressive = image.mode, "progressive" in image.info
        except Exception:
            raise RuntimeError("Failed to get image info") from None
        self.data = bytes


def pixels_of(data: bytes, channels: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """What this stand-in makes of a JPEG: (height, width, channels)."""
    with Pillow.open(io.BytesIO(data)) as image:
        if channels == 1:
            image.draft("L", image.size)
        mode = "L" if channels == 1 else "RGB"
        pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    return np.array(pixels.reshape(*pixels.shape[:2], channels) ^ 1)


class Image:
    """Decoded pixels, written by work of a stream."""

    freed_too_early: list[str] = []  # the host had not waited for the kernel that reads it
    graves: list[Any] = []  # memory of images that are gone: copies into it may be late

    def __init__(self, xp: Any, pixels: np.ndarray[Any, np.dtype[np.uint8]], stream: int) -> None:
        height, self._row, (width, channels) = (
            len(pixels),
            pixels[0].size + PADDING,
            pixels.shape[1:],
        )
        padded = np.zeros((height, self._row), np.uint8)
        padded[:, : width * channels] = pixels.reshape(height, -1)
        self._padded = padded  # a copy from it may be late
        self._stream = stream
        self._memory = xp.empty(padded.size, np.uint8)
        external = getattr(xp.cuda, "ExternalStream", _Pointer)
        self._memory.set(padded.reshape(-1), stream=external(stream))
        self._queued = len(checker.work.get(stream, ()))
        self.shape, self.strides = (height, width, channels), (self._row, channels, 1)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "strides": self.strides, "typestr": "|u1", "version": 3,
            "data": (self._memory.data.ptr, False), "stream": self._stream,
        }  # fmt: skip

    def __del__(self) -> None:
        later = checker.work.get(self._stream, [])[self._queued :]
        if "kernel cut_images" in later:
            tick = self._queued + later.index("kernel cut_images") + 1
            if checker._host.get(self._stream, 0) < tick:
                Image.freed_too_early.append(f"after {later}")
        ctypes.memset(self._memory.data.ptr, FREED, self._memory.size)
        Image.graves.append((self._memory, self._padded))


class _Pointer(types.SimpleNamespace):
    def __init__(self, ptr: int) -> None:
        super().__init__(ptr=ptr)


class FakeNvimgcodec:
    """The module; `refuses` are modes or "progressive"."""

    __version__ = __version__
    ColorSpec, BackendKind, Backend, DecodeParams = ColorSpec, BackendKind, Backend, DecodeParams
    CodeStream, Image = CodeStream, Image

    def __init__(self, xp: Any) -> None:
        self.refuses: set[str] = {"CMYK", "progressive"}
        self.decoded = 0
        self.batches: list[int] = []
        module = self

        class Decoder:
            def __init__(
                self, device_id: int = -1, max_num_cpu_threads: int = 0,
                backends: Sequence[Backend] | None = None, options: str = "",
            ) -> None:  # fmt: skip
                kinds = [backend.backend_kind for backend in backends or ()]
                assert device_id >= 0 and BackendKind.CPU_ONLY not in kinds
                assert BackendKind.HYBRID_CPU_GPU in kinds
                assert options.startswith(":") and "=" in options

            def decode(
                self, srcs: Sequence[CodeStream], *, params: DecodeParams, cuda_stream: int = 0
            ) -> list[Image | None]:
                assert cuda_stream, "the NULL stream"
                module.batches.append(len(srcs))
                return [_decoded(module, xp, src, params, cuda_stream) for src in srcs]

        self.Decoder = Decoder


def _decoded(
    library: FakeNvimgcodec, xp: Any, src: CodeStream, params: DecodeParams, stream: int
) -> Image | None:
    refused = src.codec_name != "jpeg" or src.mode in library.refuses
    if refused or (src.progressive and "progressive" in library.refuses):
        return None
    try:
        pixels = pixels_of(src.data, 1 if params.color_spec is ColorSpec.GRAY else 3)
    except OSError:
        return None
    library.decoded += 1
    return Image(xp, pixels, stream)
