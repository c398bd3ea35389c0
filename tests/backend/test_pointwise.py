"""Gradients of convolutions whose windows are single pixels: our kernel, and the op around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.compiled import use_threads
from pycaffe_fire.backend.kernels import pointwise as kernels
from pycaffe_fire.backend.kernels.tiles import LANES
from tests.backend.op_cases import Array, Conv, blob, window
from tests.random_numbers import RNG

pytest.importorskip("numba")
onednn = pytest.importorskip("pycaffe_fire.backend.onednn")
from pycaffe_fire.backend.onednn import pointwise  # noqa: E402
from pycaffe_fire.backend.onednn.convolution import Convolution  # noqa: E402
from pycaffe_fire.backend.onednn.pointwise import Pointwise  # noqa: E402


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


# Samples, blocks of inputs and of outputs, pixels: tiles of every width, runs that are cut.
SIZES = [(1, 1, 1, 1), (2, 3, 2, 7), (3, 1, 4, 49), (1, 2, 5, 801), (2, 1, 16, 1700), (1, 5, 11, 9)]


def made(x: Array, dy: Array, before: tuple[Array, Array], tasks: int) -> tuple[Array, Array]:
    dw, db = (array.copy() for array in before)
    use_threads(min(tasks, 2))
    kernels.add_gradients(x, dy, dw, db, tasks)
    return dw, db


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("has_bias", [False, True], ids=["weights", "weights and bias"])
def test_kernel_adds_products_and_sums(size: tuple[int, ...], has_bias: bool) -> None:
    num, inputs, outputs, pixels = size
    x, dy = normal(num, inputs, pixels, LANES), normal(num, outputs, pixels, LANES)
    before = normal(outputs * inputs * LANES * LANES), normal(outputs * LANES * has_bias)
    dw, db = made(x, dy, before, tasks=1)
    exact = np.einsum("nipa,nopb->oiab", x.astype(np.float64), dy.astype(np.float64))
    close = {"rtol": 1e-5, "atol": 1e-5 * np.sqrt(num * pixels)}
    np.testing.assert_allclose(dw - before[0], exact.reshape(-1), **close)
    if has_bias:
        sums = dy.astype(np.float64).sum(axis=(0, 2)).reshape(-1)
        np.testing.assert_allclose(db - before[1], sums, **close)
    for tasks in (2, 3, 7):
        for ours, same in zip(made(x, dy, before, tasks), (dw, db), strict=True):
            np.testing.assert_array_equal(ours, same, err_msg=f"in {tasks} tasks")


class Case:
    """One convolution, once as Pointwise and once as the library has it."""

    def __init__(self, threads: int, inputs: int, outputs: int, size: tuple[int, ...]) -> None:
        self.backend = onednn.OneDNNBackend(threads)
        geometry = Conv((3, inputs, *size), outputs, window((1,) * len(size)))
        self.x, self.w = normal(*geometry.shape), normal(*geometry.weights)
        self.dy, self.b = normal(*geometry.out), normal(outputs)
        self.window = geometry.window

    def plan(self, kind: Any) -> tuple[Any, list[Blob]]:
        """With an input that lies as the library likes it best."""
        blobs = [blob(self.backend, each) for each in (self.x, self.w, self.b, self.dy)]
        for _ in range(2):
            plan = kind(self.backend, *blobs, self.window, 1, None, False)
            blobs[0].lay_out(plan._chosen(blobs[0], plan._hint, "src"))
        blobs[3].diff[...] = self.dy
        return plan, blobs

    def gradients(self, kind: Any, passes: int) -> list[Array]:
        plan, (x, w, b, y) = self.plan(kind)
        plan.forward()
        for _ in range(passes):
            plan.backward(True, True, True)
        return [each.diff.copy() for each in (x, w, b)]


SHAPES = [
    (16, 24, (5, 6)), (64, 8, (3, 3)), (8, 16, (1, 1)), (24, 40, (7,)), (16, 16, (2, 3, 4)),
    (12, 24, (5, 6)), (16, 20, (5, 6)), (3, 7, (4, 4)),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("passes", [1, 2], ids=["written", "added"])
def test_gradients_are_the_librarys(shape: Any, passes: int) -> None:
    case = Case(2, *shape)
    for ours, theirs in zip(
        case.gradients(Pointwise, passes), case.gradients(Convolution, passes), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def calls(plan: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a backward pass of it calls our kernel."""
    count = []
    run = kernels.add_gradients
    monkeypatch.setattr(kernels, "add_gradients", lambda *found: (count.append(1), run(*found)))
    plan.forward()
    plan.backward(True, True, True)
    return len(count)


def skip_unless_ours(plan: Any) -> None:
    if plan.library.implementation(plan._hint) != pointwise.SLOWER_BACKWARD:
        pytest.skip("this CPU has other kernels, which are left as they are")


def test_kernel_serves_blocks_of_channels_only(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = Case(1, 16, 24, (5, 6)).plan(Pointwise)
    skip_unless_ours(plan)
    assert calls(plan, monkeypatch) == 1
    assert calls(Case(1, 12, 24, (5, 6)).plan(Pointwise)[0], monkeypatch) == 0


def test_bits_do_not_depend_on_threads() -> None:
    case, found = Case(1, 32, 48, (9, 9)), []
    skip_unless_ours(case.plan(Pointwise)[0])
    for threads in (1, 2):
        case.backend = onednn.OneDNNBackend(threads)
        found.append(case.gradients(Pointwise, 1))
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_which_convolutions_are_pointwise() -> None:
    backend = onednn.OneDNNBackend(1)
    kinds = {}
    for name, (win, groups) in {
        "pixel": (window((1, 1)), 1), "groups": (window((1, 1)), 2), "wide": (window((3, 3)), 1),
        "stride": (window((1, 1), 2), 1), "pad": (window((1, 1), pad=1), 1),
    }.items():  # fmt: skip
        geometry = Conv((2, 8, 5, 5), 8, win, groups)
        shapes = (geometry.shape, geometry.weights, (8,), geometry.out)
        blobs = [blob(backend, normal(*shape)) for shape in shapes]
        kinds[name] = type(backend.convolution(*blobs, win, groups, None))
    assert [name for name, kind in kinds.items() if kind is Pointwise] == ["pixel"]
