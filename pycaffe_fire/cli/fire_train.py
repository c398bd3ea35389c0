"""fire_train: train the net of a solver prototxt. Its flags are in train_flags."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import NoReturn

from ..backend.compiled import on_compiling
from ..board.processes import board_beside
from ..errors import SolverError
from ..parallel.communicator import Communicator
from ..parallel.job import check_names, failing_together, joined, ranks_started
from ..parallel.launch import STOPPED, run_job
from ..parallel.placement import Layout, parse_hosts, read_hostfile
from ..parallel.watch import watched
from ..report.glog import logging_with, stderr_handler
from ..report.json_log import JsonLog, log_path
from ..report.progress import (
    ConsoleHandler,
    ProgressDisplay,
    job_console,
    rank_handler,
    shows,
)
from ..report.summary import summary_lines
from ..report.tensorboard import TensorBoardLog
from ..report.text import CaffeLog, Results
from ..report.timeline import ChromeTrace
from ..schema.proto import SolverParameter
from ..solver import read_param
from ..solver.events import Observer
from ..solver.options import Action
from ..solver.run import RunOptions, make_solver, plan_memory
from ..solver.signals import DEFAULT_EFFECTS, SignalRequests, signal_actions
from ..solver.snapshot_files import Found, known_states, newest_snapshot
from . import demo
from .check import check_project
from .common import run, without_flags
from .train_flags import check_company, parser

log = logging.getLogger("pycaffe_fire")


def main(arguments: Sequence[str] | None = None) -> int:
    return run(parser(), _train, arguments)


def _train(options: argparse.Namespace) -> None:
    if options.snapshot and options.weights:
        raise SolverError("give --snapshot to resume or --weights to fine-tune, not both")
    check_company(options)
    alone = ranks_started() == 1
    if options.demo:
        if not alone:
            raise SolverError("--demo starts its ranks itself: fire_train -n 4 --demo lenet")
        options.solver = demo.prepare(options.demo, options.out)
    if options.check:
        check_project(options.solver, options)
        return
    check_names(options.communicator, options.gradients)
    if options.ranks and alone:
        with _board(options, rank=0):
            _launch(options)
    with (
        SignalRequests(_actions(options)) as requests,  # before anything that takes time
        joined(options.communicator, options.gradients, options.prog) as communicator,
    ):
        requests.install()  # MPI may bring UCX, which takes SIGHUP for itself
        with failing_together(communicator, options.prog), _board(options, communicator.rank):
            _run_rank(options, _read(options, communicator.rank), communicator, requests)


def _actions(options: argparse.Namespace) -> dict[int, Action]:
    return signal_actions({name: getattr(options, f"{name}_effect") for name in DEFAULT_EFFECTS})


def _read(options: argparse.Namespace, rank: int) -> SolverParameter:
    """The solver prototxt; of what is worth a warning, rank 0 tells."""
    with logging_with(rank_handler(job_console(), rank), logging.WARNING):
        return read_param(options.solver)


def _asked(options: argparse.Namespace) -> RunOptions:
    return RunOptions(**{f.name: getattr(options, f.name) for f in fields(RunOptions)})


@contextmanager
def _board(options: argparse.Namespace, rank: int) -> Iterator[None]:
    """A board beside the run, if asked for; its address is told once."""
    if not options.board or options.summary or rank:
        yield
        return
    folder = os.path.dirname(read_param(options.solver).snapshot_prefix) or "."
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise SolverError(f"{folder}: the run's folder cannot be made: {error.strerror}") from error
    with board_beside(folder) as address:
        print(f"fire_board: {address}", file=sys.stderr, flush=True)
        yield


def _launch(options: argparse.Namespace) -> NoReturn:
    """Start the ranks with the flags we were given, except those that are about starting them."""
    own = ("-n", "--ranks", "--hosts", "--hostfile", "--restarts", "--demo", "--out", "--solver")
    flags = ["--solver", options.solver, *without_flags(options.given, own)]
    flags = [flag for flag in flags if flag != "--board"]
    prefix = _read(options, rank=1).snapshot_prefix  # rank 0 will say what there is to say
    before = known_states(prefix)

    def say(text: str) -> None:
        print(f"{options.prog}: {text}", file=sys.stderr, flush=True)

    def arguments(attempt: int) -> list[str]:
        found = newest_snapshot(prefix, besides=before) if attempt else Found()
        for reason in found.skipped:
            say(reason)
        if not found.path:  # the job has saved nothing yet: it starts as it did
            return flags
        return [*without_flags(flags, ("--snapshot", "--weights")), "--snapshot", found.path]

    hosts = read_hostfile(options.hostfile) if options.hostfile else parse_hosts(options.hosts)
    layout = Layout.of(options.ranks, hosts)
    stops = {number for number, action in _actions(options).items() if action is Action.STOP}
    sys.exit(run_job(layout, __spec__.name, arguments, options.restarts, stops, say))


def _run_rank(
    options: argparse.Namespace,
    param: SolverParameter,
    communicator: Communicator,
    requests: SignalRequests,
) -> None:
    asked = _asked(options)
    if options.summary:
        with logging_with(stderr_handler(), logging.WARNING):
            net, need = plan_memory(asked, param, communicator)
        if communicator.rank == 0:
            print("\n".join(summary_lines(net, need, communicator.size)))
        return
    results = Results()
    with (
        _display(options, param, communicator.rank) as show,
        _logs(options, param, communicator.rank) as logs,
        watched(communicator, options.prog),
    ):
        solver = make_solver(asked, param, communicator, [show, results, *logs], requests)
        first = solver.iter
        requests.unsaved = lambda: solver.iter > first
        solver.solve()
        solver.close()
        log.info("Optimization Done.")
    if communicator.rank == 0:
        for line in results.lines():
            print(line)
    if solver.unfinished:
        sys.stdout.flush()
        communicator.gather(None)  # launchers may end all ranks when one leaves with a status
        sys.exit(STOPPED)


@contextmanager
def _display(options: argparse.Namespace, param: SolverParameter, rank: int) -> Iterator[Observer]:
    """A live display where there is a terminal to show it on, Caffe's log otherwise.

    Rank 0 speaks for all; the others only warn.
    """
    console = job_console()
    if rank or options.quiet:
        with logging_with(rank_handler(console, rank), logging.WARNING):
            yield lambda event: None
    elif options.log or options.verbose or param.debug_info or not shows(console):
        lines = CaffeLog(times=options.times)
        with (
            logging_with(stderr_handler(), logging.INFO, dumps=options.verbose),
            on_compiling(lines.compiling),
        ):
            yield lines
    else:
        with (
            logging_with(ConsoleHandler(console), logging.WARNING),
            ProgressDisplay(console, options.times) as display,
            on_compiling(display.compiling),
        ):
            yield display


@contextmanager
def _logs(
    options: argparse.Namespace, param: SolverParameter, rank: int
) -> Iterator[list[Observer]]:
    """The files in which rank 0 records the run."""
    logs: list[JsonLog | TensorBoardLog | ChromeTrace] = []
    if rank == 0:
        logs.append(JsonLog(log_path(param.snapshot_prefix)))
        if options.tensorboard:
            logs.append(TensorBoardLog(options.tensorboard))
        if options.trace:
            logs.append(ChromeTrace(options.trace))
    try:
        yield [*logs]
    finally:
        for each in logs:
            each.close()


if __name__ == "__main__":
    sys.exit(main())
