"""Kernels on arrays that are written past the caches, and on those that are as large but do not
begin with a line of the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.compiled import available, use_threads
from pycaffe_fire.backend.instructions import LARGE
from pycaffe_fire.backend.kernels import joined
from pycaffe_fire.backend.kernels.sweeps import WHOLE
from pycaffe_fire.backend.tensor import aligned
from tests.random_numbers import RNG

pytestmark = pytest.mark.skipif(not available(), reason="there is no other form of these kernels")


def array(shape: tuple[int, ...], shift: int, fill: bool = True) -> Any:
    count = int(np.prod(shape))
    made = aligned(count + shift, np.dtype(np.float32))[shift:].reshape(shape)
    made[...] = RNG.standard_normal(shape, np.float32) if fill else np.nan
    return made


@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize("vectors", [1, joined.PIECE // WHOLE + 5, LARGE // WHOLE])
def test_parts_side_by_side(vectors: int, shift: int) -> None:
    use_threads(2)
    whole = array((3, (vectors + 4) * WHOLE), shift, fill=False)
    place = slice(3 * WHOLE, (vectors + 3) * WHOLE)
    part, values = (array((3, vectors * WHOLE), shift) for _ in range(2))
    joined.put(part, whole, place.start)
    np.testing.assert_array_equal(whole[:, place], part)
    assert np.isnan(np.delete(whole, place, axis=1)).all()

    back = array(part.shape, shift, fill=False)
    joined.take(whole, place.start, back, np.empty((0, 0), np.float32))
    np.testing.assert_array_equal(back, part)
    joined.take(whole, place.start, back, values)
    np.testing.assert_array_equal(back, np.where(values > 0, part, 0))
