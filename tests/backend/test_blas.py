"""The backend on NumPy's BLAS: threads, layouts, and which op does what."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Window

pytest.importorskip("numba")

from pycaffe_fire.backend.blas import BlasBackend, convolution, winograd  # noqa: E402
from pycaffe_fire.backend.blas.convolution import Depthwise, Patches, Pointwise  # noqa: E402
from pycaffe_fire.backend.blas.products import single_threaded_products  # noqa: E402
from pycaffe_fire.backend.blas.winograd import Winograd  # noqa: E402
from pycaffe_fire.backend.tensor import ChannelsLast  # noqa: E402


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_threads_share_all_of_it(threads: int, count: int) -> None:
    parts: list[tuple[int, int]] = []
    BlasBackend(threads).share(count, lambda first, stop: parts.append((first, stop)))
    assert [n for first, stop in sorted(parts) for n in range(first, stop)] == list(range(count))
    assert len(parts) == max(1, min(threads, count))


def test_an_error_of_another_thread_arrives() -> None:
    def run(first: int, stop: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("there")

    with pytest.raises(ValueError, match="there"):
        BlasBackend(2).share(2, run)


def threads_of_blas() -> list[int]:
    """Of NumPy's library, and others that were loaded when a product was first asked for."""
    return [library["num_threads"] for library in single_threaded_products._libraries.info()]


def test_products_keep_to_one_thread_as_long_as_anybody_asks() -> None:
    before = threads_of_blas()
    with single_threaded_products:
        with single_threaded_products:
            pass
        assert set(threads_of_blas()) <= {1}
    assert threads_of_blas() == before


@pytest.mark.parametrize(("batch", "threads"), [(1, 2), (3, 2), (1, 1)])
def test_threads_share_the_pixels_of_a_single_image(
    monkeypatch: pytest.MonkeyPatch, batch: int, threads: int
) -> None:
    backend = BlasBackend(threads)
    x, w, y = (
        Blob(backend, (batch, 3, 4, 4)),
        Blob(backend, (5, 3, 1, 1)),
        Blob(backend, (batch, 5, 4, 4)),
    )
    made = backend.convolution(x, w, None, y, Window((1, 1), (1, 1), (0, 0), (1, 1)), 1)
    unlimited, seen = threads_of_blas(), []
    for method in ("multiply", "back"):
        monkeypatch.setattr(type(made), method, lambda *_: seen.append(threads_of_blas()))
    limited = [1] * len(unlimited)
    made.forward()
    assert seen == [limited] * threads
    seen.clear()
    made.backward(data=True, weights=False, bias=False)  # an image after the other
    alone = (batch, threads) == (1, 2)
    assert seen == ([unlimited] if alone else [limited] * min(batch, threads))


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2)])
def test_no_product_wakes_the_threads_of_blas(
    monkeypatch: pytest.MonkeyPatch, kernel: int, stride: int
) -> None:
    """After a product they would wait busily for the next, on cores that our threads need."""
    made = plan((2, 64, 8, 8), 64, kernel, stride=stride, pad=kernel // 2, threads=2)
    multiply, seen = np.matmul, []

    def matmul(*arguments: Any, **options: Any) -> Any:
        seen.extend(threads_of_blas())
        return multiply(*arguments, **options)

    monkeypatch.setattr(np, "matmul", matmul)
    made.forward()
    made.backward(data=True, weights=True, bias=True)
    assert set(seen) == {1}


def plan(shape: tuple[int, ...], outputs: int, kernel: int, groups: int = 1, **more: int) -> Any:
    backend = BlasBackend(more.get("threads", 1))
    pad = (more.get("pad", 0),) * 2
    window = Window((kernel, kernel), (more.get("stride", 1),) * 2, pad, (1, 1))
    size = [(n + 2 * pad[0] - kernel) // window.stride[0] + 1 for n in shape[2:]]
    x, y = Blob(backend, shape), Blob(backend, (shape[0], outputs, *size))
    w = Blob(backend, (outputs, shape[1] // groups, kernel, kernel))
    with backend.engine("CAFFE" if more.get("direct") else "DEFAULT"):
        made = backend.convolution(x, w, None, y, window, groups)
    assert isinstance(y.value.layout, ChannelsLast)
    return made


@pytest.mark.parametrize(("kernel", "stride", "groups"), [(1, 1, 1), (3, 2, 2), (3, 1, 1)])
def test_chunks_add_up(
    monkeypatch: pytest.MonkeyPatch, kernel: int, stride: int, groups: int
) -> None:
    """However little is worked on at a time: all of it is done, and once."""

    def run() -> list[Any]:
        random = np.random.default_rng(1)
        made = plan((2, 64, 8, 8), 64, kernel, groups, stride=stride, pad=kernel // 2)
        for blob in (made.x, made.w):
            blob.data[...] = random.standard_normal(blob.shape)
        made.forward()
        made.y.diff[...] = random.standard_normal(made.y.shape)
        made.backward(data=True, weights=True, bias=False)
        return [made.y.data.copy(), made.x.diff.copy(), made.w.diff.copy()]

    together = run()
    for module, name in ((convolution, "PATCHES"), (convolution, "OUTPUTS"), (winograd, "CHUNK")):
        monkeypatch.setattr(module, name, 1000)
    monkeypatch.setattr(convolution, "WINDOWS", 1)
    for one, other in zip(run(), together, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_every_convolution_has_its_way() -> None:
    assert isinstance(plan((2, 64, 14, 14), 32, 1), Pointwise)
    assert isinstance(plan((2, 64, 14, 14), 32, 1, stride=2), Patches)
    assert isinstance(plan((2, 64, 14, 14), 64, 3, pad=1), Winograd)
    assert isinstance(plan((2, 64, 14, 14), 64, 3, pad=1, direct=1), Patches)
    assert isinstance(plan((2, 64, 14, 14), 64, 3, 2, pad=1), Patches)
    assert isinstance(plan((2, 64, 14, 14), 64, 3, 64, pad=1), Depthwise)


def test_a_blob_is_the_same_in_every_layout() -> None:
    blob = Blob(BlasBackend(1), (2, 3, 4, 5))
    values = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    blob.data[...] = values
    blob.lay_out(ChannelsLast(blob.shape))
    blob.value.sync()
    assert blob.value.buffer is not None
    np.testing.assert_array_equal(blob.value.buffer[:3], values[0, :, 0, 0])
    np.testing.assert_array_equal(blob.data, values)


def test_the_header_says_what_computes() -> None:
    assert BlasBackend(2).describe() == "NumPy's BLAS and compiled kernels, 2 threads"


def channels_last(backend: Any, values: Any) -> Blob:
    made = Blob(backend, values.shape)
    if backend.name == "blas":
        made.lay_out(ChannelsLast(values.shape))
    made.data[...] = values
    return made


def both(run: Callable[[Any], list[Any]]) -> None:
    """What the backend computes on two threads is what NumPy computes."""
    for got, want in zip(run(BlasBackend(2)), run(NumPyBackend()), strict=True):
        limit = 3e-5 * max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=limit)


@pytest.mark.parametrize("shape", [(2, 16, 3, 5), (3, 10, 4, 4), (20, 64, 8, 8)], ids=str)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["own", "given"])
def test_batch_norm(shape: tuple[int, ...], in_place: bool, relu: bool, given: bool) -> None:
    """The last shape has several blocks of rows, and channels whose mean is far from 0."""

    def run(backend: Any) -> list[Any]:
        random = np.random.default_rng(1)
        values = random.standard_normal(shape) + 20 * random.standard_normal((shape[1], 1, 1))
        x = channels_last(backend, values)
        y = x if in_place else channels_last(backend, np.zeros(shape))
        scale, shift = Blob(backend, (shape[1],)), Blob(backend, (shape[1],))
        for blob in (scale, shift):
            blob.data[...] = random.standard_normal(blob.shape)
        made = backend.batch_norm(x, y, scale, shift, 1e-5, given, relu)
        if given:
            made.mean.array[...], made.variance.array[...] = 0.5, 4
        made.forward()
        y.diff[...] = random.standard_normal(shape)
        found = [y.data.copy(), made.mean.array.copy(), made.variance.array.copy()]
        made.backward(data=True, scale=True, shift=True)
        found += [blob.diff.copy() for blob in (x, scale, shift)]
        made.restore()
        return [*found, x.data.copy()]

    both(run)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("relu", [None, 0.1])
def test_weighted_sum(in_place: bool, relu: float | None) -> None:
    shape, factors = (3, 10, 120, 40), (1.0, -0.5, 1.0)  # more than a block

    def run(backend: Any) -> list[Any]:
        random = np.random.default_rng(1)
        xs = [channels_last(backend, random.standard_normal(shape)) for _ in factors]
        y = xs[0] if in_place else channels_last(backend, np.zeros(shape))
        made = backend.weighted_sum(xs, y, factors, relu)
        made.forward()
        y.diff[...] = random.standard_normal(shape)
        found = [y.data.copy()]
        made.backward([True, True, False])
        return [*found, *(x.diff.copy() for x in xs[:2])]

    both(run)
