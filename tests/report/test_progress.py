"""The live display: what it says, that it fits, how often it draws, and that it tidies up."""

from __future__ import annotations

import io
import logging
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pycaffe_fire import schema
from pycaffe_fire.installation import SAID_BY_ALL_RANKS
from pycaffe_fire.parallel.launch import ERASE_LINE, TERMINAL_VARIABLE
from pycaffe_fire.parallel.leaves import Output
from pycaffe_fire.report.progress import (
    ConsoleHandler,
    ProgressDisplay,
    clock,
    job_console,
    rank_handler,
    shows,
)
from pycaffe_fire.solver import events

PACKAGE = Path(__file__).parents[2]
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"
NET = """name: "made_up"
layer { name: "d" type: "DummyData" top: "x" top: "y" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 } data_filler { type: "gaussian" }
  data_filler { type: "constant" } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


def started(**changed: Any) -> Any:
    param = schema.SolverParameter(max_iter=1000, test_interval=250, lr_policy="fixed", **changed)
    return events.Started("LeNet", param, 0, 64, 1, "oneDNN", 7)


def read_ready(terminal: Any) -> Any:
    """What a terminal shows within a moment."""
    text = b""
    while select.select([terminal], [], [], 0.1)[0]:
        try:
            text += os.read(terminal, 4096)
        except OSError:  # its other end is closed
            break
    return text.decode(errors="replace")


def trained(iteration: int, loss: float = 1.0, seconds: float = 0.01) -> Any:
    return events.Trained(iteration, loss, 0.1, seconds, False, [])


@pytest.fixture
def screen() -> Iterator[Any]:
    """A display on a terminal of 120 columns that exists only here, and what it received."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120, highlight=False, _environ={})
    with ProgressDisplay(console) as display:
        yield display, file


def test_the_line_shows_where_a_run_stands(screen: Any) -> None:
    display, _ = screen
    display(started())
    display(events.Testing(0, 0, 0, 40))
    assert "testing 0/40" in display.line(120).plain
    display(events.Tested(0, 0, [Output("acc", 0.125, 0.0), Output("loss", 2.0, 1.0)], None))
    for i in range(100):
        display(trained(i, loss=2.0 if i < 50 else 1.0))
    line = display.line(120).plain
    assert line.startswith(" 100/1000  ━")
    assert "acc 0.125" in line and "6,400 images/s" in line
    assert 1.0 < float(line.split("loss ")[1].split()[0]) < 1.1
    assert "0:09 left" in line


def test_a_skipped_iteration_is_told_and_spoils_no_mean(screen: Any) -> None:
    display, file = screen
    display(started())
    display(trained(0, loss=2.0))
    display(events.NotFinite(1, "iteration 1: the loss is nan", "skipped the iteration"))
    display(trained(1, loss=float("nan")))
    display(trained(2, loss=2.0))
    assert "iteration 1: the loss is nan; skipped" in file.getvalue()
    assert "loss 2  " in display.line(120).plain


@pytest.mark.parametrize("width", [1, 20, 40, 60, 79, 100, 200])
def test_the_line_fits(screen: Any, width: int) -> None:
    display, _ = screen
    display(started())
    display(events.Tested(0, 0, [Output("a_long_name/of_accuracy", 0.125, 0.0)], None))
    display(trained(0))
    line = display.line(width)
    assert len(line) <= max(width, len("   1/1000  "))
    assert width < 60 or "loss 1" in line.plain


def test_tests_snapshots_and_warnings_stay_above_the_line(screen: Any) -> None:
    display, file = screen
    display(started())
    display(trained(249))
    display(events.Tested(250, 0, [Output("acc", 0.5, 0.0), Output("loss", 2.0, 1.0)], None))
    display(events.Saved("x.caffemodel", "weights", "binary proto"))
    display(events.Saved("x.solverstate", "state", "binary proto"))
    ConsoleHandler(display.console).emit(
        logging.LogRecord("x", logging.WARNING, "f", 1, "look [here]", (), None)
    )
    display(events.Finished(1000, False))
    text = file.getvalue()
    for kept in ("acc = 0.5, loss = 2", "x.solverstate", "look [here]", "Seed: 7", "done"):
        assert kept in text
    assert "x.caffemodel" not in text


def test_it_draws_seldom_and_costs_little(screen: Any) -> None:
    display, file = screen
    display(started())
    began, busy = time.perf_counter(), time.process_time()
    before = file.getvalue().count("/1000")
    events_shown = [trained(i) for i in range(20_000)]
    for event in events_shown:
        display(event)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    assert file.getvalue().count("/1000") - before <= 2 + seconds / 0.25
    assert busy / len(events_shown) < 200e-6  # about 3e-6 on an idle machine


def test_a_terminal_that_is_gone_does_not_end_the_run() -> None:
    class Gone(io.StringIO):
        dead = False

        def write(self, text: str) -> Any:
            if self.dead:
                raise OSError(5, "Input/output error")
            return super().write(text)

    file = Gone()
    with ProgressDisplay(Console(file=file, force_terminal=True, width=80)) as display:
        display(started())
        file.dead = True
        for event in (trained(1), events.Saved("a", "state", "HDF5"), events.Finished(2, True)):
            display(event)
        file.dead = False


def test_an_error_leaves_the_cursor_visible(screen: Any) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, _environ={})
    with pytest.raises(KeyboardInterrupt), ProgressDisplay(console) as display:
        display(started())
        raise KeyboardInterrupt
    assert file.getvalue().rindex(SHOW_CURSOR) > file.getvalue().rindex(HIDE_CURSOR)


def test_clock() -> None:
    assert [clock(s) for s in (7, 750, 18000, 277200, 400000)] == [
        "0:07", "12:30", "5:00:00", "77:00:00", "4 d 15 h",
    ]  # fmt: skip


def test_a_terminal_gets_the_display_and_two_interrupts_end_it(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 solver_mode: CPU '
        "iter_size: 100000000 test_iter: 3 test_interval: 1"
    )
    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "pycaffe_fire.cli.fire_train", "--solver", "solver.prototxt"],
        cwd=tmp_path, stdin=slave, stdout=slave, stderr=slave, env=environment,
    )  # fmt: skip
    os.close(slave)
    text, deadline = "", time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
        text += read_ready(master)
        if "loss = " in text:  # behind it is the one endless iteration
            process.send_signal(signal.SIGINT)
    process.kill()
    text += read_ready(master)
    os.close(master)
    assert process.wait() == 130, text
    assert "made_up" in text and "Seed: " in text
    assert "fire_train: interrupted" in text and "Traceback" not in text
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)


def test_compiling_takes_the_line_until_the_run_goes_on(screen: Any) -> None:
    display, file = screen
    display(started())
    display.compiling(0, 0.0)
    display.compiling(3, 75.0)
    shown = file.getvalue()
    assert "compiling kernels, once (kept in " in shown and ": 3 done, 1:15 ..." in shown
    file.truncate(0)
    display._drawn = 0.0
    display(trained(0))
    assert "1/1000" in file.getvalue() and "compiling" not in file.getvalue()


def test_a_rank_without_a_display_clears_the_line_and_repeats_nothing() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120, _environ={"TERM": "xterm"})
    handler = rank_handler(console, rank=1)
    for extra in ({}, {SAID_BY_ALL_RANKS: True}):
        record = logging.makeLogRecord({"msg": f"odd {len(extra)}", **extra})
        if handler.filter(record):
            handler.emit(record)
    assert file.getvalue().startswith(ERASE_LINE) and "odd 0" in file.getvalue()
    assert "odd 1" not in file.getvalue()


def test_a_rank_draws_on_its_launchers_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert not shows(job_console())
    monkeypatch.setenv(TERMINAL_VARIABLE, "73")
    assert shows(job_console()) and job_console().width == 73
