"""What one update does: decay, clipping, passes, multipliers, and the rules by their formulas."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import SolverError
from tests.solver.solver_cases import (
    SGD,
    body,
    close,
    make,
    rows_layer,
    same_bits,
    weights,
    write_rows,
)


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return write_rows(tmp_path)


def one_step(net: str, settings: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Weights before, gradients, and weights after the first iteration."""
    solver = make(net, settings)
    before = weights(solver)
    solver.step(1)
    flat = solver.leaves.gradients
    gradients = {
        f"{p.name[:-1].replace('[', '_')}": solver.net.parameters.like(i, flat).array.copy()
        for i, p in enumerate(solver.net.parameters.items)
    }
    after = weights(solver)
    solver.close()
    return before, gradients, after


def test_plain_sgd_with_l2(rows: str) -> None:
    before, grads, after = one_step(
        rows_layer(rows, 8) + body(), 'base_lr: 0.1 lr_policy: "fixed" weight_decay: 0.5'
    )
    close(after, {n: before[n] - 0.1 * (grads[n] + 0.5 * before[n]) for n in before})


def test_l1(rows: str) -> None:
    before, grads, after = one_step(
        rows_layer(rows, 8) + body(),
        'base_lr: 0.1 lr_policy: "fixed" weight_decay: 0.5 regularization_type: "L1"',
    )
    close(after, {n: before[n] - 0.1 * (grads[n] + 0.5 * np.sign(before[n])) for n in before})


def test_multipliers(rows: str) -> None:
    specs = "param { lr_mult: 2 decay_mult: 3 } param { lr_mult: 0 decay_mult: 1 }"
    before, grads, after = one_step(
        rows_layer(rows, 8) + body(specs=specs), 'base_lr: 0.1 lr_policy: "fixed" weight_decay: 0.5'
    )
    for name in ("conv", "ip"):
        expected = before[f"{name}_0"] - 0.2 * (grads[f"{name}_0"] + 1.5 * before[f"{name}_0"])
        np.testing.assert_allclose(after[f"{name}_0"], expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(after[f"{name}_1"], before[f"{name}_1"])
        assert not grads[f"{name}_1"].any()


@pytest.mark.parametrize("limit", [0.01, 1000.0])
def test_clipping_scales_all_gradients_by_their_common_norm(rows: str, limit: float) -> None:
    before, grads, after = one_step(
        rows_layer(rows, 8) + body(),
        f'base_lr: 0.1 lr_policy: "fixed" weight_decay: 0.5 clip_gradients: {limit}',
    )
    norm = sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in grads.values()))
    assert 0.01 < norm < 1000
    scale = min(1, limit / norm)
    close(after, {n: before[n] - 0.1 * (scale * grads[n] + 0.5 * before[n]) for n in before})


def test_passes_equal_one_large_batch(rows: str) -> None:
    """iter_size 3 over batches of 4 reads what one batch of 12 does; only sums differ in bits."""
    three = make(rows_layer(rows, 4) + body(), SGD + "iter_size: 3")
    one = make(rows_layer(rows, 12) + body())
    for _ in range(4):
        three.step(1)
        one.step(1)
    close(weights(three), weights(one))
    assert three.batch_size == one.batch_size == 12


def test_clipping_looks_at_the_sum_of_all_passes(rows: str) -> None:
    """Caffe clips before it divides by iter_size."""
    settings = 'base_lr: 0.1 lr_policy: "fixed" clip_gradients: 0.01 iter_size: 2'
    before, grads, after = one_step(rows_layer(rows, 4) + body(), settings)
    norm = sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in grads.values()))
    close(after, {n: before[n] - 0.1 * grads[n] * 0.01 / norm / 2 for n in before})


@pytest.mark.parametrize(
    "settings",
    [
        'type: "SGD" momentum: 0.9',
        'type: "Nesterov" momentum: 0.9',
        'type: "AdaGrad" delta: 1e-6',
        'type: "RMSProp" rms_decay: 0.9 delta: 1e-6',
        'type: "AdaDelta" momentum: 0.9 delta: 1e-4',
        'type: "Adam" momentum: 0.9 momentum2: 0.99 delta: 1e-6',
    ],
)
def test_compiled_rules_equal_the_plain_ones(rows: str, settings: str) -> None:
    text = rows_layer(rows, 8) + body()
    common = ' base_lr: 0.02 lr_policy: "fixed" weight_decay: 0.01 random_seed: 5'
    fast = make(text, settings + common)
    from pycaffe_fire.solver import Solver, SolverOptions

    plain = Solver(fast.param, SolverOptions(NumPyBackend(), fast.seed))
    start = weights(fast)
    fast.step(4)
    plain.step(4)
    close(weights(fast), weights(plain), rtol=2e-3)
    assert not same_bits(weights(fast), start)


def test_a_diverging_run_shows_nan(rows: str) -> None:
    solver = make(rows_layer(rows, 8) + body(), 'base_lr: 1e30 lr_policy: "fixed"')
    with (
        np.errstate(all="ignore"),
        pytest.raises(SolverError, match=r"iteration \d: .* (nan|inf|not finite)"),
    ):
        solver.step(4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('type: "Sgd"', 'unknown solver type "Sgd".*did you mean "SGD"'),
        ('type: "AdaGrad" momentum: 0.9', '"AdaGrad" has no momentum'),
        ('type: "RMSProp" rms_decay: 1', r"rms_decay must lie in \[0, 1\)"),
        ("iter_size: 0", "iter_size"),
        ("average_loss: 0", "average_loss"),
        ('regularization_type: "L3"', 'L1 or L2, got "L3"'),
    ],
)
def test_refusals(rows: str, settings: str, message: str) -> None:
    with pytest.raises(SolverError, match=message):
        make(rows_layer(rows, 8) + body(), f'base_lr: 0.1 lr_policy: "fixed" {settings}')
