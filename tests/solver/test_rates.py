"""Learning-rate policies against their formulas."""

from __future__ import annotations

from math import exp

import pytest

from pycaffe_fire import schema
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver.rates import learning_rate, passed_steps


def rate(settings: str, iteration: int) -> float:
    param = schema.parse_text(f"base_lr: 0.5 {settings}", schema.SolverParameter())
    return learning_rate(param, iteration)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ('lr_policy: "fixed"', lambda i: 0.5),
        ('lr_policy: "step" gamma: 0.5 stepsize: 10', lambda i: 0.5 * 0.5 ** (i // 10)),
        ('lr_policy: "exp" gamma: 0.99', lambda i: 0.5 * 0.99**i),
        ('lr_policy: "inv" gamma: 0.1 power: 0.75', lambda i: 0.5 * (1 + 0.1 * i) ** -0.75),
        (
            'lr_policy: "multistep" gamma: 0.1 stepvalue: 5 stepvalue: 20 stepvalue: 90',
            lambda i: 0.5 * 0.1 ** ((i >= 5) + (i >= 20) + (i >= 90)),
        ),
        ('lr_policy: "poly" power: 2 max_iter: 100', lambda i: 0.5 * (1 - i / 100) ** 2),
        (
            'lr_policy: "sigmoid" gamma: -0.1 stepsize: 50',
            lambda i: 0.5 / (1 + exp(0.1 * (i - 50))),
        ),
    ],
)
def test_policies(settings: str, expected: object) -> None:
    assert callable(expected)
    for i in (0, 1, 4, 5, 9, 10, 19, 20, 21, 50, 99, 100):
        assert rate(settings, i) == pytest.approx(expected(i), rel=1e-6)


def test_sigmoid_far_from_its_middle() -> None:
    for gamma in (-1, 1):
        settings = f'lr_policy: "sigmoid" gamma: {gamma} stepsize: 100000'
        found = [rate(settings, 0), rate(settings, 200000)]
        assert found == pytest.approx([0.5, 0] if gamma < 0 else [0, 0.5])


def test_poly_behind_its_end() -> None:
    assert rate('lr_policy: "poly" power: 0.5 max_iter: 10', 11) == 0


def test_passed_steps() -> None:
    param = schema.SolverParameter(stepvalue=[5, 20])
    assert [passed_steps(param, i) for i in (4, 5, 19, 20)] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", "needs an lr_policy.*multistep"),
        ('lr_policy: "stepp"', 'unknown lr_policy "stepp".*did you mean "step"'),
        ('lr_policy: "step" gamma: 0.1', "stepsize of at least 1"),
        ('lr_policy: "poly"', "needs a max_iter"),
    ],
)
def test_refusals(settings: str, message: str) -> None:
    with pytest.raises(SolverError, match=message):
        rate(settings, 0)
