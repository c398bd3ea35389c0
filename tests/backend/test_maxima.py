"""Maxima and their winners in blocks of channels, and what comes back to those without a voice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.compiled import available, use_threads
from pycaffe_fire.backend.kernels.maxima import SILENT
from pycaffe_fire.backend.kernels.pooling import max_backward, maxima
from pycaffe_fire.backend.kernels.sweeps import WHOLE
from tests.random_numbers import RNG

pytestmark = pytest.mark.skipif(not available(), reason="there is no other form of these kernels")


def by_definition(x: Any, out: tuple[int, int], kernel: Any, stride: Any, pad: Any) -> Any:
    """Maxima and winners: the first of equals, NaN before all."""
    planes, height, width, b = x.shape
    y = np.empty((planes, *out, b), np.float32)
    winners = np.empty(y.shape, np.uint8)
    for plane, i, j, c in np.ndindex(y.shape):
        best, winner = np.finfo(np.float32).min, 0
        for cell in range(kernel[0] * kernel[1]):
            row = i * stride[0] - pad[0] + cell // kernel[1]
            column = j * stride[1] - pad[1] + cell % kernel[1]
            if 0 <= row < height and 0 <= column < width:
                value = x[plane, row, column, c]
                if not (value <= best or np.isnan(best)):
                    best, winner = value, cell
        y[plane, i, j, c] = best
        winners[plane, i, j, c] = winner if best > 0 else winner + SILENT
    return y, winners


@pytest.mark.parametrize("side", [2, 3])
@pytest.mark.parametrize("pad", [(0, 0), (1, 1), (0, 1)])
@pytest.mark.parametrize("vectors", [1, 2])
def test_maxima_and_their_gradient(side: int, pad: tuple[int, int], vectors: int) -> None:
    use_threads(2)
    kernel, stride, out = (side, side), (2, 2), (4, 5)
    x = RNG.integers(-4, 2, (3, 7, 9, vectors * WHOLE)).astype(np.float32)  # many are equal
    x[0, 2, 2, :3] = np.nan, np.inf, -np.inf
    x[1, :, :, 0] = -np.inf
    y, winners = np.empty((3, *out, x.shape[3]), np.float32), np.zeros((3, *out, x.shape[3]), "u1")
    maxima(x, y, winners, kernel, stride, pad)
    expected, cells = by_definition(x, out, kernel, stride, pad)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(winners, cells)

    dy = RNG.standard_normal(y.shape, np.float32)
    for silent in (1, 0):
        dx = np.full_like(x, np.nan)
        max_backward(dy, winners, dx, kernel, stride, pad, np.float32(silent))
        back = np.zeros(x.shape)
        for plane, i, j, c in np.ndindex(y.shape):
            cell = int(winners[plane, i, j, c])
            row = i * stride[0] - pad[0] + cell % SILENT // side
            column = j * stride[1] - pad[1] + cell % SILENT % side
            if 0 <= row < 7 and 0 <= column < 9:
                share = silent if cell >= SILENT else 1
                back[plane, row, column, c] += share * dy[plane, i, j, c]
        np.testing.assert_allclose(dx, back, rtol=1e-6, atol=1e-6)
