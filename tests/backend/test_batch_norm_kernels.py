"""Batch normalisation in native kernels, alone and with a sum, against its definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.cpu import library
from pycaffe_fire.backend.cpu.batch_norm import (
    PIECE,
    Grid,
    NormBackward,
    NormForward,
    NormSumBackward,
    SingleNorm,
)
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Norm
from pycaffe_fire.backend.tensor import aligned
from pycaffe_fire.errors import BackendError

from .norm_arrays import EPS, norm_arrays

LARGE = 1 << 20  # elements that are written past the caches
RESULTS = ("mean", "variance", "sum", "product")
needs_library = pytest.mark.skipif(
    not library.available(), reason="the CPU kernels are not compiled"
)


class Op:
    """A norm of tensors (samples, blocks, pixels, block), and its kernels.

    `piece` pixels are a piece, by default those of a sample. Arrays begin `shift` elements after a
    line of the cache.
    """

    def __init__(
        self, grid: Grid, threads: int = 1, together: int = 1, slope: float = 0.25, piece: int = 0,
        shift: int = 0,
    ) -> None:  # fmt: skip
        samples, blocks, pixels, block = self.grid = grid
        self.total, self.shift, self.slope = samples * pixels, shift, slope
        self.rng = np.random.default_rng(sum(grid))
        piece = piece or pixels
        self.arrays = norm_arrays(1, blocks * block, -(-self.total // piece), slope)
        self.fields = {
            **self.arrays, "threads": threads, "blocks": blocks, "block": block,
            "together": together, "pixels": piece, "total": self.total,
        }  # fmt: skip
        self.x = self.random() * 2 + 3
        self.dy = self.random()

    def empty(self) -> Any:
        count = int(np.prod(self.grid))
        made = aligned(count + self.shift, np.dtype(np.float32))[self.shift :].reshape(self.grid)
        made[...] = np.nan
        return made

    def random(self) -> Any:
        made = self.empty()
        made[...] = self.rng.standard_normal(self.grid, np.float32)
        return made

    def channel(self, name: str) -> Any:
        """One of the arrays as it is applied to tensors."""
        _, blocks, _, block = self.grid
        return self.arrays[name].reshape(1, blocks, 1, block).astype(np.float64)

    def forward(self, addend: Any = None, **fields: Any) -> Any:
        y = self.empty()
        NormForward(**{**self.fields, "x": self.x, "y": y, "addend": addend, **fields}).run()
        return y

    def backward(self, **fields: Any) -> Any:
        dx = self.empty()
        NormBackward(**{**self.fields, "x": self.x, "dy": self.dy, "dx": dx, **fields}).run()
        return dx

    def normal(self) -> tuple[Any, Any, Any]:
        """By definition: x without scale and shift, with them, and its deviation."""
        x = self.x.astype(np.float64)
        deviation = np.sqrt(x.var((0, 2), keepdims=True) + EPS)
        hat = (x - x.mean((0, 2), keepdims=True)) / deviation
        return hat, hat * self.channel("scale") + self.channel("shift"), deviation

    def relu(self, value: Any) -> Any:
        return np.where(value > 0, value, self.slope * value)

    def through_relu(self, value: Any, dy: Any) -> Any:
        return np.where(value > 0, dy, self.slope * dy.astype(np.float64))

    def input_gradient(self, g: Any, hat: Any, deviation: Any) -> Any:
        level, along = (v.mean((0, 2), keepdims=True) for v in (g, g * hat))
        return self.channel("scale") * (g - level - hat * along) / deviation


def close(found: Any, expected: Any, atol: float = 2e-4) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=atol)


def check_sums(op: Op, g: Any, hat: Any, deviation: Any) -> None:
    atol = 1e-5 * op.total
    close(op.channel("sum"), g.sum((0, 2), keepdims=True), atol)
    close(op.channel("product"), (g * hat * deviation).sum((0, 2), keepdims=True), 4 * atol)


GRIDS: dict[str, Grid] = {
    "blocks of 8": (3, 5, 35, 8),
    "blocks of 16": (3, 5, 35, 16),
    "blocks of 32": (2, 3, 7, 32),
    "one sample": (1, 2, 17, 8),
    "one pixel": (9, 3, 1, 16),
    "one block": (4, 1, 6, 8),
    "channels last": (3, 1, 35, 24),
    "few samples of one pixel": (5, 1, 1, 40),
}


@pytest.fixture(params=list(GRIDS))
def grid(request: pytest.FixtureRequest) -> Grid:
    return GRIDS[request.param]


@pytest.mark.parametrize("together", [0, 1, 2])
def test_a_norm(isa: str, grid: Grid, together: int) -> None:
    op = Op(grid, threads=2, together=together)
    y = op.forward()
    hat, value, deviation = op.normal()
    close(y, op.relu(value))
    close(op.channel("mean"), op.x.mean((0, 2), np.float64, keepdims=True))
    close(op.channel("variance"), op.x.astype(np.float64).var((0, 2), keepdims=True))
    dx = op.backward()
    g = op.through_relu(value, op.dy)
    close(dx, op.input_gradient(g, hat, deviation))
    check_sums(op, g, hat, deviation)
    op.arrays["sum"][...] = op.arrays["product"][...] = np.nan
    op.backward(dx=None)  # the sums alone
    check_sums(op, g, hat, deviation)
    op.backward(dx=op.dy)  # in place
    np.testing.assert_array_equal(op.dy, dx)


@pytest.mark.parametrize("together", [0, 2])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_norm_with_a_sum(isa: str, grid: Grid, together: int, parts: int) -> None:
    op = Op(grid, threads=2, together=together)
    addend, one, two = (op.random() for _ in range(3))
    y = op.forward(addend)
    hat, value, deviation = op.normal()
    close(y, op.relu(value + addend))
    g, dx, other = op.empty(), op.empty(), two if parts == 2 else None
    fields = {**op.fields, "x": op.x, "y": y}
    NormSumBackward(**fields, one=one, other=other, g=g, dx=dx).run()
    total = one + two if parts == 2 else one
    np.testing.assert_array_equal(g, np.where(y > 0, total, np.float32(op.slope) * total))
    exact = g.astype(np.float64)
    close(dx, op.input_gradient(exact, hat, deviation))
    check_sums(op, exact, hat, deviation)
    NormSumBackward(**fields, one=one, other=other, g=one, dx=other).run()  # in place
    np.testing.assert_array_equal(one, g)
    if other is not None:
        np.testing.assert_array_equal(other, dx)


@pytest.mark.parametrize("shift", [0, 3], ids=["lines", "between lines"])
def test_large_arrays(isa: str, shift: int) -> None:
    """Those that begin with a line of the cache are written past the caches."""
    for block in (8, 16):
        grid = (4, 5, -(-LARGE // (4 * 5 * block)) + 3, block)
        op = Op(grid, threads=2, shift=shift)
        _, value, _ = op.normal()
        close(op.forward(), op.relu(value))
        addend = op.random()
        close(op.forward(addend), op.relu(value + addend))


@pytest.mark.parametrize("piece", [1, 2, 16, 34, 105])
def test_pieces_of_a_tensor_with_channels_last(isa: str, piece: int) -> None:
    """The last piece may be shorter."""
    op = Op((3, 1, 35, 24), threads=2, piece=piece)
    y, dx = op.forward(), op.backward()
    hat, value, deviation = op.normal()
    close(y, op.relu(value))
    close(dx, op.input_gradient(op.through_relu(value, op.dy), hat, deviation))


def test_in_place_the_input_is_kept(isa: str, grid: Grid) -> None:
    op = Op(grid, threads=2)
    y, kept, x = op.forward(), op.empty(), op.x.copy()
    op.forward(kept=kept, y=op.x)
    np.testing.assert_array_equal(op.x, y)
    np.testing.assert_array_equal(kept, x)


def test_given_statistics(isa: str, grid: Grid) -> None:
    op = Op(grid, threads=2)
    op.arrays["own"][...] = 0
    op.arrays["mean"][...], op.arrays["variance"][...] = 2.5, 4
    y, dx = op.forward(), op.backward()
    value = (op.x - 2.5) / np.sqrt(4 + EPS) * op.channel("scale") + op.channel("shift")
    close(y, op.relu(value))
    close(dx, op.through_relu(value, op.dy) * op.channel("scale") / np.sqrt(4 + EPS))
    assert (op.arrays["mean"] == 2.5).all() and (op.arrays["variance"] == 4).all()


def test_a_scale_that_changes_between_the_passes(isa: str) -> None:
    """Gradients take the scale as it is now, but the ReLU of the forward pass."""
    op = Op((3, 5, 35, 16), threads=2)
    y = op.forward()
    hat, _, deviation = op.normal()
    op.arrays["scale"] *= -2
    close(op.backward(), op.input_gradient(op.through_relu(y, op.dy), hat, deviation))


def test_the_padding_stays_0(isa: str) -> None:
    """Channels of the padding have scale 0, whatever their variance."""
    op = Op((3, 2, 35, 16), threads=2)
    op.x[:, 1, :, 9:] = op.dy[:, 1, :, 9:] = 0
    op.arrays["scale"][0, 25:] = op.arrays["shift"][0, 25:] = op.arrays["eps"][...] = 0
    y, dx = op.forward(), op.backward()
    for array in (y, dx):
        assert np.isfinite(array).all() and not array[:, 1, :, 9:].any()


@pytest.mark.parametrize("slope", [0.0, 0.25, 1.0])
def test_no_result_of_a_relu_is_minus_0(isa: str, slope: float) -> None:
    op = Op((2, 2, 9, 8), slope=slope)
    op.arrays["own"][...] = op.arrays["mean"][...] = op.arrays["shift"][...] = 0
    op.arrays["variance"][...] = 1
    op.x[0, 0], op.x[0, 1] = -0.0, -1
    y = op.forward()
    assert not np.signbit(y[y == 0]).any()


def test_what_is_no_number_stays_so(isa: str) -> None:
    op = Op((2, 2, 9, 16))
    op.x[1, 0, 4, 3], op.x[0, 1, 0, 5] = np.nan, np.inf
    y = op.forward()
    assert np.isnan(op.channel("mean")[0, 0, 0, 3]) and np.isnan(y[:, 0, :, 3]).all()
    assert np.isnan(op.channel("variance")[0, 1, 0, 5])
    usual = np.ones((2, 16), bool)
    usual[0, 3] = usual[1, 5] = False
    np.testing.assert_array_equal(np.isfinite(y).all((0, 2)), usual)


def test_channels_far_from_0(isa: str) -> None:
    op = Op((3, 2, 2000, 8))
    op.x += 1000
    op.x[:, :, 1000:1005] = 900  # also where the pixels in the middle are far from all others
    op.forward()
    exact = op.x.astype(np.float64)
    mean, variance = exact.mean((0, 2), keepdims=True), exact.var((0, 2), keepdims=True)
    np.testing.assert_allclose(op.channel("mean"), mean, rtol=1e-7)
    np.testing.assert_allclose(op.channel("variance"), variance, rtol=3e-5)


def test_a_constant_channel_has_no_variance(isa: str) -> None:
    op = Op((3, 2, 81, 16))
    op.x[...] = 0.1
    op.forward()
    assert not op.arrays["variance"].any()


def test_bits_do_not_depend_on_threads(isa: str, grid: Grid) -> None:
    """Nor on the blocks that are taken at a time."""
    found = []
    for threads, together in ((1, 1), (2, 0), (3, 2), (2, 1)):
        op = Op(grid, threads, together)
        addend, parts = op.random(), [op.random(), op.random()]
        y, dx = op.forward(), op.backward()
        results = [op.arrays[name].copy() for name in RESULTS]
        total, g, dy = op.forward(addend), op.empty(), op.empty()
        fields = {**op.fields, "x": op.x, "y": total}
        NormSumBackward(**fields, one=parts[0], other=parts[1], g=g, dx=dy).run()
        found.append([y, dx, *results, total, g, dy, *(op.arrays[name] for name in RESULTS)])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_blocks_of_8_and_16_have_the_same_bits(isa: str) -> None:
    wide, narrow = Op((3, 2, 35, 16)), Op((3, 4, 35, 8))
    narrow.arrays.update(wide.arrays)
    narrow.fields.update(wide.arrays)

    def halves(values: Any) -> Any:
        return values.reshape(3, 2, 35, 2, 8).transpose(0, 1, 3, 2, 4).reshape(3, 4, 35, 8)

    narrow.x, narrow.dy = (np.ascontiguousarray(halves(v)) for v in (wide.x, wide.dy))
    np.testing.assert_array_equal(narrow.forward(), halves(wide.forward()))
    np.testing.assert_array_equal(narrow.backward(), halves(wide.backward()))


# What plans and checks do ------------------------------------------------------------------------


def plan(grid: Grid, threads: int) -> dict[str, Any]:
    norm = Norm(None, None, EPS, False, None)
    return SingleNorm(NumPyBackend(threads), norm, grid[1] * grid[3], grid).fields


def test_how_plans_cut_tensors() -> None:
    small, large = plan((2, 16, 49, 16), 4), plan((32, 16, 3136, 16), 4)
    assert (small["pixels"], small["total"], small["together"]) == (49, 98, 0)
    assert (large["pixels"], large["together"]) == (3136, 1)
    assert plan((2, 7, 49, 16), 4)["together"] == 2**18 // (2 * 49 * 16)
    last = plan((2, 1, 3136, 64), 4)
    assert (last["pixels"], last["total"]) == (PIECE // 64, 6272)
    assert last["near"].size == -(-6272 // (PIECE // 64)) * 64
    assert plan((5, 1, 1, 8192), 2)["pixels"] == 5


@needs_library
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros(3, np.float32)}, "x has 3 elements, the kernel needs 840"),
        ({"kept": np.zeros(839, np.float32)}, "kept has 839 elements, the kernel needs 840"),
        ({"near": np.zeros(8, np.float32)}, "near has 8 elements, the kernel needs 24"),
        ({"factor": np.zeros(23, np.float32)}, "factor has 23 elements, the kernel needs 24"),
        ({"eps": np.zeros(0, np.float32)}, "eps has 0 elements, the kernel needs 1"),
        ({"block": 12, "blocks": 2}, "does not take blocks of 12 channels, .* multiple of 8"),
        ({"pixels": 34, "block": 8, "blocks": 3}, "does not take 35 pixels in pieces of 34"),
        ({"pixels": 0}, "does not take 35 pixels in pieces of 0"),
    ],
)
def test_wrong_sizes_are_refused(change: dict[str, Any], message: str) -> None:
    op = Op((1, 1, 35, 24))
    with pytest.raises(BackendError, match=f"kernel norm_forward: {message}"):
        op.forward(**change)
