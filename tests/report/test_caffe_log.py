"""The log of a run against the one Caffe wrote of the same run, line by line."""

from __future__ import annotations

import logging
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.cli.fire_train import main
from pycaffe_fire.parallel.leaves import Output
from pycaffe_fire.report.glog import DUMPS, LOGGER, GlogFormatter, logging_with
from pycaffe_fire.report.text import CaffeLog, Results, describe
from pycaffe_fire.solver import events

GOLDEN = Path(__file__).parents[1] / "golden"
SOLVER = """
net: "net.prototxt" type: "SGD" base_lr: 0.05 momentum: 0.9 lr_policy: "step" gamma: 0.3
stepsize: 6 max_iter: 20 display: 5 test_iter: 2 test_interval: 10 snapshot_prefix: "snap"
solver_mode: CPU random_seed: 5
"""
PREFIX = re.compile(r"[IWEF]\d{8} \d\d:\d\d:\d\d\.\d{6} +\d+ [\w.]+:\d+\] ")
TIMINGS = re.compile(r"\([^()]* iter/s, [^()]*s/(\d+) iters\)")


def lines(text: str) -> Any:
    """Messages without prefix and timings; parameter texts behind a message are left out."""
    return [
        TIMINGS.sub(r"(x iter/s, xs/\1 iters)", PREFIX.sub("", line))
        for line in text.splitlines()
        if PREFIX.match(line)
    ]


ARGUMENTS = ["--verbose", "--solver", "solver.prototxt", "--weights", "init.caffemodel"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Our log and Caffe's of the same training run."""
    folder = tmp_path_factory.mktemp("run")
    for name in ("net.prototxt", "data.txt", "data.h5", "init.caffemodel"):
        shutil.copy(GOLDEN / "solver" / "sgd_step" / name, folder / name)
    (folder / "solver.prototxt").write_text(SOLVER)
    with pytest.MonkeyPatch.context() as patch, (folder / "log.txt").open("w") as log:
        patch.chdir(folder)
        patch.setattr(sys, "stderr", log)
        assert main(ARGUMENTS) == 0
    ours = re.sub(r".*Compiling kernels.*\n", "", (folder / "log.txt").read_text())
    return lines(ours), lines((GOLDEN / "logs" / "caffe_train.log").read_text())


def test_training_reads_as_in_caffe(logs: Any) -> None:
    ours, caffes = (log[log.index("Solving tiny") :] for log in logs)
    assert ours == caffes


def test_building_nets_reads_as_in_caffe(logs: Any) -> None:
    kept = (
        "Initializing", "Creating training", "Creating test", "Creating Layer", "Setting up",
        "Top shape", "    with loss", "Memory", "This network", "Network init", "Solver scaff",
    )  # fmt: skip
    wiring = re.compile(r"\S+ (<-|->) |\S+ (needs|does not need) backward")

    def selected(log: Any) -> Any:
        return [x for x in log if x.startswith(kept) or wiring.match(x)]

    ours, caffes = map(selected, logs)
    assert len(caffes) > 60
    assert ours == [x for x in caffes if not x.startswith("Creating Layer")]


def test_glog_lines() -> None:
    record = logging.LogRecord(
        "x", logging.WARNING, "/a/b/solver.py", 45, "a %s\nb\n", ("c",), None
    )
    record.created, record.process = 1731720596.924711, 42
    text = GlogFormatter().format(record)
    assert re.fullmatch(r"W202411\d\d \d\d:\d\d:56\.924711    42 solver\.py:45\] a c\nb", text)


def test_the_logger_is_left_as_it_was() -> None:
    before = LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)
    with pytest.raises(KeyError), logging_with(logging.NullHandler(), logging.INFO):
        assert LOGGER.isEnabledFor(logging.INFO)
        raise KeyError
    assert (LOGGER.level, LOGGER.propagate, LOGGER.handlers) == before


def test_numbers_are_printed_as_c_does() -> None:
    assert describe(Output("accuracy", 0.98925000876, 0.0)) == "accuracy = 0.98925"
    assert describe(Output("loss", 2.0e-5, 0.3)) == "loss = 2e-05 (* 0.3 = 6e-06 loss)"
    assert describe(Output("loss", float("nan"), 1.0)) == "loss = nan (* 1 = nan loss)"
    assert describe(Output("loss", 87.33650001, 1.0)) == "loss = 87.3365 (* 1 = 87.3365 loss)"


def test_rarer_lines(caplog: pytest.LogCaptureFixture) -> None:
    show = CaffeLog()
    with caplog.at_level(logging.INFO, "pycaffe_fire"):
        show(events.Saved("a.solverstate.h5", "state", "HDF5"))
        show(events.Tested(3, 0, [], 0.5))
        show(events.Finished(3, True))
    assert [r.getMessage() for r in caplog.records] == [
        "Snapshotting solver state to HDF5 file a.solverstate.h5",
        "Test loss: 0.5",
        "Optimization stopped early.",
    ]


def test_results_name_net_and_iteration_where_needed() -> None:
    results = Results()
    assert results.lines() == []
    results(events.Trained(0, 1.5, 0.1, 0.01, False, []))
    results(events.Finished(1, False))
    assert results.lines() == ["training loss = 1.5"]
    results(events.Tested(0, 0, [Output("accuracy", 0.5, 0.0)], None))
    results(events.Tested(1, 0, [Output("accuracy", 0.75, 0.0)], None))
    assert results.lines() == ["accuracy = 0.75"]
    results(events.Tested(0, 1, [Output("loss", 2.0, 1.0)], None))
    assert results.lines() == [
        "test net #0: accuracy = 0.75",
        "test net #1: loss = 2 (iteration 0)",
    ]


def test_nets_are_left_out_unless_asked_for() -> None:
    said: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    with logging_with(Keeper(), logging.INFO, dumps=False):
        DUMPS.info("Creating layer x")
        DUMPS.warning("odd")
        LOGGER.info("Iteration 0")
    assert said == ["odd", "Iteration 0"]


def test_the_environment_may_ask_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, level in (("0", logging.INFO), ("2", logging.ERROR), ("9", logging.CRITICAL),
                         ("x", logging.INFO)):  # fmt: skip
        monkeypatch.setenv("GLOG_minloglevel", value)
        with logging_with(logging.NullHandler(), logging.INFO):
            assert LOGGER.level == level
