"""The arrays that kernels of batch normalisation share, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from pycaffe_fire.backend.cpu.batch_norm import CHANNEL_FIELDS, PARTIAL_FIELDS

EPS = 1e-5


def norm_arrays(norms: int, channels: int, pieces: int, slope: float) -> dict[str, Any]:
    """Arrays of norms that take the statistics of the batch; what kernels write is NaN."""
    rng = np.random.default_rng(channels)
    arrays = {name: np.full((norms, channels), np.nan, np.float32) for name in CHANNEL_FIELDS}
    arrays["scale"][...] = rng.uniform(0.5, 1.5, (norms, channels))
    arrays["shift"][...] = rng.standard_normal((norms, channels))
    partial = {name: np.full((pieces, channels), np.nan, np.float32) for name in PARTIAL_FIELDS}
    return {
        **arrays,
        **partial,
        "eps": np.full(norms, EPS, np.float32),
        "slope": np.full(norms, slope, np.float32),
        "own": np.ones(norms, np.int64),
    }
