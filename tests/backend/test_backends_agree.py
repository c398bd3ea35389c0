"""Fast backends against the NumPy one: the same blobs must give the same numbers.

A test that takes `fast` runs on each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Draw
from tests.backend.op_cases import (
    CONVS,
    POOLS,
    Array,
    Conv,
    Planner,
    Pool,
    blob,
    distinct,
    onednn,
    window,
)
from tests.random_numbers import RNG

# Channel counts around the blocks of 8 and 16 that vector kernels like, and beyond them.
CONVS = {
    **CONVS,
    "blocks": Conv((2, 16, 7, 7), 32, window((3, 3), 1, 1)),
    "block and a bit": Conv((2, 17, 6, 5), 19, window((3, 3), 2, 1)),
    "grouped blocks": Conv((2, 32, 5, 5), 32, window((3, 3), 1, 1), 2),
    "grouped bits": Conv((1, 12, 5, 5), 20, window((3, 3), 1, 1), 4),
    "image": Conv((2, 3, 19, 19), 24, window((11, 11), 4)),
    "wide depthwise": Conv((2, 24, 6, 6), 24, window((3, 3), 2, 1), 24),
    "dilated blocks": Conv((1, 16, 9, 9), 16, window((3, 3), 1, 2, 2)),
    "pointwise": Conv((3, 40, 4, 4), 24, window((1, 1))),
    "whole image": Conv((4, 16, 3, 3), 20, window((3, 3))),
    "1-D blocks": Conv((2, 16, 12), 16, window((3,), 1, 1)),
    "3-D blocks": Conv((1, 16, 4, 5, 5), 16, window((3, 3, 3), 1, 1)),
    "tiles": Conv((2, 64, 12, 16), 96, window((3, 3), 1, 1)),
    "cut tiles": Conv((3, 80, 13, 14), 64, window((3, 3), 1, 1)),
    "tiles inside": Conv((2, 64, 14, 14), 64, window((3, 3))),
    "tiles beyond": Conv((1, 64, 15, 23), 64, window((3, 3), 1, (3, 0))),
    "small tiles": Conv((2, 96, 13, 12), 128, window((5, 5), 1, 2)),
    "groups of tiles": Conv((3, 96, 14, 13), 192, window((3, 3), 1, 1), 3),
    "groups of small tiles": Conv((2, 96, 27, 27), 256, window((5, 5), 1, 2), 2),
    "many tiles": Conv((2, 64, 64, 60), 128, window((3, 3), 1, 1)),
    "deconvolution blocks": Conv((2, 16, 4, 4), 32, window((4, 4), 2, 1), 1, True),
    "deconvolution bits": Conv((1, 21, 3, 3), 5, window((4, 4), 2, 1), 1, True),
    "grouped deconvolution blocks": Conv((1, 16, 3, 3), 16, window((4, 4), 2, 1), 16, True),
}
POOLS = {
    **POOLS,
    "blocks": Pool((2, 16, 7, 7), window((3, 3), 2)),
    "padded bits": Pool((2, 19, 8, 8), window((3, 3), 2, 1)),
    "blocks, one and a bit": Pool((2, 45, 7, 6), window((3, 3), 2, 1)),
    "global": Pool((2, 32, 6, 6), window((6, 6))),
    "more than 256 cells": Pool((1, 9, 20, 20), window((17, 17), 3)),
}
SHAPES = [(2, 3, 4, 5), (1, 16, 3, 3), (3, 20, 2, 2), (4, 7), (6,), (2, 3, 5), (1, 2, 3, 2, 2)]


def blocked(backend: Backend, values: Array) -> Blob:
    """A blob in the layout that the backend's own convolution gives its output, if it has one."""
    made = blob(backend, values.shape)
    if len(values.shape) > 2 and backend.name != "numpy":
        axes = len(values.shape) - 2
        w = blob(backend, (values.shape[1], values.shape[1], *(1 for _ in range(axes))))
        backend.convolution(blob(backend, values.shape), w, None, made, window((1,) * axes), 1)
    made.data[...] = values
    return made


def agree(fast: Backend, run: Callable[[Backend], dict[str, Array]]) -> None:
    planner: Any = Planner(fast)
    got, expected = run(planner), run(NumPyBackend())
    for what, values in expected.items():
        limit = 2e-5 * max(1.0, float(np.abs(values).max(initial=0)))
        np.testing.assert_allclose(got[what], values, rtol=2e-5, atol=limit, err_msg=what)


def normal(*shapes: Sequence[int]) -> list[Array]:
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


Make = Callable[[Backend, Array], Blob]
LAYOUTS = pytest.mark.parametrize("make", [blob, blocked], ids=["plain", "blocked"])


def weighted(plan: Any, x: Blob, w: Blob, b: Blob | None, y: Blob, dy: Array) -> dict[str, Array]:
    """Everything a weighted op computes, its parameter gradients accumulated over two passes."""
    found = {}
    plan.forward(activate=False)
    found["linear"] = y.data.copy()
    plan.forward()
    found["y"] = y.data.copy()
    y.diff[...] = dy
    plan.backward(True, True, True)
    found["dx"], found["dw"] = x.diff.copy(), w.diff.copy()
    y.diff[...] = dy * 0.5
    plan.backward(True, True, True)
    found["dx again"], found["dw twice"] = x.diff.copy(), w.diff.copy()
    if b is not None:
        found["db twice"] = b.diff.copy()
    w.gradient.clear()
    plan.backward(False, True, False)
    found["dw after clear"], found["dx kept"] = w.diff.copy(), x.diff.copy()
    w.data[...] *= 2  # as a solver does between passes
    plan.forward()
    found["y of new weights"] = y.data.copy()
    return found


@pytest.mark.parametrize(
    ("make", "bias"), [(blob, True), (blocked, False)], ids=["plain", "blocked, no bias"]
)
@pytest.mark.parametrize("case", CONVS.values(), ids=CONVS.keys())
def test_convolution(fast: Backend, case: Conv, bias: bool, make: Make) -> None:
    x, w, b, dy = normal(case.shape, case.weights, (case.outputs,), case.out)

    def run(backend: Backend) -> dict[str, Array]:
        blobs = make(backend, x), blob(backend, w), blob(backend, b) if bias else None
        y = blob(backend, case.out)
        slope = 0.1 if bias else 0.0
        plan = backend.convolution(*blobs, y, case.window, case.groups, slope, case.transposed)
        return weighted(plan, *blobs, y, dy)

    agree(fast, run)


@pytest.mark.parametrize("name", ["basic", "groups", "block and a bit", "deconvolution blocks"])
def test_plans_share_weights(fast: Backend, name: str) -> None:
    """Two plans for other batch and image sizes, as in Siamese nets and after a reshape."""
    case = CONVS[name]
    smaller = case._replace(shape=(1, *case.shape[1:3], case.shape[3] - 1))
    w, *xs = normal(case.weights, case.shape, smaller.shape)
    dys = normal(case.out, smaller.out)

    def run(backend: Backend) -> dict[str, Array]:
        weights, plans = blob(backend, w), []
        found: dict[str, Array] = {}
        for x, c in zip(xs, (case, smaller), strict=True):
            bottom, top = blob(backend, x), blob(backend, c.out)
            arguments = bottom, weights, None, top, c.window, c.groups, None, c.transposed
            plans.append((backend.convolution(*arguments), bottom, top))
        for i, (plan, bottom, top) in enumerate(plans):
            plan.forward()
            top.diff[...] = dys[i]
            plan.backward(True, True, False)
            found |= {f"y{i}": top.data.copy(), f"dx{i}": bottom.diff.copy()}
        return {**found, "dw": weights.diff.copy()}

    agree(fast, run)


@LAYOUTS
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 5), 1), ((1, 2, 3, 2), 1), ((4, 16, 3, 3), 1), ((2, 3, 4), 2), ((2, 20, 2, 2), 2)],
)
def test_inner_product(
    fast: Backend, shape: tuple[int, ...], axis: int, bias: bool, transpose: bool, make: Make
) -> None:
    inputs, outputs = int(np.prod(shape[axis:])), 7
    out = (*shape[:axis], outputs)
    x, w, b, dy = normal(shape, (outputs, inputs), (outputs,), out)

    def run(backend: Backend) -> dict[str, Array]:
        weights = np.ascontiguousarray(w.T) if transpose else w
        blobs = make(backend, x), blob(backend, weights), blob(backend, b) if bias else None
        y = blob(backend, out)
        plan = backend.inner_product(*blobs, y, axis, transpose, 0.1 if bias else 0.0)
        return weighted(plan, *blobs, y, dy)

    agree(fast, run)


def simple(plan: Any, x: Blob, y: Blob, dy: Array, *draw: Draw) -> dict[str, Array]:
    """Two rounds of an op without parameters, the second on other values."""
    found = {}
    for round_, factor in enumerate((1, -2)):
        x.data[...] *= factor
        plan.forward(*draw)
        found[f"y{round_}"] = y.data.copy()
        y.diff[...] = dy * factor
        plan.backward()
        found[f"dx{round_}"] = x.diff.copy()
    return found


@LAYOUTS
@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("case", POOLS.values(), ids=POOLS.keys())
def test_pooling(fast: Backend, case: Pool, method: str, make: Make) -> None:
    x, (dy,) = distinct(case.shape), normal(case.out)

    def run(backend: Backend) -> dict[str, Array]:
        bottom, top = make(backend, x), blob(backend, case.out)
        return simple(backend.pooling(bottom, top, method, case.window), bottom, top, dy)

    agree(fast, run)


@LAYOUTS
def test_max_pooling_of_equals(fast: Backend, make: Make) -> None:
    case = POOLS["padded bits"]
    x, (dy,) = RNG.integers(0, 2, case.shape).astype(np.float32), normal(case.out)

    def run(backend: Backend) -> dict[str, Array]:
        bottom, top = make(backend, x), blob(backend, case.out)
        return simple(backend.pooling(bottom, top, "MAX", case.window), bottom, top, dy)

    agree(fast, run)


@LAYOUTS
@pytest.mark.parametrize("case", POOLS.values(), ids=POOLS.keys())
def test_max_pooling_keeps_nan(fast: Backend, case: Pool, make: Make) -> None:
    """One NaN in a window is enough, infinities are numbers, and other windows are as ever."""
    x = distinct(case.shape)
    x.flat[0] = np.nan
    x.flat[-1], x.flat[-2] = np.inf, -np.inf

    def run(backend: Backend) -> Array:
        bottom, top = make(backend, x), blob(backend, case.out)
        backend.pooling(bottom, top, "MAX", case.window).forward()
        return top.data.copy()

    want = run(NumPyBackend())
    assert np.isnan(want).any() and not np.isnan(want).all()
    np.testing.assert_array_equal(run(fast), want)


@LAYOUTS
@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("size", [1, 3, 5, 9])
@pytest.mark.parametrize("shape", [(2, 7, 5, 4), (1, 16, 3, 3), (2, 20, 2, 6)])
def test_lrn(fast: Backend, shape: tuple[int, ...], size: int, across: bool, make: Make) -> None:
    x, dy = normal(shape, shape)

    def run(backend: Backend) -> dict[str, Array]:
        bottom, top = make(backend, x), blob(backend, shape)
        return simple(backend.lrn(bottom, top, size, 0.5, 0.75, 1.5, across), bottom, top, dy)

    agree(fast, run)


@LAYOUTS
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("slope", [0.0, 0.1, -0.5])
@pytest.mark.parametrize("shape", SHAPES)
def test_relu(
    fast: Backend, shape: tuple[int, ...], slope: float, in_place: bool, make: Make
) -> None:
    x, (dy,) = distinct(shape), normal(shape)

    def run(backend: Backend) -> dict[str, Array]:
        bottom = make(backend, x)
        top = bottom if in_place else blob(backend, shape)
        return simple(backend.relu(bottom, top, slope), bottom, top, dy)

    agree(fast, run)


@LAYOUTS
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_dropout(fast: Backend, shape: tuple[int, ...], in_place: bool, make: Make) -> None:
    x, (dy,) = distinct(shape), normal(shape)

    def run(backend: Backend) -> dict[str, Array]:
        bottom = make(backend, x)
        top = bottom if in_place else blob(backend, shape)
        plan = backend.dropout(bottom, top, 0.4, 1.5)
        return simple(plan, bottom, top, dy, Draw(2**40 + 3, 2**33 + 1, 17))

    agree(fast, run)


@LAYOUTS
@pytest.mark.parametrize("channels", [(16, 32, 16), (16, 5, 20), (8, 8, 8), (3, 1, 2)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat(fast: Backend, channels: tuple[int, ...], axis: int, make: Make) -> None:
    if axis != 1:
        channels = (channels[0],) * 3
    shapes = [(2, c, 3, 4) for c in channels]
    if axis != 1:
        shapes[1] = (5, channels[0], 3, 4) if axis == 0 else (2, channels[0], 1, 4)
    xs = normal(*shapes)
    joined = np.concatenate(xs, axis)

    def run(backend: Backend) -> dict[str, Array]:
        bottoms, top = [make(backend, x) for x in xs], blob(backend, joined.shape)
        plan: Any = backend.concat(bottoms, top, axis)
        plan.forward()
        top.diff[...] = joined * 3
        plan.backward([True, False, True])
        found = {f"dx{i}": b.diff.copy() for i, b in enumerate(bottoms)}
        return {"y": top.data.copy(), **found}

    agree(fast, run)


@LAYOUTS
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("where", "count"), [(None, 3), (0, 3), (1, 3), (0, 2), (None, 1), (1, 6)])
def test_add(
    fast: Backend, shape: tuple[int, ...], where: int | None, count: int, make: Make
) -> None:
    values = normal(*[shape] * count)

    def run(backend: Backend) -> dict[str, Array]:
        makes = (make, blob, make, make, make, make)  # gradients of one value may lie differently
        parts = [m(backend, v) for m, v in zip(makes, values, strict=False)]
        total = make(backend, np.zeros(shape)) if where is None else parts[where]
        backend.add([p.value for p in parts], total.value)()
        return {"total": total.data.copy()}

    agree(fast, run)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_ops_in_a_row(threads: int) -> None:
    """No plain array is asked for in between: blocked results go from plan to plan."""
    x, w, dy = normal((2, 16, 8, 8), (24, 16, 3, 3), (2, 24, 4, 4))

    def run(backend: Backend) -> dict[str, Array]:
        bottom, weights = blob(backend, x), blob(backend, w)
        conv, pool, norm, drop, last = (
            blob(backend, s) for s in ((2, 24, 8, 8), *[(2, 24, 4, 4)] * 4)
        )
        first = backend.convolution(bottom, weights, None, conv, window((3, 3), 1, 1), 1, 0.0)
        rest: list[Any] = [
            backend.relu(conv, conv, 0.0),
            backend.pooling(conv, pool, "MAX", window((3, 3), 2)),
            backend.lrn(pool, norm, 5, 0.1, 0.75, 1.0, True),
            backend.dropout(norm, drop, 0.3, 2.0),
            backend.relu(drop, last, -0.5),
        ]
        first.forward()
        for plan in rest[1:]:
            plan.forward(*[Draw(1, 2, 3)] if plan is rest[3] else [])
        last.diff[...] = dy
        for plan in reversed(rest):
            plan.backward()
        first.backward(True, True, False)
        return {"y": last.data.copy(), "dx": bottom.diff.copy(), "dw": weights.diff.copy()}

    agree(onednn(threads), run)


def test_negative_slope_in_place_keeps_the_layout(fast: Backend) -> None:
    """The plan before it has frozen its output's memory: another layout would cut them off."""
    x, w = normal((1, 16, 4, 4), (16, 16, 1, 1))

    def run(backend: Backend) -> dict[str, Array]:
        bottom, top = blob(backend, x), blob(backend, x.shape)
        conv = backend.convolution(bottom, blob(backend, w), None, top, window((1, 1)), 1)
        relu = backend.relu(top, top, -0.5)
        for _ in range(2):
            conv.forward()
            relu.forward()
        return {"y": top.data.copy()}

    agree(fast, run)


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 2, 2, 2, 2, 2)], ids=["no samples", "4-D"])
def test_what_only_plain_arrays_can_do(fast: Backend, shape: tuple[int, ...]) -> None:
    axes = len(shape) - 2
    x, w, dy = normal(shape, (4, shape[1], *(1,) * axes), (shape[0], 4, *shape[2:]))

    def run(backend: Backend) -> dict[str, Array]:
        bottom, weights, top = blob(backend, x), blob(backend, w), blob(backend, dy.shape)
        joined = blob(backend, (2 * shape[0], *dy.shape[1:]))
        conv = backend.convolution(bottom, weights, None, top, window((1,) * axes), 1)
        relu, join = backend.relu(top, top, 0.1), backend.concat([top, top], joined, 0)
        conv.forward()
        relu.forward()
        join.forward()
        joined.diff[...] = 1
        join.backward([True, True])
        relu.backward()
        conv.backward(True, True, False)
        return {"y": joined.data.copy(), "dx": bottom.diff.copy(), "dw": weights.diff.copy()}

    agree(fast, run)


CHANNELS = [(2, 3, 4, 5), (1, 16, 3, 3), (3, 20, 5, 7), (4, 7), (2, 3, 50), (1, 2, 3, 2, 2)]


def channelwise(backend: Backend, op: str, shape: Sequence[int], in_place: bool, make: Make,
                numbers: Sequence[Array | None]) -> dict[str, Array]:  # fmt: skip
    """Two rounds of prelu or scale_shift: parameters' gradients add up."""
    rng = np.random.default_rng(1)
    bottom = make(backend, distinct(shape))
    top = bottom if in_place else blob(backend, shape)
    blobs = [None if n is None else blob(backend, n) for n in numbers]
    plan: Any = getattr(backend, op)(bottom, top, *blobs)
    found = {}
    for i in range(2):
        bottom.data[...] = rng.permutation(distinct(shape).reshape(-1)).reshape(shape)
        plan.forward()
        found[f"y{i}"] = top.data.copy()
        top.diff[...] = abs(rng.standard_normal(shape))  # a slope's sum of them must not cancel out
        plan.backward(i == 0, True, True)
        found[f"dx{i}"] = bottom.diff.copy()
    return found | {f"d{i}": b.diff.copy() for i, b in enumerate(blobs) if b is not None}


@LAYOUTS
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("shape", CHANNELS)
def test_prelu(
    fast: Backend, shape: tuple[int, ...], shared: bool, in_place: bool, make: Make
) -> None:
    (slope,) = normal(() if shared else shape[1:2])
    state = RNG.bit_generator.state

    def run(backend: Backend) -> dict[str, Array]:
        RNG.bit_generator.state = state
        return channelwise(backend, "prelu", shape, in_place, make, [np.asarray(slope)])

    agree(fast, run)


@LAYOUTS
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("which", ["both", "scale", "shift"])
@pytest.mark.parametrize("shape", CHANNELS)
def test_scale_shift(
    fast: Backend, shape: tuple[int, ...], which: str, in_place: bool, make: Make
) -> None:
    scale, shift = normal(shape[1:2], shape[1:2])
    given = [None if which == "shift" else scale, None if which == "scale" else shift]
    state = RNG.bit_generator.state

    def run(backend: Backend) -> dict[str, Array]:
        RNG.bit_generator.state = state
        return channelwise(backend, "scale_shift", shape, in_place, make, given)

    agree(fast, run)


@LAYOUTS
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 7), 1), ((2, 20, 3, 5), 1), ((2, 16, 9, 9), 1), ((2, 3, 70), 2), ((1, 5, 7, 11), 0),
     ((6,), 0), ((2, 3, 4, 5), 3)],
)  # fmt: skip
def test_softmax_of_blobs(
    fast: Backend, shape: tuple[int, ...], axis: int, in_place: bool, make: Make
) -> None:
    x, dy = normal(shape, shape)

    def run(backend: Backend) -> dict[str, Array]:
        bottom = make(backend, 10 * x)
        top = bottom if in_place else blob(backend, shape)
        return simple(backend.softmax_plan(bottom, top, axis), bottom, top, dy)

    agree(fast, run)


@pytest.mark.parametrize(("shape", "axis"), [((5, 1000), 1), ((2, 21, 8, 9), 1), ((3, 4), 0)])
def test_softmax_is_exact_to_a_millionth(shape: tuple[int, ...], axis: int) -> None:
    x = np.float32(8 * RNG.standard_normal(shape))
    got = onednn(1).softmax(x, axis)
    want = NumPyBackend(dtype=np.float64).softmax(x.astype(float), axis)
    np.testing.assert_allclose(got, want, rtol=3e-6)
    np.testing.assert_allclose(got.sum(axis=axis), 1, rtol=1e-6)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 3e38])
def test_softmax_of_odd_numbers_is_that_of_numpy(odd: float) -> None:
    x = np.array([[1, 2, odd, -1], [1, 2, 3, 4], [-np.inf, -np.inf, -np.inf, -np.inf]], np.float32)
    with np.errstate(all="ignore"):
        want = NumPyBackend().softmax(x, 1)
        for got in (onednn(1).softmax(x, 1), onednn(1).softmax(x.T.copy(), 0).T):
            np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-37)


def test_dropping_in_place_is_the_same(fast: Backend) -> None:
    x = np.abs(RNG.standard_normal((3, 20, 5, 7)).astype(np.float32))
    want = NumPyBackend().uniform(Draw(9, 8, 7), 3, 700).reshape(x.shape) >= np.float32(0.3)
    for make in (blob, blocked):
        for in_place in (False, True):
            bottom = make(fast, x)
            top = bottom if in_place else blob(fast, x.shape)
            fast.dropout(bottom, top, 0.3, 2.0).forward(Draw(9, 8, 7))
            np.testing.assert_array_equal(top.data, np.where(want, 2 * x, 0))


def test_every_op_test_reaches_every_backend(request: pytest.FixtureRequest) -> None:
    """A new test here that takes `fast` is named nowhere else."""
    found: dict[str, set[str]] = {}
    for item in request.node.parent.collect():
        if "fast" in item.fixturenames:
            found.setdefault(item.originalname, set()).add(item.callspec.params["fast"])
    assert len(found) > 15
    assert all(backends == {"onednn", "blas", "cuda"} for backends in found.values()), found
