"""fire_train on a terminal: the live display, also of two ranks, and Ctrl-C while compiling."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.errors import SolverError
from pycaffe_fire.parallel.launch import INTERRUPTED, STOPPED, find_mpiexec
from tests.cli.runs import PACKAGE, make_run, write_solver

pexpect = pytest.importorskip("pexpect", reason="pexpect is missing: it types at a terminal")

SECONDS = 240  # machines that run the tests may be slow and busy
GLOG_LINE = re.compile(r"^I\d{8} ", re.MULTILINE)
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"
ENDLESS = "10000000"


class Session:
    """fire_train at a terminal of 100 columns; `shown` is all that it has written so far."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.process = pexpect.spawn(
            sys.executable, ["-m", "pycaffe_fire.cli.fire_train", *arguments], cwd=str(folder),
            env={**os.environ, "PYTHONPATH": str(PACKAGE), "OMP_WAIT_POLICY": "passive",
                 "TERM": "xterm", "COLUMNS": "100", **environment},
            dimensions=(30, 100), encoding="utf-8", timeout=SECONDS,
        )  # fmt: skip
        self.shown = ""

    def wait_for(self, text: str) -> None:
        self.process.expect_exact(text)
        self.shown += self.process.before + self.process.after

    def end(self) -> int:
        self.process.expect(pexpect.EOF)
        self.shown += self.process.before
        self.process.close()
        return int(self.process.exitstatus)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_run(tmp_path)
    return tmp_path


@pytest.fixture
def start(run: Path) -> Iterator[Any]:
    sessions: list[Session] = []

    def begin(*arguments: str, **environment: str) -> Session:
        sessions.append(Session(run, "--solver", "solver.prototxt", *arguments, **environment))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.process.close(force=True)


def plain(shown: str) -> list[str]:
    """The lines that hold more than a terminal's control sequences."""
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).splitlines()
    return [line for line in lines if line.strip()]


def snapshots(run: Path) -> list[Path]:
    return list(run.glob("snap_iter_*"))


def test_one_rank_has_a_live_display(start: Any, run: Path) -> None:
    write_solver(run, max_iter=ENDLESS)  # a short run may end before a bar is drawn
    session = start("--times")
    for part in ("━", " left", "Time on rank 0: "):
        session.wait_for(part)
    session.process.sendintr()
    assert session.end() == STOPPED
    assert not GLOG_LINE.search(session.shown)
    assert session.shown.rindex(SHOW_CURSOR) > session.shown.rindex(HIDE_CURSOR)


def test_the_result_comes_last(start: Any) -> None:
    session = start("--times")
    assert session.end() == 0
    assert not GLOG_LINE.search(session.shown)
    assert "Time on rank 0: " in session.shown
    assert "loss = " in plain(session.shown)[-1]
    assert session.shown.rindex(SHOW_CURSOR) > session.shown.rindex(HIDE_CURSOR)


def needs_mpi() -> None:
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is missing")
    try:
        find_mpiexec()
    except SolverError:
        pytest.skip("there is no mpiexec")


def test_two_ranks_have_one_display(start: Any, run: Path) -> None:
    needs_mpi()
    write_solver(run, max_iter=ENDLESS)
    session = start("-n", "2", "--times", "--threads", "1")
    for part in ("━", "Time on rank 0: ", "Time on rank 1: "):
        session.wait_for(part)
    session.process.sendintr()
    assert session.end() == STOPPED
    assert not GLOG_LINE.search(session.shown)
    assert session.shown.count("Communicator: ") == 1
    assert session.shown.rindex(SHOW_CURSOR) > session.shown.rindex(HIDE_CURSOR)


def test_quiet_shows_the_result_alone(start: Any) -> None:
    session = start("--quiet")
    assert session.end() == 0
    lines = plain(session.shown)
    assert lines and all(re.match(r"\S+ = ", line) for line in lines), lines


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_interrupt_while_compiling_is_answered_at_once(
    start: Any, run: Path, ranks: int
) -> None:
    """Not after one more kernel, of which each takes seconds on a busy machine."""
    if ranks > 1:
        needs_mpi()
    write_solver(run, "random_seed: 5 test_initialization: false", max_iter=ENDLESS,
                 test_interval=ENDLESS)  # fmt: skip
    many = ["-n", str(ranks), "--threads", "1"] if ranks > 1 else []
    session = start(*many, XDG_CACHE_HOME=str(run / "empty"), NUMBA_CACHE_DIR="")
    while not kernels(run):
        session.wait_for("compiling kernels, once")  # it is written again with every kernel
    before = kernels(run)
    session.process.sendintr()
    session.wait_for("fire_train: interrupted, nothing half-written is left")
    assert session.end() == INTERRUPTED
    assert kernels(run) <= before + ranks  # what was nearly done
    assert "Traceback" not in session.shown and not snapshots(run)
    assert session.shown.rindex(SHOW_CURSOR) > session.shown.rindex(HIDE_CURSOR)


def kernels(run: Path) -> int:
    """How many have been compiled."""
    return len(list((run / "empty").rglob("*.nbc")))
