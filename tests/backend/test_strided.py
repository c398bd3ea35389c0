"""1x1 convolutions that leave out pixels: their data gradient, and the kernel that spreads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.compiled import use_threads
from pycaffe_fire.backend.kernels.strides import spread_pixels
from tests.backend.op_cases import Array, Conv, onednn, window
from tests.random_numbers import RNG

pytest.importorskip("numba")
pytest.importorskip("pycaffe_fire.backend.onednn")
from pycaffe_fire.backend.onednn.convolution import Convolution  # noqa: E402
from pycaffe_fire.backend.onednn.strided import Strided  # noqa: E402

CASES = {
    "even": Conv((2, 32, 8, 6), 48, window((1, 1), 2)),
    "odd": Conv((3, 16, 7, 9), 32, window((1, 1), 2)),
    "one axis": Conv((1, 32, 6, 7), 16, window((1, 1), (1, 3))),
    "a single image of one pixel": Conv((1, 32, 2, 2), 32, window((1, 1), 2)),
    "blocks and a bit": Conv((2, 20, 5, 6), 36, window((1, 1), 2)),
}


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 1), (2, 5)], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_kernel_spreads_pixels(stride: tuple[int, int], threads: int) -> None:
    small, large = normal(5, 3, 4, 16), normal(5, 9, 17, 16)
    expected = np.zeros_like(large)
    expected[:, : 3 * stride[0] : stride[0], : 4 * stride[1] : stride[1]] = small
    use_threads(threads)
    spread_pixels(small, large, stride)
    np.testing.assert_array_equal(large, expected)


def gradient(case: Conv, kind: Any, threads: int, values: list[Array]) -> tuple[Any, Array]:
    """The plan, and dx of an input that lies as the library likes it."""
    backend: Any = onednn(threads)  # skips where there is none
    shapes = case.shape, case.weights, (case.outputs,), case.out
    arguments = (case.window, 1, None, False)
    x, w, b, y = (Blob(backend, shape) for shape in shapes)
    first = Convolution(backend, x, w, b, y, *arguments)
    x, w, b, y = (Blob(backend, shape) for shape in shapes)
    x.lay_out(first._chosen(x, first._hint, "src"))
    plan = kind(backend, x, w, b, y, *arguments)
    x.data[...], w.data[...], y.diff[...] = values
    x.diff[...] = 7  # whatever was there
    plan.backward(True, False, False)
    return plan, x.diff.copy()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_data_gradient_is_the_library_s(name: str, threads: int) -> None:
    case = CASES[name]
    values = [normal(*shape) for shape in (case.shape, case.weights, case.out)]
    _, expected = gradient(case, Convolution, threads, values)
    plan, found = gradient(case, Strided, threads, values)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    if name == "even":
        assert not hasattr(plan._data, "add"), "it is the library's own"


@pytest.mark.parametrize(
    ("geometry", "groups", "transposed", "is_one"),
    [
        (window((1, 1), 2), 1, False, True),
        (window((1, 1), (1, 2)), 1, False, True),
        (window((1, 1), 1), 1, False, False),
        (window((1, 1), 2), 2, False, False),
        (window((1, 1), 2), 1, True, False),
        (window((1, 1), 2, 1), 1, False, False),
        (window((3, 3), 2), 1, False, False),
        (window((1,), 2), 1, False, False),
    ],
    ids=str,
)
def test_what_it_is_for(geometry: Any, groups: int, transposed: bool, is_one: bool) -> None:
    assert Strided.is_one(geometry, groups, transposed) is is_one
