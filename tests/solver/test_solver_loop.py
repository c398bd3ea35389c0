"""When the solver trains, tests, displays, snapshots and stops."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver import Action, Solver, SolverOptions
from pycaffe_fire.solver import events as happened
from pycaffe_fire.solver.events import Evaluated, Finished, Saved, Trained
from tests.solver.solver_cases import (
    SGD,
    body,
    make,
    records_layer,
    rows_layer,
    same_bits,
    weights,
    write_records,
    write_rows,
)

ACCURACY = (
    'layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" '
    "include { phase: TEST } }\n"
)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: Any) -> str:
    monkeypatch.chdir(tmp_path)
    return write_rows(tmp_path)


def events(solver: Solver, kind: type) -> list[Any]:
    found: list[Any] = []
    solver.observers.append(lambda event: found.append(event) if isinstance(event, kind) else None)
    return found


def test_two_runs_are_bit_identical_and_seeds_matter(rows: str) -> None:
    text = rows_layer(rows, 8) + body()
    first, again, other = make(text), make(text), make(text, seed=6)
    assert not same_bits(weights(first), weights(other))
    for solver in (first, again, other):
        solver.step(5)
    assert same_bits(weights(first), weights(again))
    assert not same_bits(weights(first), weights(other))


def test_steps_of_the_rate_are_logged_as_by_caffe(rows: str, caplog: Any) -> None:
    policy = 'base_lr: 0.1 lr_policy: "multistep" gamma: 0.5 stepvalue: 2 stepvalue: 3'
    solver = make(rows_layer(rows, 8) + body(), policy)
    with caplog.at_level(logging.INFO, "pycaffe_fire"):
        caplog.clear()
        solver.step(5)
    lines = [r.getMessage() for r in caplog.records if "MultiStep" in r.getMessage()]
    assert lines == [f"MultiStep Status: Iteration {i}, step = {i - 1}" for i in (2, 3)]


def test_losses_fall(rows: str) -> None:
    solver = make(rows_layer(rows, 24) + body())
    seen = events(solver, Trained)
    solver.step(30)
    assert [event.iteration for event in seen] == list(range(30))
    assert seen[-1].loss < 0.5 * seen[0].loss
    assert solver.iter == 30


def test_average_loss_is_the_mean_of_the_last_few(rows: str) -> None:
    single, smooth = (
        make(rows_layer(rows, 8) + body(), SGD + f"average_loss: {n}") for n in (1, 3)
    )
    plain, averaged = events(single, Trained), events(smooth, Trained)
    single.step(6)
    smooth.step(6)
    losses = [event.loss for event in plain]
    expected = [np.mean(losses[max(0, i - 2) : i + 1]) for i in range(6)]
    assert [event.loss for event in averaged] == pytest.approx(expected, rel=1e-6)


def test_tests_at_their_interval(rows: str) -> None:
    text = rows_layer(rows, 8) + body() + ACCURACY
    solver = make(
        text, SGD + "test_iter: 3 test_interval: 2 max_iter: 4 snapshot_after_train: false"
    )
    seen = events(solver, happened.Tested)
    solver.solve()
    assert [event.iteration for event in seen] == [0, 2, 4]
    assert [output.name for output in seen[0].outputs] == ["accuracy", "loss"]
    assert [output.loss_weight for output in seen[0].outputs] == [0, 1]
    assert seen[0].outputs[1].value > seen[-1].outputs[1].value


def test_no_test_before_training_if_not_wanted(rows: str) -> None:
    text = rows_layer(rows, 8) + body()
    settings = SGD + "test_iter: 1 test_interval: 2 test_initialization: false"
    solver = make(text, settings)
    seen = events(solver, happened.Tested)
    solver.step(3)
    assert [event.iteration for event in seen] == [2]


def test_test_outputs_are_means_over_all_passes(rows: str) -> None:
    """Three passes of 8 cover all 24 rows, whatever the training batch is."""
    train = rows_layer(rows, 4).replace("top:", "include { phase: TRAIN } top:", 1)
    test = rows_layer(rows, 8).replace("top:", "include { phase: TEST } top:", 1)
    solver = make(
        train + test + body() + ACCURACY,
        SGD + "test_iter: 3 test_interval: 100 test_compute_loss: true",
    )
    whole = make(rows_layer(rows, 24) + body())
    seen = events(solver, happened.Tested)
    solver.step(2)
    for name, blobs in solver.net.params.items():
        for mine, theirs in zip(blobs, whole.net.params[name], strict=True):
            theirs.data[...] = mine.data
    solver.test(0)
    expected = whole.net.run_forward()
    assert seen[-1].outputs[1].value == pytest.approx(expected, rel=1e-5)
    assert seen[-1].loss == pytest.approx(expected, rel=1e-5)
    right = (whole.net.blobs["ip"].data.argmax(axis=1) == whole.net.blobs["label"].data).mean()
    assert seen[-1].outputs[0].value == pytest.approx(right, abs=1e-6)


def test_several_test_nets_and_states(rows: str) -> None:
    text = rows_layer(rows, 8) + body() + ACCURACY.replace("phase: TEST", 'stage: "score"')
    settings = SGD + (
        'test_iter: 1 test_iter: 2 test_interval: 5 test_state { stage: "score" } test_state { }'
    )
    solver = make(text, settings)
    seen = events(solver, happened.Tested)
    solver.test_all()
    assert [len(event.outputs) for event in seen] == [2, 1]
    assert [net.phase for net in solver.test_nets] == [schema.TEST] * 2


def test_train_state_levels_and_stages(rows: str) -> None:
    gate = DEEP = (
        'layer { name: "deep" type: "ReLU" bottom: "pool" top: "pool" include { RULE } }\n'
    )
    text = rows_layer(rows, 8) + body(between=gate.replace("RULE", "min_level: 2"))
    assert "deep" in [each.name for each in make(text, SGD + "train_state { level: 2 }").net.layers]
    assert "deep" in [each.name for each in make(text, level=2).net.layers]
    assert "deep" not in [each.name for each in make(text).net.layers]
    text = rows_layer(rows, 8) + body(between=DEEP.replace("RULE", 'stage: "s"'))
    assert "deep" in [each.name for each in make(text, stages=["s"]).net.layers]


def test_displayed_iterations_carry_outputs(rows: str) -> None:
    solver = make(rows_layer(rows, 8) + body(), SGD + "display: 2")
    seen = events(solver, Trained)
    solver.step(4)
    assert [event.display for event in seen] == [True, False, True, False]
    assert [output.name for output in seen[0].outputs] == ["loss"]
    assert seen[0].outputs[0].value == pytest.approx(seen[0].loss)
    assert not seen[1].outputs
    assert seen[0].rate == pytest.approx(0.05)


def test_the_end_of_solve(rows: str) -> None:
    """As Caffe: one more forward for the display, one more test, a snapshot."""
    settings = SGD + 'display: 2 max_iter: 4 test_iter: 1 test_interval: 4 snapshot_prefix: "end"'
    solver = make(rows_layer(rows, 8) + body(), settings)
    evaluated, finished, saved = (events(solver, k) for k in (Evaluated, Finished, Saved))
    solver.solve()
    assert [event.iteration for event in evaluated] == [4]
    assert [event.early for event in finished] == [False]
    assert [event.path for event in saved] == ["end_iter_4.caffemodel", "end_iter_4.solverstate"]
    assert all(Path(event.path).exists() for event in saved)


def test_a_request_to_stop(rows: str) -> None:
    settings = SGD + 'max_iter: 9 snapshot_prefix: "stopped"'
    solver = make(rows_layer(rows, 8) + body(), settings)
    finished = events(solver, Finished)
    solver.requested_action = lambda: Action.STOP if solver.iter == 3 else Action.NONE
    solver.solve()
    assert solver.iter == 3 and finished[0].early
    assert Path("stopped_iter_3.solverstate").exists()
    solver.requested_action = lambda: Action.NONE
    solver.solve()
    assert solver.iter == 9 and not finished[1].early


def test_a_request_for_a_snapshot(rows: str) -> None:
    solver = make(rows_layer(rows, 8) + body(), SGD + 'snapshot_prefix: "asked"')
    solver.requested_action = lambda: Action.SNAPSHOT if solver.iter == 2 else Action.NONE
    solver.step(4)
    assert solver.iter == 4
    assert sorted(p.name for p in Path().glob("asked*")) == [
        "asked_iter_2.caffemodel", "asked_iter_2.solverstate",
    ]  # fmt: skip


def test_requests_while_testing(rows: str) -> None:
    settings = SGD + 'test_iter: 4 test_interval: 2 max_iter: 9 snapshot_prefix: "tests"'
    solver = make(rows_layer(rows, 8) + body(), settings)
    asked = iter([Action.NONE, Action.SNAPSHOT, Action.STOP])
    solver.requested_action = lambda: next(asked, Action.NONE)
    tested = events(solver, happened.Tested)
    solver.solve()
    assert solver.iter == 0 and not tested
    assert Path("tests_iter_0.caffemodel").exists()


def test_debug_info_at_displayed_iterations_only(rows: str, caplog: Any) -> None:
    solver = make(rows_layer(rows, 8) + body(), SGD + "debug_info: true display: 2")
    for shown in (True, False, True):
        caplog.clear()
        with caplog.at_level(logging.INFO, "pycaffe_fire"):
            solver.step(1)
        text = "\n".join(record.getMessage() for record in caplog.records)
        assert ("[Forward] Layer conv, top blob conv data" in text) == shown
        assert ("[Backward] All net params (data, diff): L1 norm = (" in text) == shown
        assert ("[Update] Layer conv, param 0 data: " in text) == shown


def test_solver_runs_from_a_shuffled_database(tmp_path: Path) -> None:
    source = write_records(tmp_path)
    text = records_layer(source, 8, "shuffle: true") + body()
    a, b, ordered = make(text), make(text), make(text.replace("shuffle: true", ""))
    for solver in (a, b, ordered):
        solver.step(4)
    assert same_bits(weights(a), weights(b))
    assert not same_bits(weights(a), weights(ordered))
    for solver in (a, b, ordered):
        solver.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("test_iter: 1", "test_interval"),
        ("test_iter: 0 test_interval: 1", "test_iter must be at least 1"),
        ("test_iter: 1 test_interval: 1 test_state { } test_state { }", "test_state.*got 2"),
        ('net: "other.prototxt"', "exactly one of.*net"),
    ],
)
def test_refusals(rows: str, settings: str, message: str) -> None:
    with pytest.raises(SolverError, match=message):
        make(rows_layer(rows, 8) + body(), SGD + settings)


def test_no_net() -> None:
    with pytest.raises(SolverError, match="exactly one of.*got none"):
        Solver(schema.parse_text(SGD, schema.SolverParameter()), SolverOptions(NumPyBackend(), 0))


def test_clipping_is_logged_as_in_caffe(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    net = rows_layer(write_rows(tmp_path), 8) + body()
    solver = make(net, SGD + "clip_gradients: 0.001")
    solver.step(1)
    solver.close()
    told = (
        r"Gradient clipping: scaling down gradients \(L2 norm (\S+) > 0.001\) by scale factor (\S+)"
    )
    line = re.search(told, caplog.text)
    assert line is not None
    assert float(line[1]) * float(line[2]) == pytest.approx(0.001, rel=1e-4)
