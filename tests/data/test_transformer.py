"""transform_param against a plain reading of Caffe's definition, with kernels and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend import random
from pycaffe_fire.backend.cpu import library
from pycaffe_fire.data.kernels import BYTES, FLOATS, IMAGE, PACKED, Transform
from pycaffe_fire.data.transformer import Transformer
from pycaffe_fire.errors import BackendError, DataError
from tests.random_numbers import RNG

KEY = random.key(5, "data")


def write_mean(path: Path, shape: Any) -> Any:
    mean = RNG.uniform(50, 200, shape).astype(np.float32)
    blob = schema.BlobProto(num=1, channels=shape[0], height=shape[1], width=shape[2])
    blob.data.extend(mean.ravel().tolist())
    path.write_bytes(blob.SerializeToString())
    return mean


def packed(image: Any) -> Any:
    """The same blue, green and red values, from memory with red first and a fourth byte."""
    pixels = np.zeros((*image.shape[1:], 4), np.uint8)
    pixels[..., 2::-1] = image.transpose(1, 2, 0)
    return pixels[..., 2::-1].transpose(2, 0, 1)


def run(transformer: Any, images: Any, first: Any, shape: Any) -> Any:
    out = np.full((len(images), *shape), np.nan, np.float32)
    transformer(images, range(first, first + len(images)), out)
    return out


@pytest.fixture(params=[*(library.supported() if library.available() else ()), "numpy"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every instruction set that this machine executes, and NumPy."""
    if request.param == "numpy":
        monkeypatch.setattr(library, "available", lambda: False)
        yield
    else:
        with library.using(request.param):
            yield


@pytest.mark.parametrize("kind", ["uint8", "float32", "interleaved", "packed"])
@pytest.mark.parametrize("mean", ["none", "values", "file"])
def test_definition(
    tmp_path: Path, transform_param: Any, kernels: None, kind: str, mean: str
) -> None:
    images = RNG.integers(0, 256, (8, 3, 11, 14), dtype=np.uint8)
    fields: dict[str, Any] = {"crop_size": 7, "mirror": True, "scale": 0.017}
    subtract = np.zeros((3, 11, 14), np.float32)
    if mean == "values":
        fields["mean_value"] = [104, 117, 123]
        subtract += np.array([104, 117, 123], np.float32)[:, None, None]
    elif mean == "file":
        subtract = write_mean(tmp_path / "mean", (3, 11, 14))
        fields["mean_file"] = str(tmp_path / "mean")
    given = list(images)
    if kind == "float32":
        given = [image.astype(np.float32) for image in images]
    elif kind == "interleaved":  # as decoded images come: backwards channels, pixel by pixel
        given = [i[::-1].transpose(1, 2, 0).copy()[:, :, ::-1].transpose(2, 0, 1) for i in images]
    elif kind == "packed":  # as the fastest decoder leaves them, four bytes for each pixel
        given = [packed(image) for image in images]
    got = run(Transformer(transform_param(**fields), True, KEY), given, 40, (3, 7, 7))
    seen = set()
    for i, image in enumerate(images):
        coin, down, right = (int(w) for w in random.bits(KEY, 0, 40 + i, 3))
        y, x = down * 5 >> 32, right * 8 >> 32
        full = (image.astype(np.float32) - subtract) * np.float32(0.017)
        expected = full[:, y : y + 7, x : x + 7]
        assert np.array_equal(got[i], expected[:, :, ::-1] if coin & 1 else expected)
        seen.add((y, x, coin & 1))
    assert len(seen) > 4


def test_test_phase_takes_the_middle(transform_param: Any) -> None:
    images = RNG.integers(0, 256, (2, 1, 10, 13), dtype=np.uint8)
    got = run(Transformer(transform_param(crop_size=5), False, KEY), list(images), 0, (1, 5, 5))
    assert np.array_equal(got, images[:, :, 2:7, 4:9])


def test_images_of_different_sizes_are_cropped(transform_param: Any) -> None:
    images = [RNG.integers(0, 256, (1, 9 + i, 9), dtype=np.uint8) for i in range(4)]
    got = run(Transformer(transform_param(crop_size=9), False, KEY), images, 0, (1, 9, 9))
    assert np.array_equal(got[3], images[3][:, 1:10])


def test_every_place_and_both_sides_come_up(transform_param: Any) -> None:
    image = np.arange(30, dtype=np.uint8).reshape(1, 5, 6)
    param = transform_param(crop_size=4, mirror=True)
    got = run(Transformer(param, True, KEY), [image] * 300, 0, (1, 4, 4))
    assert len(np.unique(got.reshape(300, -1), axis=0)) == 2 * 3 * 2


def test_draws_belong_to_the_sample(transform_param: Any) -> None:
    image = RNG.integers(0, 256, (3, 20, 20), dtype=np.uint8)
    transformer = Transformer(transform_param(crop_size=8, mirror=True), True, KEY)
    whole = run(transformer, [image] * 12, 100, (3, 8, 8))
    parts = [run(transformer, [image] * 4, 100 + i, (3, 8, 8)) for i in (0, 4, 8)]
    assert np.array_equal(whole, np.concatenate(parts))


def test_errors(tmp_path: Path, transform_param: Any) -> None:
    with pytest.raises(DataError, match="mean_file or mean_value, not both"):
        Transformer(transform_param(mean_file="m", mean_value=[1]), True, 0)
    with pytest.raises(DataError, match="cannot both be set"):
        Transformer(transform_param(force_color=True, force_gray=True), True, 0)
    with pytest.raises(DataError, match="mean_file .*missing.binaryproto: no such.*compute_image"):
        Transformer(transform_param(mean_file=str(tmp_path / "missing.binaryproto")), True, 0)
    with pytest.raises(DataError, match=r"db, record 'a': crop_size 9 is larger than .*8 x 20"):
        Transformer(transform_param(crop_size=9), True, 0).output_shape(
            (1, 8, 20), "db, record 'a'"
        )
    with pytest.raises(DataError, match="2 mean_value for images of 3 channels"):
        Transformer(transform_param(mean_value=[1, 2]), True, 0).output_shape((3, 8, 8), "db")
    write_mean(tmp_path / "mean", (3, 8, 8))
    with pytest.raises(DataError, match=r"shape \(3, 9, 8\) but the mean"):
        Transformer(transform_param(mean_file=str(tmp_path / "mean")), True, 0).output_shape(
            (3, 9, 8), "db"
        )


def transform(
    kind: int, image: Any, mean: Any, out: Any, place: Any, count: int, threads: int = 1
) -> None:
    """Run the kernel on one image `count` times, for the last samples of the batch first."""
    described = np.zeros(count, IMAGE)
    size = 1 if kind == BYTES else 4
    strides = [stride // size for stride in image.strides]
    strides = [0, *strides] if kind == PACKED else strides
    described[:] = (image.ctypes.data, *strides, kind, *place, 0)
    samples, channels, height, width = out.shape
    described["sample"] = samples - 1 - np.arange(count)
    Transform(
        threads=threads, images=described.view(np.int64), mean=mean, out=out, count=count,
        samples=samples, channels=channels, height=height, width=width, mean_height=mean.shape[1],
        mean_width=mean.shape[2], scale=0.017,
    ).run()  # fmt: skip


def aligned(*shape: int) -> Any:
    """An array whose lines may be streamed, full of NaN."""
    memory = np.full(np.prod(shape) + 16, np.nan, np.float32)
    return memory[-memory.ctypes.data // 4 % 16 :][: np.prod(shape)].reshape(shape)


@pytest.mark.parametrize("large", [False, True], ids=["cached", "streamed"])
@pytest.mark.parametrize("one_mean", [False, True], ids=["mean image", "mean values"])
@pytest.mark.parametrize("mirror", [0, 1])
@pytest.mark.parametrize("kind", [BYTES, FLOATS, PACKED], ids=["bytes", "floats", "packed"])
def test_the_kernel_on_lines_of_any_length(
    native_isa: str, kind: int, mirror: int, one_mean: bool, large: bool
) -> None:
    for width in (1, 2, 7, 16, 17, 31, 64, 70, 227, 511, 513, 1200):
        values = RNG.integers(0, 256, (3, 5, width + 2), dtype=np.uint8)
        image: Any = values
        if kind == FLOATS:
            image = np.frombuffer(b"x" + values.astype(np.float32).tobytes(), np.float32, offset=1)
            image = image.reshape(values.shape)  # at any address, as in a record
        elif kind == PACKED:
            image = packed(values)[::-1].transpose(1, 2, 0).copy()  # red, green, blue
            image = np.concatenate([image, image[..., :1]], axis=2).view(np.uint32)[..., 0]
        mean = RNG.uniform(0, 200, (3, 1, 1) if one_mean else values.shape).astype(np.float32)
        expected = ((values - mean) * np.float32(0.017))[:, 1:4, 2:]
        expected = expected[..., ::-1] if mirror else expected
        samples = max(3, (1 << 20) // (9 * width) + 1) if large else 3
        for threads in (1, 2, 3):
            out = aligned(samples, 3, 3, width)
            transform(kind, image, mean, out, (1, 2, mirror), 2, threads)
            assert np.array_equal(out[-1], expected) and np.array_equal(out[-2], expected)
            assert np.isnan(out[:-2]).all()


@pytest.mark.skipif(not library.available(), reason="the CPU kernels are not compiled")
def test_the_kernel_needs_room() -> None:
    image, mean, out = np.zeros((3, 5, 6), np.uint8), np.zeros((3, 1, 4)), np.zeros((1, 3, 5, 4))
    mean, out = mean.astype(np.float32), out.astype(np.float32)
    with pytest.raises(BackendError, match="transform: mean has 8 elements, .* needs 12"):
        transform(BYTES, image, mean[:2], out, (0, 0, 0), 1)


def test_images_that_do_not_hold_their_crop(transform_param: Any, kernels: None) -> None:
    """Sources find them before, with better words; nothing is read outside of an image."""
    transformer = Transformer(transform_param(crop_size=5), False, KEY)
    for shape in ((3, 4, 9), (3, 9, 4), (2, 9, 9)):
        with pytest.raises(BackendError, match=r"an image of shape .* has no crop of \(3, 5, 5\)"):
            run(transformer, [np.zeros(shape, np.uint8)], 0, (3, 5, 5))


@pytest.mark.skipif(not library.available(), reason="the CPU kernels are not compiled")
def test_more_images_than_the_batch_has_room_for(transform_param: Any) -> None:
    transformer = Transformer(transform_param(), False, KEY)
    with pytest.raises(BackendError, match="a batch of 2 has no room for 3 samples"):
        transformer([np.zeros((1, 2, 2))] * 3, range(3), np.zeros((2, 1, 2, 2), np.float32))
