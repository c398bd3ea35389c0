"""Fast kernels of update rules against the rules' array code, on every backend."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.cpu import update
from pycaffe_fire.backend.cuda import launch
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Segment
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver.rules import RULES, Formula, Rule
from tests.cuda.cuda_nets import SOLVER, inception, solver_of, train
from tests.solver.rule_cases import CASES, rule_of

SEGMENTS = [
    Segment(0, 2 * 4096 + 5, 1.0, 1.0),
    Segment(8208, 8208, 1.0, 1.0),
    Segment(8208, 8211, 2.0, 0.5),
    Segment(8224, 29_999, 0.5, 0.0),
]
BUFFER = 30_000


def updated(backend: Backend, rule: Rule, l1: bool, own: bool) -> dict[str, Any]:
    """Weights and history after two updates, of which one may have a rate for each parameter."""
    rng = np.random.default_rng(4)
    xp = backend.xp
    w, g, *history = (xp.asarray(rng.random(BUFFER, np.float32)) for _ in range(2 + rule.slots))
    step = backend.update(rule.formula, SEGMENTS)
    rates = xp.asarray(np.array([0.1, 0.2, 0.3, 0.4])) if own else None
    for iteration, each in enumerate((rates, None)):
        step(w, g, history, 0.05, 0.01, l1, 0.5, rule.numbers(iteration), each)
    found = {"weights": w, **{f"history {i}": h for i, h in enumerate(history)}}
    return {name: a if backend.on_host else a.get() for name, a in found.items()}


def test_every_rule_has_a_case() -> None:
    assert {rule_of(case).param.type for case in CASES} == set(RULES)
    decoupled = {rule_of(case).param.type for case in CASES if CASES[case].decoupled}
    assert decoupled == {name for name in RULES if RULES[name].can_decouple}


def test_every_kernel_belongs_to_a_rule() -> None:
    named = {rule_of(case).formula.kernel for case in CASES}
    assert {*update.RULES, *launch.kernel_names("update")} <= named


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("l1", [False, True], ids=["L2", "L1"])
@pytest.mark.parametrize("own", [False, True], ids=["one rate", "own rates"])
def test_kernels_compute_the_array_code(fast: Backend, case: str, l1: bool, own: bool) -> None:
    rule = rule_of(case)
    got, want = (updated(backend, rule, l1, own) for backend in (fast, NumPyBackend()))
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=2e-5, atol=1e-6, err_msg=name)


# A rule that somebody registers, with array code alone.


def signed(xp: Any, w: Any, g: Any, h: Any, rate: float, momentum: float) -> None:
    h[...] = momentum * h + (1 - momentum) * g
    w -= rate * xp.sign(h)


class Signed(Rule):
    formula = Formula(signed)

    def numbers(self, iteration: int) -> tuple[float, ...]:
        return (self.param.momentum,)


SIGNED = SOLVER.replace('lr_policy: "inv"', 'type: "Signed" lr_policy: "inv"')


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RULES, "_items", dict(RULES._items))
    RULES.register("Signed")(Signed)


@pytest.mark.parametrize("own", [False, True], ids=["one rate", "own rates"])
def test_array_code_serves_every_backend(fast: Backend, own: bool) -> None:
    rule = Signed(schema.parse_text("momentum: 0.9", schema.SolverParameter()))
    got, want = (updated(backend, rule, False, own) for backend in (fast, NumPyBackend()))
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-6, atol=1e-7, err_msg=name)


def test_a_users_rule_trains(registered: None, fast: Backend, tmp_path: Path) -> None:
    net = inception(tmp_path)
    want, got = (train(net, b, 3, settings=SIGNED) for b in (NumPyBackend(), fast))
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_users_rule_in_pycaffe(
    registered: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    param = schema.parse_text(SIGNED, schema.SolverParameter())
    param.net_param.CopyFrom(inception(tmp_path))

    class SignedSolver(caffe.SGDSolver):
        type = "Signed"

    solvers = [caffe.get_solver(param), caffe.get_solver(param), SignedSolver(param)]
    assert type(solvers[0]) is type(solvers[1])
    assert "is used, as in pycaffe" not in caplog.text
    with caplog.at_level(logging.WARNING):
        for solver in solvers:
            solver.step(2)
            assert isinstance(solver.rule, Signed)
            solver.close()


def test_a_gpu_skips_array_code_after_an_overflow(cuda: Any) -> None:
    rng = np.random.default_rng(1)
    w, g, h = (cuda.xp.asarray(rng.random(BUFFER, np.float32)) for _ in range(3))
    before = w.get(), h.get()
    step, skip = cuda.update(Signed.formula, SEGMENTS), cuda.xp.asarray(np.array([1], np.int32))
    step.skip_where(skip)
    step(w, g, [h], 0.1, 0.01, False, 1.0, (0.9,))
    np.testing.assert_array_equal(w.get(), before[0])
    np.testing.assert_array_equal(h.get(), before[1])
    skip[...] = 0
    step(w, g, [h], 0.1, 0.01, False, 1.0, (0.9,))
    assert (w.get() != before[0]).any() and (h.get() != before[1]).any()


def test_array_code_waits_for_nothing_on_a_gpu(cuda: Any, cupy: Any) -> None:
    step = cuda.update(Signed.formula, SEGMENTS)
    w, g, h = (cuda.xp.zeros(BUFFER, np.float32) for _ in range(3))
    rates = cuda.xp.zeros(len(SEGMENTS), np.float64)
    cupy.cuda.waits.clear()
    step(w, g, [h], 0.1, 0.01, False, 1.0, (0.9,), rates)
    assert not cupy.cuda.waits


def test_a_graph_refuses_array_code(registered: None, cuda: Any, tmp_path: Path) -> None:
    with pytest.raises(SolverError, match='solver type "Signed" has no kernel for GPUs'):
        solver_of(inception(tmp_path), cuda, SIGNED, cuda_graph=True)
