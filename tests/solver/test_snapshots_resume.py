"""Going on from a snapshot: everything that comes after is as if there had been no stop."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.solver import Action, Solver, SolverOptions, events, read_param
from tests.solver.kill_cases import Case
from tests.solver.solver_cases import SGD, body, make, rows_layer, same_bits, weights, write_rows

PREFIX = 'snapshot_prefix: "out/run" '
ACCURACY = (
    'layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" '
    "include { phase: TEST } }\n"
)
TESTS = "test_iter: 3 test_interval: 4 average_loss: 5 "


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def closing() -> Iterator[list[Solver]]:
    solvers: list[Solver] = []
    yield solvers
    for solver in solvers:
        solver.close()


def numbers(told: list[Any]) -> list[Any]:
    """Losses, rates and test outputs as they were told."""
    return [
        (e.iteration, e.loss, e.rate) if isinstance(e, events.Trained) else (e.iteration, e.outputs)
        for e in told
        if isinstance(e, events.Trained | events.Tested)
    ]


def record(path: str) -> dict[str, Any]:
    """What a state says about its run, less when it was written."""
    found: dict[str, Any] = json.loads(schema.read_state(path).extra)
    return {k: v for k, v in found.items() if k not in ("written", "checksum")}


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("leaves", [1, 4])
@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_everything_goes_on(
    folder: Path, closing: list[Solver], kind: str, leaves: int, form: str
) -> None:
    """Dropout, crops, mirrors, shuffling, moving averages, passes, tests, averaged losses."""
    case = Case(folder, kind, leaves, form, every=0)
    told: dict[str, list[Any]] = {"whole": [], "half": [], "rest": []}

    def solver(name: str) -> Solver:
        param = read_param("solver.prototxt")
        options = SolverOptions(
            cpu_backend(1), param.random_seed, leaves=leaves, observers=[told[name].append],
            keep_best="accuracy",
        )  # fmt: skip
        made = Solver(param, options)
        closing.append(made)
        return made

    whole, half, rest = (solver(name) for name in told)
    whole.step(32)
    whole.snapshot()
    last = f"out/run_iter_32.solverstate{case.suffix}"
    final = schema.read_state(last), record(last)
    half.step(19)  # one iteration after a test
    half.snapshot()
    rest.restore(f"out/run_iter_19.solverstate{case.suffix}")
    rest.step(13)
    rest.snapshot()
    assert numbers(told["half"]) + numbers(told["rest"]) == numbers(told["whole"])
    assert same_bits(weights(rest), weights(whole))
    state = schema.read_state(last)
    assert [h.tobytes() for h in state.history] == [h.tobytes() for h in final[0].history]
    assert record(last) == final[1]


def net_with_test(folder: Path) -> str:
    return rows_layer(write_rows(folder), 8) + body() + ACCURACY


def test_a_stop_in_the_middle_of_tests_undoes_them(folder: Path) -> None:
    whole, stopped, resumed = (make(net_with_test(folder), SGD + PREFIX + TESTS) for _ in range(3))
    told: list[Any] = []
    whole.observers.append(told.append)
    whole.step(9)
    looks = [0]

    def stop_in_the_second_test() -> Action:
        looks[0] += stopped.iter == 4
        return Action.STOP if looks[0] == 2 else Action.NONE

    stopped.requested_action = stop_in_the_second_test
    stopped.step(9)
    assert stopped.stopped_early and stopped.iter == 4
    stopped.snapshot()
    rest: list[Any] = []
    resumed.observers.append(rest.append)
    resumed.restore("out/run_iter_4.solverstate")
    resumed.step(5)
    assert numbers(rest) == [n for n in numbers(told) if n[0] >= 4]


def test_tests_that_were_complete_are_not_repeated(folder: Path) -> None:
    """A snapshot of the best result is taken after the test, one at an interval before it."""
    text, settings = net_with_test(folder), SGD + PREFIX + TESTS
    whole, resumed = make(text, settings, keep_best="min:loss"), make(text, settings)
    told: list[Any] = []
    whole.observers.append(told.append)
    whole.step(9)
    best = schema.read_state("out/run_best.solverstate")
    assert whole.best is not None and best.iter == whole.best.iteration > 0
    rest: list[Any] = []
    resumed.observers.append(rest.append)
    resumed.restore("out/run_best.solverstate")
    resumed.step(9 - best.iter)
    after = [e for e in told if not isinstance(e, events.Tested) or e.iteration > best.iter]
    assert numbers(rest) == [n for n in numbers(after) if n[0] >= best.iter]


def test_caffes_state_gives_the_position_by_its_iteration(folder: Path) -> None:
    text, settings = net_with_test(folder), SGD + PREFIX + TESTS
    whole, resumed = make(text, settings), make(text, settings)
    told: list[Any] = []
    whole.observers.append(told.append)
    whole.step(6)
    whole.snapshot()
    whole.step(4)
    state = schema.read_state("out/run_iter_6.solverstate")
    state.extra = b""
    schema.write_state("out/run_iter_6.solverstate", state)
    rest: list[Any] = []
    resumed.observers.append(rest.append)
    resumed.restore("out/run_iter_6.solverstate")
    assert resumed.test_steps == [6]  # two tests of three passes: at 0 and at 4
    resumed.step(4)
    tests = [(e.iteration, e.outputs) for e in told if isinstance(e, events.Tested)]
    assert [(e.iteration, e.outputs) for e in rest if isinstance(e, events.Tested)] == tests[2:]
    assert same_bits(weights(resumed), weights(whole))


def test_other_data_is_noticed(folder: Path, caplog: Any) -> None:
    net = rows_layer(write_rows(folder), 8) + body()
    solver = make(net, SGD + PREFIX)
    solver.step(2)
    solver.snapshot()
    assert record("out/run_iter_2.solverstate")["data"] == {"train data": [16, 24]}
    other = make(net.replace("batch_size: 8", "batch_size: 4"), SGD)
    with caplog.at_level(logging.WARNING, "pycaffe_fire"):
        other.restore("out/run_iter_2.solverstate")
    assert "train data: goes on at sample 8 of a source of 24 records" in caplog.text
    assert "stood at 16 of 24" in caplog.text


@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_gradients_of_all_leaves_are_saved(folder: Path, suffix: str) -> None:
    form = "snapshot_format: HDF5" if suffix else ""
    settings = SGD + f"snapshot_diff: true {form} "
    text = rows_layer(write_rows(folder), 8) + body()
    saved = []
    for leaves in (1, 4):
        solver = make(text, f'{settings} snapshot_prefix: "of{leaves}"', leaves=leaves)
        solver.step(1)
        solver.snapshot()
        saved.append(diffs(f"of{leaves}_iter_1.caffemodel{suffix}"))
        solver.close()
    one, four = saved
    assert one.keys() == four.keys() and len(one) == 4
    for name, diff in one.items():
        assert abs(diff).max() > 1e-3
        assert abs(diff - four[name]).max() < 1e-5 * abs(diff).max()


def diffs(path: str) -> dict[str, Any]:
    import h5py
    import numpy as np

    if path.endswith(".h5"):
        with h5py.File(path) as file:
            return {
                f"{layer}/{i}": file["diff"][layer][i][...]
                for layer in file["diff"]
                for i in file["diff"][layer]
            }
    net = schema.NetParameter.FromString(Path(path).read_bytes())
    return {
        f"{layer.name}/{i}": np.array(blob.diff)
        for layer in net.layer
        for i, blob in enumerate(layer.blobs)
    }


def test_only_rank_0_writes(folder: Path) -> None:
    solver = make(rows_layer(write_rows(folder), 8) + body(), SGD + PREFIX)
    solver.communicator.rank = 1
    solver.snapshot()
    assert not os.path.exists("out")


STREAM = """
layer { name: "data" type: "DummyData" top: "data" top: "cont" top: "target" dummy_data_param {
  shape { dim: 4 dim: 2 dim: 3 } shape { dim: 4 dim: 2 } shape { dim: 4 dim: 2 dim: 5 }
  data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 1 }
  data_filler { type: "uniform" min: -1 max: 1 } } }
layer { name: "lstm" type: "LSTM" bottom: "data" bottom: "cont" top: "lstm"
  recurrent_param { num_output: 5 weight_filler { type: "uniform" min: -1 max: 1 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "lstm" bottom: "target" top: "loss" }
"""


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_hidden_states_go_on(form: str, closing: list[Solver]) -> None:
    """Sequences never end here, so every pass starts with what the one before left."""
    text = f"{SGD} {PREFIX} max_iter: 6 snapshot: 3 snapshot_format: {form}"
    whole = make(STREAM, text)
    whole.solve()
    resumed = make(STREAM, text)
    closing += [whole, resumed]
    suffix = ".h5" if form == "HDF5" else ""
    resumed.restore(f"out/run_iter_3.solverstate{suffix}")
    memory = resumed.net.layers[1].memory
    assert memory is not None and abs(memory[0][0]).max() > 0
    resumed.step(3)
    assert same_bits(weights(whole), weights(resumed))
