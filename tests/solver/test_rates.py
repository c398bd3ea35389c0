"""Learning-rate policies against their formulas."""

from __future__ import annotations

from math import cos, exp, pi
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire import schema
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver.rates import Plateau, learning_rate, passed_steps
from tests.solver.solver_cases import body, make, rows_layer, same_bits, weights, write_rows


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
        (
            'lr_policy: "poly" power: 2 max_iter: 100 min_lr: 0.1',
            lambda i: 0.1 + 0.4 * (1 - i / 100) ** 2,
        ),
        (
            'lr_policy: "cosine" max_iter: 100 min_lr: 0.1',
            lambda i: 0.1 + 0.4 * (1 + cos(pi * i / 100)) / 2,
        ),
        (
            'lr_policy: "exp" gamma: 0.5 min_lr: 0.1',
            lambda i: max(0.1, 0.5 * 0.5**i),
        ),
        (
            'lr_policy: "fixed" rampup_interval: 20 rampup_lr: 0.1',
            lambda i: 0.1 + 0.4 * min(i / 20, 1),
        ),
        (
            'lr_policy: "step" gamma: 0.5 stepsize: 10 warmup_iter: 20 warmup_start_lr: 0.1',
            lambda i: 0.1 + 0.4 * i / 20 if i < 20 else 0.5 * 0.5 ** (i // 10),
        ),
        (
            'lr_policy: "fixed" rampup_interval: 20 min_lr: 0.2',
            lambda i: max(0.2, 0.5 * min(i / 20, 1)),
        ),
    ],
)
def test_policies(settings: str, expected: object) -> None:
    assert callable(expected)
    for i in (0, 1, 4, 5, 9, 10, 19, 20, 21, 50, 99, 100):
        assert rate(settings, i) == pytest.approx(expected(i), rel=1e-6)


STAGED = (
    'lr_policy: "multifixed" stagelr: 0.001 stagelr: 0.01 stagelr: 0.1 '
    "stageiter: 5 stageiter: 20 stageiter: 50 "
)


def test_stages_of_fixed_rates(tmp_path: Path) -> None:
    """An iteration belongs to the first stage that ends at it or later; the last never ends."""
    for i, want in ((0, 0.001), (5, 0.001), (6, 0.01), (20, 0.01), (21, 0.1), (99, 0.1)):
        param = schema.parse_text(STAGED, schema.SolverParameter())  # files have no base_lr then
        assert learning_rate(param, i) == pytest.approx(want)
    net = rows_layer(write_rows(tmp_path), 4) + body()
    staged, plain = (
        make(net, f"max_iter: 2 random_seed: 1 {text}")
        for text in (
            'lr_policy: "multifixed" stagelr: 0.25 stagelr: 0.125 stageiter: 0 stageiter: 9',
            'lr_policy: "step" base_lr: 0.25 gamma: 0.5 stepsize: 1',
        )
    )
    for run in (staged, plain):
        run.step(2)
    assert same_bits(weights(staged), weights(plain))


def test_stages_need_a_rate_and_an_end_each() -> None:
    with pytest.raises(SolverError, match="a stageiter for each stage, got 1 and 0"):
        rate('lr_policy: "multifixed" stagelr: 0.1', 0)


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


@pytest.mark.parametrize("values", [[3, 3, 3], [4, 1, 9], [0, 0, 5], []])
def test_steps_are_taken_as_by_a_solver_that_looks_at_one_in_each_iteration(
    values: list[int],
) -> None:
    param, step = schema.SolverParameter(stepvalue=values), 0
    for iteration in range(12):
        if step < len(values) and iteration >= values[step]:
            step += 1
        assert passed_steps(param, iteration) == step


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", "needs an lr_policy.*multistep"),
        ('lr_policy: "stepp"', 'unknown lr_policy "stepp".*did you mean "step"'),
        ('lr_policy: "step" gamma: 0.1', "stepsize of at least 1"),
        ('lr_policy: "poly"', "needs a max_iter"),
        ('lr_policy: "cosine"', "needs a max_iter"),
        ('lr_policy: "stepp" rampup_interval: 9', 'unknown lr_policy "stepp"'),
        ('lr_policy: "plateau" gamma: 0.1', "needs a plateau_winsize of at least 1"),
        ('lr_policy: "plateau" plateau_winsize: 3 plateau_winsize: 0', "plateau_winsize"),
        ('lr_policy: "fixed" min_lr: 0.6', r"between 0 and base_lr \(0.5\), got 0.6"),
        ('lr_policy: "fixed" min_lr: -0.1', "min_lr must lie between"),
    ],
)
def test_refusals(settings: str, message: str) -> None:
    with pytest.raises(SolverError, match=message):
        rate(settings, 0)


PLATEAU = (
    'base_lr: 0.5 lr_policy: "plateau" gamma: 0.1 plateau_winsize: 3 plateau_winsize: 2 '
    "random_seed: 5 momentum: 0.9 "
)


def rates_of(losses: list[float], settings: str = "") -> list[float]:
    param = schema.parse_text(PLATEAU + settings, schema.SolverParameter())
    plateau, found = Plateau(param), []
    for iteration, loss in enumerate(losses):
        plateau.observe(iteration, loss)
        found.append(learning_rate(param, iteration, plateau.seen) / 0.5)
    return found


def test_plateau() -> None:
    """A window without a new minimum lowers the rate; the next window counts from there."""
    losses = [3, 2, 2, 2.5, 2, 1.9, 1.8, 1.9, 1.9, 1.9, 1.9]
    expected = [1, 1, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01]
    assert rates_of(losses) == pytest.approx(expected)
    assert rates_of([5 - 0.1 * i for i in range(20)]) == [1] * 20
    assert rates_of([1, float("nan"), 2, 2]) == pytest.approx([1, 1, 1, 0.1])


def test_plateau_waits_for_the_end_of_the_warm_up() -> None:
    found = rates_of([1.0] * 10, "warmup_iter: 4 warmup_start_lr: 0.1")
    assert found[4:] == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01])


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_plateau_goes_on_from_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Also where the loss is an average over iterations before the snapshot."""
    monkeypatch.chdir(tmp_path)
    text = rows_layer(write_rows(tmp_path), 8) + body()
    settings = PLATEAU + f'average_loss: 3 snapshot_prefix: "run" snapshot_format: {form}'
    events: list[Any] = []
    whole, half, resumed = (make(text, settings, observers=[events.append]) for _ in range(3))
    whole.step(12)
    assert whole.plateau.seen and events[-1].rate < events[0].rate
    half.step(5)
    half.snapshot()
    suffix = ".h5" if form == "HDF5" else ""
    state = schema.read_state(f"run_iter_5.solverstate{suffix}")
    assert state.current_step == half.plateau.seen
    assert state.minimum_loss == pytest.approx(half.plateau.minimum_loss, rel=1e-6)
    assert state.iter_last_event == half.plateau.last_event
    resumed.restore(f"run_iter_5.solverstate{suffix}")
    assert resumed.plateau.state() == half.plateau.state()
    resumed.step(7)
    assert same_bits(weights(resumed), weights(whole))
    assert resumed.lr == whole.lr


def test_plateau_goes_on_from_a_forks_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA's and Intel's states say in fields of theirs where a plateau stands."""
    monkeypatch.chdir(tmp_path)
    solver = make(rows_layer(write_rows(tmp_path), 8) + body(), PLATEAU + 'snapshot_prefix: "run"')
    solver.step(2)
    solver.snapshot()
    state = schema.SolverState.FromString(Path("run_iter_2.solverstate").read_bytes())
    state.ClearField("fire_extra")
    state.current_step, state.minimum_loss, state.iter_last_event = 1, 0.25, 1
    Path("fork.solverstate").write_bytes(state.SerializeToString())
    solver.restore("fork.solverstate")
    assert solver.plateau.state() == [1, 0.25, 1]
    solver.step(1)
    assert solver.lr == pytest.approx(0.05)
    solver.step(1)
    assert solver.lr == pytest.approx(0.005)


def test_the_loss_of_a_plateau_is_that_of_all_leaves(tmp_path: Path) -> None:
    text = rows_layer(write_rows(tmp_path), 8) + body()
    found = []
    for threads in (1, 2):
        solver = make(text, PLATEAU, threads, leaves=4)
        solver.step(8)
        found.append(solver.plateau.state())
    assert found[0] == found[1]
