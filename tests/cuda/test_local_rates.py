"""Norms, local rates and smoothed labels on the emulated device, as on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Segment
from tests.cuda.cuda_emulator import Module
from tests.cuda.cuda_nets import inception, solver_of, train
from tests.random_numbers import RNG

SEGMENTS = [
    Segment(0, 2 * 4096 + 5, 1.0, 1.0),
    Segment(8208, 8208, 1.0, 1.0),
    Segment(8208, 8211, 2.0, 0.5),
    Segment(8224, 9999, 0.0, 1.0),
]
SETTINGS = (
    'base_lr: 0.05 lr_policy: "fixed" weight_decay: 0.01 random_seed: 3 display: 0 '
    "snapshot_after_train: false momentum: 0.9 "
)


@pytest.mark.parametrize("order", [0, 1, 2], ids=["forward", "reverse", "shuffled"])
def test_dots(cuda: Any, order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (np.float32(RNG.standard_normal(10000)) for _ in range(2))
    want = NumPyBackend().dots(SEGMENTS)(a, b)
    plan, device = cuda.dots(SEGMENTS), (cuda.xp.asarray(a), cuda.xp.asarray(b))
    first = plan(*device).get()
    np.testing.assert_allclose(first, want, rtol=1e-10, atol=1e-12)
    monkeypatch.setattr(Module, "order", order)
    np.testing.assert_array_equal(plan(*device).get(), first)


@pytest.mark.parametrize(
    ("settings", "leaves"),
    [
        ("larc: true larc_turbo: true", 1),
        ('larc: true larc_policy: "clip" clip_gradients: 0.1', 2),
        ("local_lr_auto: true local_gw_ratio: 0.01 iter_size: 2", 1),
        ('type: "Adam" momentum2: 0.99 delta: 1e-4 decoupled_decay: true larc: true', 1),
    ],
    ids=["turbo", "clip", "lars", "adamw"],
)
def test_solvers_end_where_the_cpu_ends(
    cuda: Any, tmp_path: Path, settings: str, leaves: int
) -> None:
    net = inception(tmp_path)
    net.layer[-1].loss_param.label_smoothing = 0.1
    options = {"settings": SETTINGS + settings, "leaves": leaves}
    want, got = train(net, NumPyBackend(), 4, **options), train(net, cuda, 4, **options)
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-3, atol=1e-5, err_msg=name)


def test_local_rates_wait_for_nothing(cuda: Any, cupy: Any, tmp_path: Path) -> None:
    solver = solver_of(inception(tmp_path), cuda, SETTINGS + "larc: true larc_turbo: true")
    solver.step(3)
    cupy.cuda.waits.clear()
    solver.step(3)
    places = {wait.rpartition("/")[2].partition(":")[0] for wait in cupy.cuda.waits}
    assert places == {"uploads.py"}
    solver.close()
