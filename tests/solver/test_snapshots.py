"""Snapshots: names, contents, and going on as if nothing had happened."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.errors import FireError, SolverError, WeightsError
from pycaffe_fire.solver import recorded_run
from tests.solver.solver_cases import (
    DROPOUT,
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

GOLDEN = Path(__file__).parents[1] / "golden" / "solver"
PREFIX = 'snapshot_prefix: "out/run" '


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_names_at_the_interval(folder: Path) -> None:
    solver = make(rows_layer(write_rows(folder), 8) + body(), SGD + PREFIX + "snapshot: 2")
    solver.step(5)
    assert sorted(p.name for p in Path("out").iterdir()) == [
        "run_iter_2.caffemodel", "run_iter_2.solverstate",
        "run_iter_4.caffemodel", "run_iter_4.solverstate",
    ]  # fmt: skip
    state = schema.read_state("out/run_iter_4.solverstate")
    assert (state.iter, state.learned_net) == (4, "out/run_iter_4.caffemodel")
    assert [h.shape for h in state.history] == [(16, 2, 3, 3), (16,), (4, 144), (4,)]
    assert recorded_run("out/run_iter_4.solverstate") == {"seed": 5, "leaves": 1}


def test_hdf5_names(folder: Path) -> None:
    settings = SGD + PREFIX + "snapshot_format: HDF5"
    solver = make(rows_layer(write_rows(folder), 8) + body(), settings)
    solver.step(1)
    solver.snapshot()
    assert sorted(p.name for p in Path("out").iterdir()) == [
        "run_iter_1.caffemodel.h5", "run_iter_1.solverstate.h5",
    ]  # fmt: skip


def test_prefix_from_the_solver_file(folder: Path) -> None:
    (folder / "net.prototxt").write_text(rows_layer(write_rows(folder), 8) + body())
    (folder / "deep").mkdir()
    (folder / "deep" / "my.prototxt").write_text('net: "net.prototxt" ' + SGD)
    solver = caffe.get_solver("deep/my.prototxt")
    solver.snapshot()
    assert (folder / "deep" / "my_iter_0.solverstate").exists()
    (folder / "deep" / "my.prototxt").write_text(
        'net: "net.prototxt" snapshot_prefix: "deep" ' + SGD
    )
    caffe.SGDSolver("deep/my.prototxt").snapshot()
    assert (folder / "deep" / "my_iter_0.caffemodel").exists()


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_resuming_is_not_stopping(folder: Path, kind: str, suffix: str) -> None:
    """Dropout, a shuffled database, mirrored images, passes: all go on where they were."""
    data = records_layer(write_records(folder, 20), 6, "shuffle: true")
    form = "HDF5" if suffix else "BINARYPROTO"
    settings = SGD + PREFIX + f'type: "{kind}" iter_size: 2 snapshot_format: {form}'
    text = data + body(between=DROPOUT)
    whole = make(text, settings)
    whole.step(7)
    half = make(text, settings)
    half.step(3)
    half.snapshot()
    resumed = make(text, settings)
    resumed.restore(f"out/run_iter_3.solverstate{suffix}")
    assert resumed.iter == 3 and same_bits(weights(resumed), weights(half))
    resumed.step(4)
    assert same_bits(weights(resumed), weights(whole))
    assert all((a == b).all() for a, b in zip(resumed.history, whole.history, strict=True))
    for solver in (whole, half, resumed):
        solver.close()


def test_resuming_shuffled_rows(folder: Path) -> None:
    text = rows_layer(write_rows(folder), 7, "shuffle: true") + body(between=DROPOUT)
    whole, half, resumed = (make(text, SGD + PREFIX) for _ in range(3))
    whole.step(9)
    half.step(4)
    half.snapshot()
    resumed.step(1)  # what it did before does not matter
    resumed.restore("out/run_iter_4.solverstate")
    resumed.step(5)
    assert same_bits(weights(resumed), weights(whole))


def test_resuming_with_leaves(folder: Path) -> None:
    text = rows_layer(write_rows(folder), 8) + body(between=DROPOUT)
    whole, half, resumed = (make(text, SGD + PREFIX, 2, leaves=4) for _ in range(3))
    whole.step(5)
    half.step(2)
    half.snapshot()
    assert recorded_run("out/run_iter_2.solverstate")["leaves"] == 4
    resumed.restore("out/run_iter_2.solverstate")
    resumed.step(3)
    assert same_bits(weights(resumed), weights(whole))
    for solver in (whole, half, resumed):
        solver.close()


def test_a_snapshot_in_the_middle_changes_nothing(folder: Path) -> None:
    text = rows_layer(write_rows(folder), 8) + body()
    quiet, busy = make(text, SGD), make(text, SGD + PREFIX + "snapshot: 1 snapshot_diff: true")
    quiet.step(4)
    busy.step(4)
    assert same_bits(weights(quiet), weights(busy))


def test_a_moved_snapshot_finds_its_weights(folder: Path) -> None:
    solver = make(rows_layer(write_rows(folder), 8) + body(), SGD + PREFIX)
    solver.step(2)
    solver.snapshot()
    shutil.move("out", "elsewhere")
    other = make(rows_layer(write_rows(folder), 8) + body(), SGD, seed=1)
    other.restore("elsewhere/run_iter_2.solverstate")
    assert same_bits(weights(other), weights(solver))


def test_caffe_s_snapshot_has_the_same_history(folder: Path) -> None:
    """What Caffe wrote at half time is what we have there."""
    shutil.copytree(GOLDEN / "sgd_momentum_wd_inv", folder / "case")
    import os

    os.chdir(folder / "case")
    solver = caffe.get_solver("solver.prototxt")
    solver.net.copy_from("init.caffemodel")
    solver.step(10)
    solver.param.snapshot_prefix = "mine"
    solver.snapshot()
    mine, theirs = (schema.read_state(f"{n}_iter_10.solverstate") for n in ("mine", "snap"))
    assert (mine.iter, mine.current_step) == (theirs.iter, theirs.current_step)
    for a, b in zip(mine.history, theirs.history, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


def test_a_state_of_another_solver(folder: Path) -> None:
    text = rows_layer(write_rows(folder), 8) + body()
    solver = make(text, SGD + PREFIX)
    solver.snapshot()
    other = make(text, SGD + 'type: "Adam"')
    with pytest.raises(WeightsError, match='run_iter_0.solverstate: holds 4.*"Adam".*needs 8'):
        other.restore("out/run_iter_0.solverstate")
    wider = make(text.replace("num_output: 4", "num_output: 5"))
    with pytest.raises(WeightsError, match=r"history blob 2.*ip\[0\].*\[5, 144\]"):
        wider.restore("out/run_iter_0.solverstate")


def test_a_state_without_its_weights(folder: Path) -> None:
    solver = make(rows_layer(write_rows(folder), 8) + body(), SGD + PREFIX)
    solver.snapshot()
    Path("out/run_iter_0.caffemodel").unlink()
    with pytest.raises(FireError, match="run_iter_0.caffemodel"):
        solver.restore("out/run_iter_0.solverstate")


def test_a_failed_restore_changes_nothing(folder: Path) -> None:
    text = rows_layer(write_rows(folder), 8) + body()
    solver = make(text, SGD + PREFIX)
    solver.step(2)
    solver.snapshot()
    Path("out/run_iter_2.caffemodel").unlink()
    other = make(text, SGD)
    other.step(1)
    before, history = weights(other), [h.copy() for h in other.history]
    with pytest.raises(FireError):
        other.restore("out/run_iter_2.solverstate")
    assert other.iter == 1 and same_bits(weights(other), before)
    assert all((a == b).all() for a, b in zip(other.history, history, strict=True))


def test_an_impossible_folder(folder: Path) -> None:
    Path("out").write_text("a file")
    solver = make(rows_layer(write_rows(folder), 8) + body(), SGD + PREFIX)
    with pytest.raises((SolverError, WeightsError), match="out"):
        solver.snapshot()


def test_weights_of_several_files(folder: Path) -> None:
    text = rows_layer(write_rows(folder), 8) + body()
    first, second = make(text, SGD, seed=1), make(text, SGD, seed=2)
    first.net.save("first.caffemodel")
    second.net.save("second.caffemodel")
    solver = make(text, SGD + 'weights: "first.caffemodel, second.caffemodel"')
    assert same_bits(weights(solver), weights(second))
