"""Which snapshots stay: the last few, the best; and stopping when nothing gets better."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire import schema
from pycaffe_fire.cli.fire_train import main
from pycaffe_fire.errors import SolverError
from pycaffe_fire.parallel.leaves import Output
from pycaffe_fire.solver import Solver
from pycaffe_fire.solver.best import Best
from pycaffe_fire.solver.snapshot_files import newest_snapshot
from tests.solver.solver_cases import SGD, body, make, rows_layer, same_bits, weights, write_rows

PREFIX = 'snapshot_prefix: "out/run" '
ACCURACY = (
    'layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" '
    "include { phase: TEST } }\n"
)
TESTS = "test_iter: 3 test_interval: 2 "


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def solver(folder: Path, settings: str = "", **options: Any) -> Solver:
    net = rows_layer(write_rows(folder), 8) + body() + ACCURACY
    return make(net, SGD + PREFIX + TESTS + settings, **options)


def scripted(mine: Solver, values: Sequence[float], name: str = "accuracy") -> None:
    """Let the tests of iterations 0, 2, 4, ... find these values."""

    def test(index: int) -> list[Output]:
        return [Output(name, values[mine.iter // 2], 0.0)]

    mine.test = test  # type: ignore[method-assign]


def test_the_last_few_stay(folder: Path) -> None:
    mine = solver(folder, "snapshot: 1", keep=2, keep_best="accuracy")
    os.mkdir("out")
    others = ["out/run_iter_90.caffemodel", "out/run_iter_90.solverstate", "out/run_notes.txt"]
    for name in others:  # of a longer run before, which may still be wanted
        Path(name).write_text("?")
    mine.step(5)
    made = [f"out/run_{n}" for n in ("best", "iter_4", "iter_5")]
    pairs = [f"{stem}.{end}" for stem in made for end in ("caffemodel", "solverstate")]
    assert sorted(map(str, Path("out").iterdir())) == sorted(pairs + others)


def test_the_best_is_kept(folder: Path) -> None:
    mine = solver(folder, keep_best="accuracy")
    scripted(mine, [0.1, 0.3, 0.2, 0.3, math.nan])
    mine.step(3)
    best = weights(mine)  # of the iteration after: not what was kept
    mine.step(6)
    state = schema.read_state("out/run_best.solverstate")
    assert (state.iter, state.learned_net) == (2, "out/run_best.caffemodel")
    again = solver(folder)
    again.restore("out/run_best.solverstate")
    assert again.tested == 2
    again.step(1)
    assert same_bits(weights(again), best)


def test_stopping_survives_a_resume(folder: Path, caplog: Any) -> None:
    values = [0.1, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4]
    following = {"keep_best": "accuracy", "stop_after": 3}
    whole, half, rest = (solver(folder, "max_iter: 16", **following) for _ in range(3))
    for mine in (whole, half, rest):
        scripted(mine, values)
    with caplog.at_level(logging.INFO, "pycaffe_fire"):
        whole.solve()
    assert whole.stopped_early and whole.iter == 8
    assert "No better highest accuracy of test net #0" in caplog.text
    assert newest_snapshot("out/run").path == "out/run_iter_8.solverstate"
    half.step(5)
    half.snapshot()
    record = json.loads(schema.read_state("out/run_iter_5.solverstate").extra)
    assert record["carried"]["best"] == [0, "accuracy", False, 0.5, 2, 1]
    rest.restore("out/run_iter_5.solverstate")
    rest.solve()
    assert rest.stopped_early and rest.iter == 8
    assert same_bits(weights(rest), weights(whole))


def test_another_metric_starts_anew(folder: Path, caplog: Any) -> None:
    mine, other = solver(folder, keep_best="accuracy"), solver(folder, keep_best="loss")
    mine.step(1)
    mine.snapshot()
    other.restore("out/run_iter_1.solverstate")
    assert other.best is not None and other.best.value is None
    assert "followed accuracy of test net #0" in caplog.text


def test_which_way_is_better(folder: Path) -> None:
    nets = solver(folder).test_nets
    assert not Best("accuracy", None, nets).low
    assert Best("loss", None, nets).low  # it has a loss weight
    assert Best("min:accuracy", None, nets).low
    assert not Best("max:loss", None, nets).low
    with pytest.raises(SolverError, match='"acuracy".*did you mean "accuracy".*loss'):
        Best("acuracy", None, nets)
    with pytest.raises(SolverError, match="only min: or max:"):
        Best("top:accuracy", None, nets)
    with pytest.raises(SolverError, match="no test net"):
        Best("accuracy", None, [])


def test_the_command(folder: Path, capsys: Any) -> None:
    (folder / "net.prototxt").write_text(rows_layer(write_rows(folder), 8) + body() + ACCURACY)
    text = 'net: "net.prototxt" max_iter: 50 snapshot: 3 base_lr: 0 lr_policy: "fixed" '
    (folder / "solver.prototxt").write_text(text + PREFIX + TESTS + "solver_mode: CPU")
    flags = ["--keep", "1", "--keep-best", "loss", "--stop-after", "5"]
    assert main(["--solver", "solver.prototxt", *flags]) == 0
    # A rate of 0 learns nothing: the first test stays the best but for the order of samples.
    log = capsys.readouterr().err
    assert "Keeping the snapshot with the lowest loss of test net #0" in log
    assert "in 5 tests: stopping" in log and "Optimization stopped early." in log
    assert len(list(Path("out").glob("*.solverstate"))) == 2
    assert main(["--solver", "solver.prototxt", "--stop-after", "5"]) == 1
    assert "--stop-after needs --keep-best" in capsys.readouterr().err
    assert main(["--solver", "solver.prototxt", "--keep-best", "los"]) == 1
    assert 'did you mean "loss"' in capsys.readouterr().err
