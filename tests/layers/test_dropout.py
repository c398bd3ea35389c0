"""Dropout's masks: what share they keep, what they scale by, and what they depend on."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.numpy import NumPyBackend
from tests.layers.case import Array, Case, Trial

BACKENDS = [pytest.param(lambda: cpu_backend(1), id="cpu"), pytest.param(NumPyBackend, id="numpy")]


def dropped(shape: tuple[int, ...], backend: Backend, ratio: float = 0.3, **at: int) -> Array:
    """The top for a bottom of ones, at some place of the run."""
    case = Case("dropout", "Dropout", f"dropout_param {{ dropout_ratio: {ratio} }}", (shape,))
    trial = Trial(case, backend)
    for field, value in at.items():
        setattr(trial.net.context, field, value)
    return trial.forward([np.ones(shape)])[0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.8])
def test_kept_share_and_scale(backend: type[Backend], ratio: float) -> None:
    top = dropped((50, 2000), backend(), ratio)
    kept = top != 0
    np.testing.assert_allclose(top[kept], 1 / (1 - ratio), rtol=1e-6)
    assert kept.mean() == pytest.approx(1 - ratio, abs=0.01)
    assert kept.mean(axis=1).std() < 0.02 and kept.mean(axis=0).std() < 0.1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rest", [(37,), (16, 3, 3), (3, 5, 5)])
def test_masks_do_not_depend_on_how_the_batch_is_cut(
    backend: type[Backend], rest: tuple[int, ...]
) -> None:
    whole = dropped((8, *rest), backend())
    for leaves in (2, 4, 8):
        size = (8 // leaves, *rest)
        parts = [dropped(size, backend(), leaves=leaves, leaf=i) for i in range(leaves)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_masks_differ_between_seeds_and_samples() -> None:
    top = dropped((2, 100), NumPyBackend())
    assert (top[0] != top[1]).any()
    assert (dropped((2, 100), NumPyBackend(), seed=1) != top).any()
