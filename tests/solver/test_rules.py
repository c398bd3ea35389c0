"""Every update rule against a plain float64 loop: decay, clipping, passes, leaves, local rates."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Segment
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver import Solver, SolverOptions
from tests.solver.rule_cases import CASES
from tests.solver.solver_cases import body, make, rows_layer, same_bits, weights, write_rows

Array = np.ndarray[Any, Any]

COMMON = ' base_lr: 0.02 lr_policy: "step" gamma: 0.5 stepsize: 2 random_seed: 5 '
SPECS = "param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0.5 }"
FROZEN = "param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 0 }"


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return write_rows(tmp_path)


class Reference:
    """The solver's arithmetic in float64, one parameter after the other."""

    def __init__(self, solver: Solver) -> None:
        self.solver, self.p = solver, solver.param
        self.items = solver.net.parameters.items
        self.w = [b.data.astype(np.float64) for bs in solver.net.params.values() for b in bs]
        self.h = [[np.zeros_like(w) for _ in solver.history] for w in self.w]
        self.correlation = [0.0] * len(self.w)

    def step(self, rule: str) -> None:
        """One iteration of the solver, then ours from its gradients."""
        t, case = self.solver.iter, CASES[rule]
        self.solver.step(1)
        parameters = self.solver.net.parameters
        gradients = [
            parameters.like(i, self.solver.leaves.gradients).array.astype(np.float64)
            / self.solver.leaves.count
            for i in range(len(self.items))
        ]
        scale = 1.0
        norm = sqrt(sum(float((g**2).sum()) for g in gradients))
        if 0 <= self.p.clip_gradients < norm:
            scale = self.p.clip_gradients / norm
        base = self.p.base_lr * self.p.gamma ** (t // 2)
        for i, item in enumerate(self.items):
            g = gradients[i] * scale / self.p.iter_size
            rate = self.rate(i, g, base, t)
            w = self.w[i]
            pull = np.sign(w) if self.p.regularization_type == "L1" else w
            pull = self.p.weight_decay * item.decay_mult * pull
            if case.decoupled:
                self.w[i] = w - case.move(self.p, self.h[i], g, rate, t) - rate * pull
            else:
                self.w[i] = w - case.move(self.p, self.h[i], g + pull, rate, t)

    def rate(self, i: int, g: Array, base: float, t: int) -> float:
        p, mult = self.p, self.items[i].lr_mult
        if not (p.larc or p.local_lr_auto):
            return base * mult
        weight, gradient = sqrt((self.w[i] ** 2).sum()), sqrt((g**2).sum())
        local = 1.0
        if weight > 0 and gradient > 0:
            if p.larc:
                local = p.larc_eta * weight / gradient
            else:
                local = p.local_gw_ratio * weight / (gradient + p.weight_decay * weight)
        if p.larc_turbo and t > 1:
            momentum = self.h[i][0]
            length = gradient * sqrt((momentum**2).sum())
            cosine = float((g * momentum).sum()) / length if length > 0 else 0.0
            self.correlation[i] = 0.95 * self.correlation[i] + 0.05 * cosine
            local *= 1 - 0.9 * self.correlation[i]
        local = local if mult > 0 else mult
        return min(base, local) if p.larc and p.larc_policy == "clip" else base * local


def compare(solver: Solver, rule: str, steps: int = 5) -> None:
    reference = Reference(solver)
    before = weights(solver)
    for _ in range(steps):
        reference.step(rule)
    after = weights(solver)
    for (name, got), want in zip(after.items(), reference.w, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-6, err_msg=name)
    assert not same_bits(after, before)
    solver.close()


@pytest.mark.parametrize("rule", CASES)
@pytest.mark.parametrize("kind", ["L1", "L2"])
@pytest.mark.parametrize(
    "more", ["", "clip_gradients: 0.3 iter_size: 3"], ids=["plain", "clipped passes"]
)
def test_rules(rows: str, rule: str, kind: str, more: str) -> None:
    decay = f'weight_decay: 0.05 regularization_type: "{kind}" '
    solver = make(
        rows_layer(rows, 4) + body(specs=SPECS), CASES[rule].settings + COMMON + decay + more
    )
    compare(solver, rule)


@pytest.mark.parametrize("rule", ["sgd", "nesterov", "adam", "adamw", "rmsprop"])
@pytest.mark.parametrize(
    "how",
    [
        "larc: true larc_eta: 0.01",
        'larc: true larc_eta: 0.01 larc_policy: "clip"',
        "local_lr_auto: true local_gw_ratio: 0.02",
    ],
    ids=["scale", "clip", "lars"],
)
@pytest.mark.parametrize("leaves", [1, 4])
def test_local_rates(rows: str, rule: str, how: str, leaves: int) -> None:
    more = f"weight_decay: 0.05 clip_gradients: 0.5 iter_size: 2 {how}"
    text = rows_layer(rows, 8) + body(specs=SPECS)
    compare(make(text, CASES[rule].settings + COMMON + more, leaves=leaves), rule)


@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_turbo(rows: str, rule: str) -> None:
    text = rows_layer(rows, 8) + body(specs=SPECS)
    more = CASES[rule].settings + COMMON + "weight_decay: 0.05 larc: true larc_eta: 0.01 "
    plain, solver = make(text, more), make(text, more + "larc_turbo: true")
    compare(solver, rule, 8)
    plain.step(8)
    assert not same_bits(weights(plain), weights(solver))


def test_a_parameter_without_rate_stays(rows: str) -> None:
    text = rows_layer(rows, 8) + body(specs=FROZEN)
    for how in ("larc: true", 'larc: true larc_policy: "clip"', "local_lr_auto: true"):
        solver = make(text, CASES["sgd"].settings + COMMON + how)
        before = weights(solver)
        solver.step(2)
        after = weights(solver)
        assert (after["ip_1"] == before["ip_1"]).all()
        assert (after["ip_0"] != before["ip_0"]).any()


def test_local_rates_have_the_same_bits_on_any_number_of_threads(rows: str) -> None:
    settings = CASES["sgd"].settings + COMMON + "larc: true larc_turbo: true clip_gradients: 0.5"
    found = []
    for threads in (1, 2):
        solver = make(rows_layer(rows, 8) + body(specs=SPECS), settings, threads, leaves=4)
        solver.step(5)
        found.append(weights(solver))
    assert same_bits(*found)


def test_dots_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(2)
    segments = [
        Segment(0, 100_001, 1, 1),
        Segment(100_016, 100_016, 1, 1),
        Segment(100_016, 140_000, 1, 1),
    ]
    a, b = (rng.standard_normal(140_000).astype(np.float32) for _ in range(2))
    want = [
        float((a[s.start : s.stop].astype(np.float64) * b[s.start : s.stop]).sum())
        for s in segments
    ]
    found = [cpu_backend(threads).dots(segments)(a, b) for threads in (1, 2)]
    assert found[0].dtype == np.float64 and (found[0] == found[1]).all()
    np.testing.assert_allclose(found[0], want, rtol=1e-12)
    np.testing.assert_allclose(NumPyBackend().dots(segments)(a, b), want, rtol=1e-12)


def test_the_plain_backend_follows_local_rates_too(rows: str) -> None:
    more = "larc: true larc_turbo: true weight_decay: 0.05 decoupled_decay: true"
    fast = make(rows_layer(rows, 8) + body(specs=SPECS), CASES["adam"].settings + COMMON + more)
    plain = Solver(fast.param, SolverOptions(NumPyBackend(), fast.seed))
    compare(plain, "adamw")
    fast.step(5)
    for name, want in weights(plain).items():
        np.testing.assert_allclose(weights(fast)[name], want, rtol=1e-3, atol=1e-5, err_msg=name)


def test_turbo_goes_on_from_a_snapshot(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = (
        CASES["sgd"].settings + COMMON + 'larc: true larc_turbo: true snapshot_prefix: "run" '
    )
    whole, half, resumed = (make(rows_layer(rows, 8) + body(), settings) for _ in range(3))
    whole.step(8)
    half.step(4)
    half.snapshot()
    resumed.restore("run_iter_4.solverstate")
    resumed.step(4)
    assert same_bits(weights(resumed), weights(whole))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("decoupled_decay: true", 'an option of solver type "Adam"; "SGD" has none'),
        ('larc: true larc_policy: "clamp"', 'must be "scale" or "clip", got "clamp"'),
        ("larc: true local_lr_auto: true", "keep one of them"),
        ("larc: true larc_eta: 0", "larc_eta must be above 0, got 0"),
        ("local_lr_auto: true local_gw_ratio: -1", "local_gw_ratio must be above 0, got -1"),
        ('type: "AdaGrad" larc: true larc_turbo: true', 'momentum, which solver type "AdaGrad"'),
    ],
)
def test_refusals(rows: str, settings: str, message: str) -> None:
    with pytest.raises(SolverError, match=message):
        make(rows_layer(rows, 8) + body(), f'base_lr: 0.1 lr_policy: "fixed" {settings}')
