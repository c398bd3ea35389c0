"""JPEGs decoded on the device, by NVIDIA's nvImageCodec, on a stream of their own.

Its pixels are not quite the CPU's, so it only serves where it is asked for. Loaders' threads call
it: they hand over encoded images and go on, and events tell the stream that computes when the
pixels are there. Of the library's decoders the one on CUDA cores is taken, with colours
interpolated as libjpeg does: which images a device's hardware decoder gets depends on its load.
"""

from __future__ import annotations

import importlib
import io
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from ...errors import BackendError
from ..plans import DeviceRecords, ImageDecoder
from ..tensor import Array
from .launch import Kernels
from .streams import event_on, using

if TYPE_CHECKING:
    from . import CudaBackend

OLDEST = (0, 9)  # that leaves a gap in its list for an image that it refuses
INSTALL = 'pip install "nvidia-nvimgcodec-cu13[nvjpeg]" (or -cu12)'
OPTIONS = ":fancy_upsampling=1"
BATCHES = 2  # whose whole images may be kept
COLUMNS = 6  # of the table that cut_images reads


def load() -> Any:
    try:
        codec = importlib.import_module("nvidia.nvimgcodec")
    except Exception as error:  # a broken installation fails in many ways
        first = str(error).strip().splitlines()[:1]
        raise BackendError(
            f"--jpeg gpu: nvImageCodec cannot be loaded ({' '.join(first)}); {INSTALL}"
        ) from error
    if tuple(int(part) for part in re.findall(r"\d+", codec.__version__)[:2]) < OLDEST:
        raise BackendError(f"--jpeg gpu: nvImageCodec {codec.__version__} is too old; {INSTALL}")
    return codec


@dataclass(frozen=True)
class Decoded:
    """An image on the device, in rows of red, green and blue, or of grey."""

    image: Any
    address: int
    pitch: int  # bytes from row to row


class JpegDecoder(ImageDecoder):
    """One decoder for all loaders of a backend; a lock lets one thread at a time use it."""

    def __init__(self, backend: CudaBackend) -> None:
        self.backend, self._codec, self._lock = backend, load(), threading.Lock()
        self.stream = backend.xp.cuda.Stream(non_blocking=True)
        self.kernels = Kernels(backend.xp)  # a recorder of the backend's must not see ours
        self._kept: deque[tuple[Any, Any]] = deque()  # what is being read, and until when
        self.read: Any = None  # since when nobody reads any records that were given out so far
        kinds = self._codec.BackendKind
        allowed = [self._codec.Backend(kind) for kind in (kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU)]
        try:
            self._decoder = self._codec.Decoder(
                device_id=backend.device, backends=allowed, options=OPTIONS
            )
        except Exception as error:
            raise BackendError(f"--jpeg gpu: nvImageCodec does not start: {error}") from error
        self._try()

    @property
    def version(self) -> str:
        return str(self._codec.__version__)

    def _try(self) -> None:
        """Without nvJPEG it starts, and then refuses everything."""
        file, (width, height) = io.BytesIO(), (16, 8)
        Image.new("RGB", (width, height)).save(file, "JPEG")
        if self.decode([file.getvalue()], [(3, height, width)]) == [None]:
            raise BackendError(f"--jpeg gpu: nvImageCodec decodes no JPEG on this GPU; {INSTALL}")

    @contextmanager
    def queueing(self) -> Iterator[None]:
        """Work inside goes to our stream, whatever thread this is. The one that computes must not
        be touched: it may just be captured."""
        with self._lock:
            self.backend.use_device()
            with using(self.backend.xp, self.stream):
                yield

    def decode(self, jpegs: Sequence[bytes], shapes: Sequence[tuple[int, int, int]]) -> list[Any]:
        if not jpegs:
            return []
        streams = [self._code_stream(data) for data in jpegs]
        usable = [stream for stream in streams if stream is not None]
        spec = self._codec.ColorSpec
        params = self._codec.DecodeParams(
            apply_exif_orientation=False, color_spec=spec.GRAY if shapes[0][0] == 1 else spec.SRGB
        )
        with self.queueing():
            self._drop_images()
            try:
                images = iter(
                    self._decoder.decode(usable, params=params, cuda_stream=self.stream.ptr)
                )
            except Exception as error:
                raise BackendError(
                    f"nvImageCodec failed ({error}); leave out --jpeg gpu"
                ) from error
        made = [None if stream is None else next(images) for stream in streams]
        return [_described(image, shape) for image, shape in zip(made, shapes, strict=True)]

    def _code_stream(self, data: bytes) -> Any:
        try:
            return self._codec.CodeStream(data)
        except RuntimeError:  # it does not understand the header
            return None

    def keep(self, things: Sequence[Any], until: Any) -> None:
        """Freed earlier, their memory could be given away while we read it: the library does not
        say on which stream it frees images, and a pool of pinned memory waits for nobody."""
        self._kept.append((things, until))

    def finish(self) -> None:
        with self.queueing():
            self.stream.synchronize()
            self._kept.clear()

    def _drop_images(self) -> None:
        while self._kept and (len(self._kept) > BATCHES or self._kept[0][1].done):
            self._kept[0][1].synchronize()
            self._kept.popleft()

    def records(self, host: Array) -> CudaRecords:
        return CudaRecords(self, host)


def _described(image: Any, shape: tuple[int, int, int]) -> Decoded | None:
    if image is None:
        return None
    about, (channels, height, width) = image.__cuda_array_interface__, shape
    if tuple(about["shape"]) != (height, width, channels):
        return None  # not what its header told us
    strides = about.get("strides")
    return Decoded(image, about["data"][0], strides[0] if strides else width * channels)


class CudaRecords(DeviceRecords):
    """One loader buffer's copy on the device. `ready`: when it is there; `read`: since when nobody
    reads it."""

    def __init__(self, decoder: JpegDecoder, host: Array) -> None:
        backend = decoder.backend
        self._decoder, self._compute, self.host = decoder, backend.compute, host.view(np.int32)
        self._table: Array = backend.host_buffer((2 * COLUMNS * len(host),)).view(np.int64)
        with decoder.queueing():
            if decoder.read is not None:  # the pool may give memory that others read still
                decoder.stream.wait_event(decoder.read)
            self._records = backend.xp.empty(self.host.size, np.int32)
            self._device_table = backend.xp.empty(self._table.size, np.int64)
        self._ready: Any = None
        self._read: Any = None

    def wait(self) -> None:
        if self._ready is not None:
            self._ready.synchronize()

    def fill(self, decoded: Mapping[int, Any], shape: tuple[int, int, int]) -> None:
        table, words = self._table[: COLUMNS * len(decoded)], self.host.shape[1]
        table[:] = [
            number
            for row, image in decoded.items()
            for number in (row, image.address, image.pitch, *self.host[row, :3].tolist())
        ]
        decoder, stream = self._decoder, self._decoder.stream
        with decoder.queueing():
            if self._read is not None:
                stream.wait_event(self._read)
            if len(decoded) < len(self.host):
                self._records.set(self.host.reshape(-1), stream=stream)
            self._device_table[: table.size].set(table, stream=stream)
            decoder.kernels["cut_images"](
                words * len(decoded), self._device_table, words, *shape, self._records
            )
            self._ready = event_on(decoder.backend.xp, stream)
            images = [image.image for image in decoded.values()]
            decoder.keep([*images, self._table, self.host], self._ready)

    @contextmanager
    def reading(self) -> Iterator[Array]:
        """The records, for work that is queued on the backend's stream inside."""
        self._compute.wait_event(self._ready)
        yield self._records
        self._read = self._decoder.read = event_on(self._decoder.backend.xp, self._compute)
