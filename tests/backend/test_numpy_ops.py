"""The NumPy ops against small loops and numerical gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import random
from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Draw, Window
from pycaffe_fire.errors import BackendError
from tests.backend.op_cases import CONVS, POOLS, Array, Conv, Pool, blob, distinct, window
from tests.random_numbers import RNG


@pytest.fixture
def exact() -> NumPyBackend:
    return NumPyBackend(dtype=np.float64)


def check_gradients(
    forward: Callable[[], None], backward: Callable[[], None], inputs: Sequence[Blob], y: Blob,
    parameters: Sequence[Blob] = (),
) -> None:  # fmt: skip
    """Central differences of sum(y * weight); input gradients overwrite, parameters' accumulate."""
    everything = [*inputs, *parameters]
    values = [b.data.copy() for b in everything]
    weight = RNG.standard_normal(y.shape)

    def loss() -> float:
        for b, value in zip(everything, values, strict=True):
            b.data[...] = value
        forward()
        return float((y.data * weight).sum())

    loss()
    for b in everything:
        b.diff[...] = 5
    y.diff[...] = weight
    backward()
    step = 1e-4
    for number, (b, value) in enumerate(zip(everything, values, strict=True)):
        got = b.diff - (5 if number >= len(inputs) else 0)
        for at in np.ndindex(value.shape):
            start = value[at]
            value[at] = start + step
            above = loss()
            value[at] = start - step
            expected = (above - loss()) / (2 * step)
            value[at] = start
            assert got[at] == pytest.approx(expected, rel=1e-6, abs=1e-7), (number, at)


# Loops that say what an op means, cell by cell.


def cells(out: Sequence[int], win: Window) -> Iterator[tuple[Any, Any, Any]]:
    """(output pixel, kernel cell, input pixel) of every pair, inside the image or not."""
    for o, k in product(np.ndindex(*out), np.ndindex(*win.kernel)):
        geometry = zip(o, k, win.stride, win.pad, win.dilation, strict=True)
        yield o, k, tuple(a * s - p + c * d for a, c, s, p, d in geometry)


def inside(pixel: Sequence[int], size: Sequence[int]) -> bool:
    return all(0 <= p < n for p, n in zip(pixel, size, strict=True))


def conv_loops(case: Conv, x: Array, w: Array, b: Array) -> Array:
    y = np.zeros(case.out) + b.reshape(-1, *(1 for _ in case.window.kernel))
    image, small = (y, x) if case.transposed else (x, y)
    wide, narrow = image.shape[1] // case.groups, small.shape[1] // case.groups
    for (o, k, i), g in product(cells(small.shape[2:], case.window), range(case.groups)):
        if not inside(i, image.shape[2:]):
            continue
        rows = slice(g * narrow, (g + 1) * narrow)
        above, below = (slice(None), slice(g * wide, (g + 1) * wide), *i), (slice(None), rows, *o)
        place = (rows, slice(None), *k)
        matrix = w[place]
        if case.transposed:
            y[above] += x[below] @ matrix
        else:
            y[below] += x[above] @ matrix.T
    return y


def pool_loops(case: Pool, method: str, x: Array) -> tuple[Array, Array]:
    """Output and winners (flat index in the image, -1 for none), by Caffe's rules."""
    lowest = np.finfo(x.dtype).min if method == "MAX" else 0
    y, mask = np.full(case.out, lowest, x.dtype), np.full(case.out, -1)
    size = x.shape[2:]
    for plane in np.ndindex(*x.shape[:2]):
        for o, _, i in cells(case.out[2:], case.window):
            if not inside(i, size):
                continue
            out, source = (*plane, *o), (*plane, *i)
            if method == "AVE":
                y[out] += x[source]
            elif x[source] > y[out]:
                y[out] = x[source]
                mask[out] = np.ravel_multi_index(i, size)
    if method == "AVE":
        for o in np.ndindex(*case.out[2:]):
            win, area = case.window, 1
            for a, n, k, s, p in zip(o, size, win.kernel, win.stride, win.pad, strict=True):
                area *= min(a * s - p + k, n + p) - (a * s - p)
            everywhere = (slice(None), slice(None), *o)
            y[everywhere] /= area
    return y, mask


# Convolution and inner product.


@pytest.mark.parametrize("case", CONVS.values(), ids=CONVS.keys())
def test_convolution(exact: NumPyBackend, case: Conv) -> None:
    x, w, b = (
        blob(exact, RNG.standard_normal(s)) for s in (case.shape, case.weights, (case.outputs,))
    )
    y = blob(exact, case.out)
    plan = exact.convolution(x, w, b, y, case.window, case.groups, transposed=case.transposed)
    y.data[...] = np.nan
    plan.forward()
    np.testing.assert_allclose(y.data, conv_loops(case, x.data, w.data, b.data), atol=1e-12)
    check_gradients(plan.forward, lambda: plan.backward(True, True, True), [x], y, [w, b])


def test_convolution_touches_only_what_is_asked(exact: NumPyBackend) -> None:
    case = CONVS["basic"]
    x, w, y = (blob(exact, RNG.standard_normal(s)) for s in (case.shape, case.weights, case.out))
    plan = exact.convolution(x, w, None, y, case.window, 1)
    plan.forward()
    y.diff[...] = 1
    for data, weights in ((True, False), (False, True), (False, False)):
        x.gradient.clear()
        w.gradient.clear()
        plan.backward(data, weights, True)
        assert (x.diff.any(), w.diff.any()) == (data, weights)


@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_fused_relu(exact: NumPyBackend, slope: float) -> None:
    rng = np.random.default_rng(1)  # its own: it wants a negative number among its results
    x, w, b = (blob(exact, rng.standard_normal(s)) for s in ((2, 3), (4, 3), (4,)))
    y = blob(exact, (2, 4))
    image, kernel, map_ = (
        blob(exact, x.data[..., None]),
        blob(exact, w.data[..., None]),
        blob(exact, (2, 4, 1)),
    )
    for plan, out in (
        (exact.inner_product(x, w, b, y, 1, False, slope), y),
        (exact.convolution(image, kernel, b, map_, window((1,)), 1, slope), map_),
    ):
        plan.forward(activate=False)
        linear = out.data.copy()
        np.testing.assert_allclose(linear.reshape(2, 4), x.data @ w.data.T + b.data)
        plan.forward()
        assert (linear < 0).any()
        np.testing.assert_allclose(out.data, np.where(linear > 0, linear, slope * linear))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 5), 1), ((1, 2, 3, 2), 1), ((2, 3, 4), 2), ((4,), 0)]
)
def test_inner_product(
    exact: NumPyBackend, shape: tuple[int, ...], axis: int, transpose: bool
) -> None:
    inputs, outputs = int(np.prod(shape[axis:])), 3
    x, w, b = (blob(exact, RNG.standard_normal(s)) for s in (shape, (outputs, inputs), (outputs,)))
    expected = x.data.reshape(*shape[:axis], inputs) @ w.data.T + b.data
    if transpose:
        w = blob(exact, w.data.T)
    y = blob(exact, (*shape[:axis], outputs))
    plan = exact.inner_product(x, w, b, y, axis, transpose)
    plan.forward()
    np.testing.assert_allclose(y.data, expected)
    check_gradients(plan.forward, lambda: plan.backward(True, True, True), [x], y, [w, b])


# Pooling.


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("case", POOLS.values(), ids=POOLS.keys())
def test_pooling(exact: NumPyBackend, case: Pool, method: str) -> None:
    x, y = blob(exact, distinct(case.shape)), blob(exact, case.out)
    plan: Any = exact.pooling(x, y, method, case.window)
    plan.forward()
    expected, mask = pool_loops(case, method, x.data)
    np.testing.assert_allclose(y.data, expected)
    if method == "MAX":
        assert np.array_equal(plan.mask, mask)
    check_gradients(plan.forward, plan.backward, [x], y)


def test_max_of_equals_is_the_first(exact: NumPyBackend) -> None:
    case = POOLS["padded and overhanging"]
    x, y = blob(exact, RNG.integers(0, 2, case.shape).astype(float)), blob(exact, case.out)
    plan: Any = exact.pooling(x, y, "MAX", case.window)
    plan.forward()
    expected, mask = pool_loops(case, "MAX", x.data)
    assert np.array_equal(y.data, expected) and np.array_equal(plan.mask, mask)
    y.diff[...] = RNG.standard_normal(y.shape)
    plan.backward()
    dx = np.zeros((*case.shape[:2], int(np.prod(case.shape[2:]))))
    for at in np.ndindex(*case.out):
        place = (*at[:2], mask[at])
        dx[place] += y.diff[at]
    np.testing.assert_allclose(x.diff.reshape(dx.shape), dx)


def test_the_first_nan_wins(exact: NumPyBackend) -> None:
    x, y = blob(exact, np.arange(8.0).reshape(1, 1, 2, 4)), blob(exact, (1, 1, 1, 2))
    x.data[0, 0, :, 1] = np.nan
    plan: Any = exact.pooling(x, y, "MAX", window((2, 2), 2))
    plan.forward()
    np.testing.assert_array_equal(y.data.ravel(), [np.nan, 7])
    assert plan.mask.ravel().tolist() == [1, 7]
    y.diff[...] = 3
    plan.backward()
    assert np.flatnonzero(x.diff).tolist() == [1, 7]


# Elementwise and the rest.


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize(
    ("shape", "size"), [((2, 7, 3, 2), 5), ((1, 2, 4, 5), 3), ((1, 3, 2, 1), 7), ((2, 3, 2, 3), 1)]
)
def test_lrn(exact: NumPyBackend, shape: tuple[int, ...], size: int, across: bool) -> None:
    alpha, beta, k, reach = 0.7, 0.75, 1.3, size // 2
    x, y = blob(exact, RNG.standard_normal(shape)), blob(exact, shape)
    plan = exact.lrn(x, y, size, alpha, beta, k, across)
    plan.forward()
    for n, c, h, w in np.ndindex(*shape):
        region: Any = (n, slice(max(c - reach, 0), c + reach + 1), h, w)
        if not across:
            near = (slice(max(i - reach, 0), i + reach + 1) for i in (h, w))
            region = (n, c, *near)
        area = size if across else size * size
        scale = k + alpha / area * np.square(x.data[region]).sum()
        assert y.data[n, c, h, w] == pytest.approx(x.data[n, c, h, w] * scale**-beta)
    check_gradients(plan.forward, plan.backward, [x], y)


@pytest.mark.parametrize("slope", [0.0, 0.1, -0.5])
@pytest.mark.parametrize("in_place", [False, True])
def test_relu(exact: NumPyBackend, slope: float, in_place: bool) -> None:
    values = distinct((2, 3, 4))
    x = blob(exact, values)
    y = x if in_place else blob(exact, values.shape)
    plan = exact.relu(x, y, slope)
    plan.forward()
    np.testing.assert_allclose(y.data, np.where(values > 0, values, slope * values))
    if slope >= 0 or not in_place:
        x.data[...] = values
        check_gradients(plan.forward, plan.backward, [x], y)
    else:  # Caffe's in-place ReLU with a negative slope sees the output; so must ours
        y.diff[...] = 1
        sign = y.data.copy()
        plan.backward()
        np.testing.assert_array_equal(x.diff, np.where(sign > 0, 1, slope))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape", [(3, 2, 5), (4, 7), (5,), (1, 1)])
def test_dropout(exact: NumPyBackend, shape: tuple[int, ...], in_place: bool) -> None:
    draw = Draw(random.key(5, "drop"), step=11, first_sample=40)
    values = RNG.standard_normal(shape)
    x = blob(exact, values)
    y = x if in_place else blob(exact, shape)
    plan = exact.dropout(x, y, 0.4, 1.7)
    plan.forward(draw)
    per_sample = int(np.prod(shape[1:]))
    rows = [random.uniform(draw.key, 11, 40 + i, per_sample) for i in range(shape[0])]
    kept = np.stack(rows).reshape(shape) >= np.float32(0.4)
    np.testing.assert_allclose(y.data, np.where(kept, values * 1.7, 0))
    y.diff[...] = values
    plan.backward()
    np.testing.assert_allclose(x.diff, np.where(kept, values * 1.7, 0))


def test_dropout_backward_needs_a_mask(exact: NumPyBackend) -> None:
    x, y = blob(exact, (2, 3)), blob(exact, (2, 3))
    with pytest.raises(BackendError, match="before any forward"):
        exact.dropout(x, y, 0.5, 2.0).backward()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat(exact: NumPyBackend, axis: int) -> None:
    shapes: list[tuple[int, ...]] = [(2, 3, 4)] * 3
    shapes[1] = tuple(5 if i == axis else n for i, n in enumerate(shapes[1]))
    xs = [blob(exact, RNG.standard_normal(s)) for s in shapes]
    joined = np.concatenate([x.data for x in xs], axis)
    y = blob(exact, joined.shape)
    plan: Any = exact.concat(xs, y, axis)
    plan.forward()
    assert np.array_equal(y.data, joined)
    y.diff[...] = joined * 2
    plan.backward([True, False, True])
    assert np.array_equal(xs[0].diff, xs[0].data * 2) and np.array_equal(xs[2].diff, xs[2].data * 2)
    assert not xs[1].diff.any()


@pytest.mark.parametrize("where", [None, 0, 1])
def test_add(exact: NumPyBackend, where: int | None) -> None:
    parts = [blob(exact, RNG.standard_normal((2, 3))) for _ in range(3)]
    expected = sum(p.data for p in parts)
    total = blob(exact, (2, 3)) if where is None else parts[where]
    exact.add([p.value for p in parts], total.value)()
    np.testing.assert_allclose(total.data, expected)


def test_another_keeps_the_dtype(exact: NumPyBackend) -> None:
    other = exact.another(2)
    assert (other.dtype, other.threads) == (np.float64, 2)
    assert blob(NumPyBackend(), (2,)).data.dtype == np.float32


def test_empty_batch(exact: NumPyBackend) -> None:
    x, w, y = blob(exact, (0, 2, 3, 3)), blob(exact, (4, 2, 1, 1)), blob(exact, (0, 4, 3, 3))
    plan = exact.convolution(x, w, None, y, window((1, 1)), 1)
    plan.forward()
    plan.backward(True, True, True)
    assert not w.diff.any()
    drop = exact.dropout(x, x, 0.5, 2.0)
    drop.forward(Draw(1, 2, 3))
    drop.backward()
