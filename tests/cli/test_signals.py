"""Signals to a running fire_train: snapshots, a clean stop that can be resumed, an abrupt one."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire import schema
from pycaffe_fire.cli.fire_train import main
from pycaffe_fire.parallel.launch import STOPPED
from tests.cli.runs import Command, add_dropout, make_run, write_solver

ENDLESS = "10000000"
PYTHON = """
layer { name: "early" type: "Python" bottom: "ip" top: "early" include { phase: TRAIN }
  python_param { module: "early" layer: "Early" } }
"""
EARLY = """
import os
import signal
import pycaffe_fire as caffe


class Early(caffe.Layer):
    def setup(self, bottom, top):
        os.kill(os.getpid(), signal.SIGTERM)

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top): ...
    def backward(self, top, propagate_down, bottom): ...
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_run(tmp_path)
    add_dropout(tmp_path)
    write_solver(tmp_path, "random_seed: 5", max_iter=ENDLESS, display="50", test_interval="1000")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(log: Any) -> Any:
    return [int(n) for n in re.findall(r"snap_iter_(\d+)\.solverstate", log)]


def test_hangup_takes_a_snapshot_and_interrupt_stops_with_one(run: Path) -> None:
    command = Command(run, "--solver", "solver.prototxt")
    command.wait_for("Iteration 50,")
    command.send(signal.SIGHUP)
    command.wait_for(".solverstate")
    command.wait_for("lr = ", times=3)  # it goes on
    command.send(signal.SIGINT)
    status, out, log = command.finish()
    assert status == STOPPED
    first, last = saved(log)
    assert first < last
    assert "Optimization stopped early." in log
    assert "loss = " in out
    # Going on from the first snapshot leads through the very weights of the second.
    final = f"snap_iter_{last}.caffemodel"
    before = [b.tobytes() for w in schema.read_weights(final) for b in w.blobs]
    (run / final).unlink()
    arguments = ["--snapshot", f"snap_iter_{first}.solverstate", "--iterations", str(last)]
    assert main(["--solver", "solver.prototxt", *arguments]) == 0
    assert [b.tobytes() for w in schema.read_weights(final) for b in w.blobs] == before


def test_effects_can_be_changed_and_a_second_stop_is_abrupt(run: Path) -> None:
    write_solver(run, "random_seed: 5", "snapshot_after_train: false", max_iter=ENDLESS,
                 display="200", test_interval="1000000", test_iter="10000000")  # fmt: skip
    # The test before the first iteration never ends, so that only a signal can end it.
    command = Command(
        run, "--solver", "solver.prototxt", "--sigint_effect=none", "--sighup_effect=stop"
    )
    command.wait_for("Testing net (#0)")
    command.send(signal.SIGINT)
    command.send(signal.SIGHUP)
    status, _, log = command.finish()
    assert status == STOPPED
    assert "Test interrupted." in log and "Optimization stopped early." in log
    assert not saved(log)


def test_a_second_interrupt_ends_a_run_at_once(run: Path) -> None:
    # One iteration of this takes longer than the test: only the second signal can end it.
    write_solver(run, "random_seed: 5 iter_size: 100000000", max_iter=ENDLESS, test_interval="0")
    text = (run / "solver.prototxt").read_text().replace("test_iter: 2", "")
    (run / "solver.prototxt").write_text(text)
    command = Command(run, "--solver", "solver.prototxt")
    command.wait_for("Solving tiny")
    while command.process.poll() is None and "interrupted" not in command.log.read_text():
        command.send(signal.SIGINT)
        time.sleep(0.2)  # signals that come close together may count as one
    status, _, log = command.finish()
    assert status == 130
    assert "Traceback" not in log and not saved(log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_what_schedulers_send_stops_with_a_snapshot_however_often(
    run: Path, number: signal.Signals
) -> None:
    command = Command(run, "--solver", "solver.prototxt")
    command.wait_for("Iteration 50,")
    for _ in range(3):  # a launcher and a scheduler may both send it
        if command.process.poll() is None:
            command.send(number)
    status, _, log = command.finish()
    assert status == STOPPED
    (last,) = saved(log)
    assert last >= 50 and f"Stopping as {number.name} asks" in log
    # The requeued job goes on from there, and its end is told from a stop by the status.
    arguments = ["--snapshot", "auto", "--iterations", str(last + 5)]
    assert main(["--solver", "solver.prototxt", *arguments]) == 0
    assert (run / f"snap_iter_{last + 5}.caffemodel").exists()


def test_usr2_takes_a_snapshot_and_effects_can_be_changed(run: Path) -> None:
    command = Command(run, "--solver", "solver.prototxt", "--sigusr1_effect", "none")
    command.wait_for("Iteration 50,")
    command.send(signal.SIGUSR1)
    command.send(signal.SIGUSR2)
    command.wait_for(".solverstate")
    command.wait_for("lr = ", times=command.log.read_text().count("lr = ") + 1)  # it goes on
    command.send(signal.SIGTERM)
    status, _, log = command.finish()
    assert status == STOPPED
    assert len(saved(log)) == 2 and "SIGUSR1" not in log


def test_a_request_while_the_net_is_built_is_heard(run: Path) -> None:
    """A layer's own setup sends it; nothing was trained, and the next job starts from there."""
    (run / "early.py").write_text(EARLY)
    text = (run / "net.prototxt").read_text()
    (run / "net.prototxt").write_text(text + PYTHON)
    command = Command(run, "--solver", "solver.prototxt", "--allow-python-layers")
    status, _, log = command.finish()
    assert status == STOPPED
    assert saved(log) == [0] and "Stopping as SIGTERM asks" in log
