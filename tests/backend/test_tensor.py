"""Tensors: which copy is fresh, what survives a change of layout, and arrays given out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Window
from pycaffe_fire.backend.tensor import BOTH, NATIVE, PLAIN, ZERO, Layout, Tensor, aligned
from pycaffe_fire.errors import NetError

SHAPE = (2, 3)
VALUES = np.arange(6, dtype=np.float32).reshape(SHAPE)


class Backwards(Layout):
    """All elements in reverse order, and two more behind them."""

    is_plain = False

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__(shape)
        self.elements += 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backwards) and self.shape == other.shape

    __hash__ = Layout.__hash__


class CountingBackend(NumPyBackend):
    """Knows the reversed layout and counts conversions."""

    def __init__(self) -> None:
        super().__init__()
        self.conversions: list[str] = []

    def to_plain(self, tensor: Tensor, out: Any) -> None:
        self.conversions.append("out")
        assert tensor.buffer is not None
        out[...] = tensor.buffer[: out.size][::-1].reshape(out.shape)

    def from_plain(self, tensor: Tensor, source: Any) -> None:
        self.conversions.append("in")
        assert tensor.buffer is not None
        tensor.buffer[: source.size] = source.reshape(-1)[::-1]


@pytest.fixture
def backend() -> CountingBackend:
    return CountingBackend()


@pytest.fixture
def tensor(backend: CountingBackend) -> Tensor:
    """A tensor in the reversed layout that holds VALUES in native form."""
    made = backend.tensor(SHAPE)
    made.lay_out(Backwards(SHAPE))
    made.array[...] = VALUES
    made.sync()
    made._plain, made.fresh = None, NATIVE
    backend.conversions.clear()
    return made


def native(tensor: Tensor) -> Any:
    assert tensor.buffer is not None
    return tensor.buffer[:6][::-1].reshape(SHAPE)


def test_a_new_tensor_is_zero_and_has_no_memory(backend: CountingBackend) -> None:
    made = backend.tensor(SHAPE)
    assert made.fresh == ZERO and made.buffer is None
    assert not made.array.any()


def test_plain_arrays_are_the_storage_itself(backend: CountingBackend) -> None:
    made = backend.tensor(SHAPE)
    made.array[...] = VALUES
    assert np.shares_memory(made.array, made.buffer)
    np.testing.assert_array_equal(made.buffer, VALUES.reshape(-1))
    assert not backend.conversions


def test_asking_for_the_array_converts_once(tensor: Tensor, backend: CountingBackend) -> None:
    np.testing.assert_array_equal(tensor.array, VALUES)
    np.testing.assert_array_equal(tensor.array, VALUES)
    assert backend.conversions == ["out"] and tensor.fresh == PLAIN


def test_writes_reach_the_native_copy_at_the_next_sync(
    tensor: Tensor, backend: CountingBackend
) -> None:
    tensor.array[0, 0] = 9
    tensor.sync()
    assert native(tensor)[0, 0] == 9 and tensor.fresh == BOTH
    tensor.sync()
    assert backend.conversions == ["out", "in"]


def test_clearing_touches_no_memory(tensor: Tensor, backend: CountingBackend) -> None:
    tensor.clear()
    assert native(tensor).any()
    assert not tensor.array.any()
    tensor.clear()
    tensor.sync()
    assert not native(tensor).any() and not backend.conversions


def test_a_change_of_layout_keeps_the_value(tensor: Tensor, backend: CountingBackend) -> None:
    tensor.lay_out(backend.plain_layout(SHAPE))
    np.testing.assert_array_equal(tensor.array, VALUES)
    assert np.shares_memory(tensor.array, tensor.buffer)
    tensor.lay_out(Backwards(SHAPE))
    tensor.sync()
    np.testing.assert_array_equal(native(tensor), VALUES)


def test_a_change_of_shape_starts_at_zero(tensor: Tensor, backend: CountingBackend) -> None:
    tensor.lay_out(Backwards((3, 3)))
    assert tensor.fresh == ZERO and tensor.shape == (3, 3)
    assert not tensor.array.any()


def test_the_same_layout_is_no_change(tensor: Tensor, backend: CountingBackend) -> None:
    before = tensor.layout
    tensor.lay_out(Backwards(SHAPE))
    assert tensor.layout is before and not backend.conversions


def test_a_pinned_tensor_keeps_its_layout(tensor: Tensor, backend: CountingBackend) -> None:
    tensor.pinned = True
    tensor.lay_out(backend.plain_layout(SHAPE))
    assert isinstance(tensor.layout, Backwards)
    np.testing.assert_array_equal(tensor.array, VALUES)


@pytest.mark.parametrize("asked", [False, True])
def test_moving_takes_the_value_along(tensor: Tensor, asked: bool) -> None:
    if asked:
        assert tensor.array is not None  # the plain copy is the fresh one now
    target = np.full(8, -1, np.float32)
    tensor.move(target)
    assert tensor.buffer is target
    np.testing.assert_array_equal(tensor.array, VALUES)
    tensor.sync()
    np.testing.assert_array_equal(target[:6][::-1].reshape(SHAPE), VALUES)


def test_binding_does_not(tensor: Tensor) -> None:
    tensor.bind(np.full(8, -1, np.float32))
    assert (tensor.array == -1).all()


def run(tensor: Tensor, value: Any = None) -> None:
    """What the face does around a pass that reads the tensor, or writes `value`."""
    tensor.before_run()
    if value is None:
        tensor.sync()
    else:
        assert tensor.buffer is not None
        tensor.buffer[:6] = value.reshape(-1)[::-1]
        tensor.fresh = NATIVE
    tensor.after_run()


def test_a_held_array_stays_live_in_both_directions(tensor: Tensor) -> None:
    held = tensor.array
    run(tensor, VALUES * 2)
    np.testing.assert_array_equal(held, VALUES * 2)
    held[0, 0] = 50
    run(tensor)
    assert native(tensor)[0, 0] == 50
    held[0, 0] = 60
    run(tensor)
    assert native(tensor)[0, 0] == 60
    run(tensor, VALUES)
    np.testing.assert_array_equal(held, VALUES)


def test_a_part_of_an_array_is_held_too(tensor: Tensor) -> None:
    row = tensor.array[1]
    run(tensor, VALUES * 3)
    np.testing.assert_array_equal(row, VALUES[1] * 3)


def test_an_array_nobody_holds_costs_nothing(tensor: Tensor, backend: CountingBackend) -> None:
    assert tensor.array.shape == SHAPE
    run(tensor, VALUES * 2)
    assert backend.conversions == ["out"]
    run(tensor)
    assert backend.conversions == ["out"]


def test_the_backend_knows_what_it_gave_out(backend: CountingBackend) -> None:
    made = backend.tensor(SHAPE)
    made.lay_out(Backwards(SHAPE))
    assert made not in backend.exported
    assert not made.array.any()
    assert made in backend.exported


def test_aligned_memory() -> None:
    for elements in (1, 7, 1000):
        made = aligned(elements, np.dtype(np.float32))
        assert made.size == elements and made.ctypes.data % 64 == 0


def test_a_blob_gives_value_and_gradient_one_layout(backend: CountingBackend) -> None:
    blob = Blob(backend, SHAPE, "b")
    blob.data[...] = VALUES
    blob.diff[...] = -VALUES
    blob.lay_out(Backwards(SHAPE))
    assert blob.gradient.layout is blob.value.layout
    np.testing.assert_array_equal(blob.data, VALUES)
    np.testing.assert_array_equal(blob.diff, -VALUES)
    blob.reshape(4, 1)
    assert blob.value.layout.is_plain and blob.diff.shape == (4, 1)


def test_legacy_axes_and_descriptions(backend: CountingBackend) -> None:
    blob = Blob(backend, (2, 3, 4), "b")
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (2, 3, 4, 1, 24)
    assert blob.shape_string() == "2 3 4 (24)"
    assert blob.canonical_axis(-1) == 2
    with pytest.raises(IndexError, match=r"axis 3 .*\[2, 3, 4\]"):
        blob.canonical_axis(3)


def test_impossible_shapes(backend: CountingBackend) -> None:
    with pytest.raises(NetError, match='"b": negative dimension'):
        Blob(backend, (2, -1), "b")
    blob = Blob(backend, (2,), "b")
    with pytest.raises(NetError, match="4,294,967,296 elements.*smaller"):
        blob.reshape(1 << 16, 1 << 16)
    assert blob.shape == (2,)


@pytest.mark.parametrize("channels", [16, 13])
def test_scores_in_a_blocked_layout(channels: int) -> None:
    """One pixel's channels lie in plain order, unless the last block is filled up."""
    backend = cpu_backend()
    y: Any
    x, y, w = (Blob(backend, s) for s in ((3, 16, 1, 1), (3, channels, 1, 1), (channels, 16, 1, 1)))
    rng = np.random.default_rng(0)
    x.data[...], w.data[...] = rng.standard_normal(x.shape), rng.standard_normal(w.shape)
    backend.convolution(x, w, None, y, Window((1, 1), (1, 1), (0, 0), (1, 1)), 1).forward()
    expected = x.data.reshape(3, 16) @ w.data.reshape(channels, 16).T
    np.testing.assert_allclose(y.data[:, :, 0, 0], expected, rtol=1e-4, atol=1e-5)
    if backend.name == "onednn":
        assert y.value.layout.has_plain_order == (channels == 16)


def test_native_layouts_of_the_real_backend() -> None:
    """A blocked layout, if this machine has one: plain arrays see the same values."""
    real: Any = cpu_backend(1)
    if real.name != "onednn":
        pytest.skip("no oneDNN library")
    from pycaffe_fire.backend.plans import Window

    x, w = Blob(real, (2, 16, 6, 6), "x"), Blob(real, (16, 16, 3, 3), "w")
    y = Blob(real, (2, 16, 4, 4), "y")
    rng = np.random.default_rng(0)
    x.data[...] = rng.normal(size=x.shape)
    values = rng.normal(size=w.shape).astype(np.float32)
    w.data[...] = values
    plan = real.convolution(x, w, None, y, Window((3, 3), (1, 1), (0, 0), (1, 1)), 1)
    plan.forward()
    assert not y.value.layout.is_plain and w.value.pinned
    np.testing.assert_array_equal(w.data, values)
    held = y.data
    before = held.copy()
    y.value.before_run()
    w.data[...] *= 2
    plan.forward()
    y.value.after_run()
    np.testing.assert_allclose(held, 2 * before, rtol=1e-5, atol=1e-5)
