"""STOCHASTIC pooling: how often each value is drawn, and what zeros give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pycaffe_fire.backend.numpy import NumPyBackend
from tests.layers.case import Case, Trial

CASE = Case(
    "stochastic",
    "Pooling",
    "pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }",
    ((50, 40, 2, 2),),
)


def test_values_are_drawn_in_proportion() -> None:
    window = np.array([[1.0, 2.0], [0.0, 5.0]])
    (drawn,) = Trial(CASE, NumPyBackend()).forward([np.broadcast_to(window, CASE.shapes[0])])
    for value in window.reshape(-1):
        assert abs((drawn == value).mean() - value / 8) < 0.03
    (expected,) = Trial(replace(CASE, phase="TEST"), NumPyBackend()).forward([window[None, None]])
    np.testing.assert_allclose(expected, 30 / 8)


def test_windows_of_zeros_give_zero() -> None:
    for phase in ("TRAIN", "TEST"):
        results = Trial(replace(CASE, phase=phase), NumPyBackend()).both([np.zeros((2, 2))])
        assert not results[0].any() and np.isfinite(results[1]).all()


def test_draws_do_not_depend_on_how_the_batch_is_cut() -> None:
    (x,) = replace(CASE, fill=("positive",)).values()
    (whole,) = Trial(CASE, NumPyBackend()).forward([x])
    for leaf, part in enumerate(np.split(x, 2)):
        trial = Trial(CASE.with_batch(25), NumPyBackend())
        trial.net.context.leaves, trial.net.context.leaf = 2, leaf
        np.testing.assert_array_equal(trial.forward([part])[0], np.split(whole, 2)[leaf])
