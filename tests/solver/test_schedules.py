"""Momentum and weight decay that change while training, and updates that are left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver.schedules import momentum, weight_decay
from tests.solver.solver_cases import SGD, body, make, rows_layer, same_bits, weights, write_rows


def solver(text: str) -> schema.SolverParameter:
    return schema.parse_text(text, schema.SolverParameter())


BASE = 'base_lr: 0.04 lr_policy: "fixed" max_iter: 4 momentum: 0.5 weight_decay: 0.1 '


def test_momentum_policies() -> None:
    poly = solver(BASE + 'momentum_policy: "poly" max_momentum: 0.9 momentum_power: 2')
    assert [momentum(poly, i) for i in (0, 2, 4, 9)] == pytest.approx([0.5, 0.6, 0.9, 0.9])
    best = solver(BASE + 'momentum_policy: "opt"')
    assert momentum(best, 3) == pytest.approx(0.81)
    assert momentum(solver(BASE + 'momentum_policy: "opt" max_momentum: 0.7'), 3) == (
        pytest.approx(0.7)
    )
    assert momentum(solver(BASE), 3) == 0.5


def test_weight_decay_policies() -> None:
    poly = solver(BASE + 'weight_decay_policy: "poly" weight_decay_power: 2')
    assert [weight_decay(poly, i) for i in (0, 2, 4)] == pytest.approx([0, 0.025, 0.1])
    assert weight_decay(solver(BASE), 0) == pytest.approx(0.1)


def test_weight_decay_may_rise_or_fall_to_another() -> None:
    rising = solver(
        BASE + 'weight_decay_policy: "poly" max_weight_decay: 0.5 weight_decay_power: 2'
    )
    assert [weight_decay(rising, i) for i in (0, 2, 4, 9)] == pytest.approx([0.1, 0.2, 0.5, 0.5])
    falling = solver(BASE + 'weight_decay_policy: "poly" max_weight_decay: 0')
    assert [weight_decay(falling, i) for i in (0, 2, 4)] == pytest.approx([0.1, 0.05, 0])


def test_a_run_follows_both(tmp_path: Path) -> None:
    """One iteration at a time, with the numbers that the policies give for it."""
    net = rows_layer(write_rows(tmp_path), 4) + body()
    policies = ('momentum_policy: "poly" max_momentum: 0.99 weight_decay_policy: "poly" '
                "max_iter: 4")  # fmt: skip
    followed = make(net, SGD + policies)
    by_hand = make(net, SGD + "max_iter: 4")
    for i in range(3):
        by_hand.param.momentum = momentum(followed.param, i)
        by_hand.param.weight_decay = weight_decay(followed.param, i)
        by_hand.step(1)
    followed.step(3)
    for name, value in weights(followed).items():
        np.testing.assert_allclose(value, weights(by_hand)[name], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "text, message",
    [
        ('momentum_policy: "step"', 'unknown momentum_policy "step"; known: fixed, poly, opt'),
        ('weight_decay_policy: "opt"', 'unknown weight_decay_policy "opt"'),
        ('momentum_policy: "poly"', "needs a max_iter"),
        ("max_weight_decay: 0.1", 'max_weight_decay is for weight_decay_policy "poly"'),
        ('type: "Adam" momentum_policy: "opt"', "solver types SGD and Nesterov"),
    ],
)
def test_refusals(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SolverError, match=message):
        make(rows_layer(write_rows(tmp_path), 4) + body(), SGD + text)


def test_disabled_update_leaves_the_weights(tmp_path: Path) -> None:
    made = make(rows_layer(write_rows(tmp_path), 4) + body(), SGD + "disabled_update: true")
    before = weights(made)
    made.step(3)
    assert made.iter == 3 and same_bits(before, weights(made))
    assert any(blob.diff.any() for blobs in made.net.params.values() for blob in blobs)
