"""The launch helper refuses what CuPy would pass on, and covers every element of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.cuda import launch
from pycaffe_fire.errors import BackendError
from tests.cuda.cuda_emulator import EmulationError, Module


def device(cupy: Any, *values: Any) -> list[Any]:
    return [cupy.asarray(np.float32(v)) for v in values]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (lambda x, y: (4, x, 0.5), "takes 6 arguments, got 2"),
        (lambda x, y: (4, x, 0.5, 0, 0, 0, np.zeros(4)), "y: expected a device array, got ndarray"),
        (
            lambda x, y: (4, x.astype(np.float64), 0.5, 0, 0, 0, y),
            "expected float32, got an array of float",
        ),
        (lambda x, y: (2, x[::2], 0.5, 0, 0, 0, y), "a contiguous array, got a view with strides"),
        (lambda x, y: (4, x, x, 0, 0, 0, y), "slope: expected a number, got an array"),
        (lambda x, y: (4.0, x, 0.5, 0, 0, 0, y), "n: expected an integer, got float"),
    ],
)
def test_refuses(cuda: Any, cupy: Any, arguments: Any, match: str) -> None:
    x, y = device(cupy, np.ones(4), np.ones(4))
    with pytest.raises(BackendError, match=match):
        cuda.kernels["relu"](*arguments(x, y))


def test_refuses_counts_that_do_not_fit(cuda: Any, cupy: Any) -> None:
    x, y = device(cupy, np.ones(4), np.ones(4))
    with pytest.raises(BackendError, match="n: expected at most 2,147,483,647, got 2,147,483,648"):
        cuda.kernels["bias_relu"](2**31, x, 1, 1, 0, 0.0, 0, y)


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 1000, 5000])
@pytest.mark.parametrize("blocks", [1, 3, launch.MAX_BLOCKS])
def test_every_element_is_written_once(
    cuda: Any, cupy: Any, n: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the grid is smaller than the work, so that threads loop."""
    monkeypatch.setattr(launch, "MAX_BLOCKS", blocks)
    values = np.arange(n) - n / 2
    x, y = device(cupy, values, np.zeros(n))
    cuda.kernels["relu"](n, x, 0.5, 0, 0, 0, y)
    np.testing.assert_array_equal(y.get(), np.where(values > 0, values, values / 2))
    cuda.kernels["weighted_sum"](n, y, x, None, None, 1.0, 2.0, 0.0, 0.0, 0, 0.0, y)
    expected = np.where(values > 0, values, values / 2) + 2 * values
    np.testing.assert_array_equal(y.get(), np.float32(expected))


def test_signatures_are_read_as_the_compiler_reads_them(cuda: Any) -> None:
    codes = {"float32": "f4", "float64": "f8", "int32": "i4", "int64": "i8"} | {
        "uint64": "u8",
        "uint16": "u2",
    }
    for name, (file, parameters, _) in launch._catalogue().items():
        seen = [code.removeprefix("c") for code in Module(launch.source_of(file))[name].signature]
        read = ["P" * p.pointer + codes[np.dtype(p.dtype or np.float32).name] for p in parameters]
        assert read == seen, name


def test_all_indices_that_are_divided_fit(cuda: Any) -> None:
    """A kernel with `int n` is only right below 2^31 elements, which blobs never exceed."""
    for name, (_, parameters, _) in launch._catalogue().items():
        assert parameters[0].name == "n" and parameters[0].dtype in (np.int32, np.int64), name


# The emulator itself must be able to find mistakes.

RACE = """
extern "C" __global__ void reverse(int n, const float* x, float* y) {
  __shared__ float copy[256];
  copy[threadIdx.x] = x[threadIdx.x];
  SYNC
  y[threadIdx.x] = copy[n - 1 - threadIdx.x];
}
"""


def reversed_by(source: str, order: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(Module, "order", order)
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    Module(source)["reverse"]((1,), (64,), (np.int32(64), x, y))
    return y


def test_emulator_runs_barriers(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for order in (0, 1, 2):
        found = reversed_by(RACE.replace("SYNC", "__syncthreads();"), order, monkeypatch)
        np.testing.assert_array_equal(found, np.arange(64)[::-1])


def test_emulator_finds_a_missing_barrier(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.isnan(reversed_by(RACE.replace("SYNC", ""), 0, monkeypatch)).any()


def test_emulator_finds_a_divergent_barrier(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    divergent = RACE.replace("SYNC", "if (threadIdx.x < 32) return; __syncthreads();")
    with pytest.raises(EmulationError, match="some threads never reach"):
        reversed_by(divergent, 0, monkeypatch)
