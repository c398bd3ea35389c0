"""fire_train: train the net of a solver prototxt. Its flags are in train_flags."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from rich.console import Console

from .. import schema
from ..backend import available_cores
from ..backend.base import Backend
from ..data.policy import set_policy
from ..data.recipes import advice, missing_sources
from ..defaults import choose_backend, seed_for
from ..errors import DataError, SolverError
from ..layers.python import allow_python_layers
from ..net.graph import filter_net
from ..parallel.communicator import Communicator
from ..parallel.job import (
    check_alike,
    check_names,
    default_leaves,
    failing_together,
    join,
    ranks_started,
)
from ..parallel.launch import run_job
from ..parallel.tree import check_leaves
from ..parallel.watch import watched
from ..report.glog import logging_with, stderr_handler
from ..report.json_log import JsonLog, log_path
from ..report.progress import ConsoleHandler, ProgressDisplay
from ..report.summary import summary_lines
from ..report.tensorboard import TensorBoardLog
from ..report.text import CaffeLog, Results
from ..solver import Solver, read_param, recorded_run
from ..solver.capacity import planned
from ..solver.events import Observer
from ..solver.large_batch import scale_rate, with_batch
from ..solver.nets import find_test_nets, find_train_net, with_shuffling, without_data
from ..solver.shelf import Found, known_states, newest_snapshot
from ..solver.signals import EFFECTS, SignalRequests
from .common import run, without_flags
from .train_flags import check_company, parser

log = logging.getLogger("pycaffe_fire")


def main(arguments: Sequence[str] | None = None) -> int:
    return run(parser(), _train, arguments)


def _train(options: argparse.Namespace) -> None:
    if options.snapshot and options.weights:
        raise SolverError("give --snapshot to resume or --weights to fine-tune, not both")
    check_company(options)
    check_names(options.communicator, options.gradients)
    if options.ranks and ranks_started() == 1:
        _launch(options)
    set_policy(options.bad_records)
    if options.allow_python_layers:
        allow_python_layers()
    communicator = join(options.communicator, options.gradients)
    with failing_together(communicator, "fire_train"):
        _run_rank(options, read_param(options.solver), communicator)


def _launch(options: argparse.Namespace) -> NoReturn:
    """Start the ranks with the flags we were given, except those that are about starting them."""
    flags = without_flags(options.given, ("-n", "--ranks", "--hosts", "--restarts"))
    prefix = read_param(options.solver).snapshot_prefix
    before = known_states(prefix)

    def say(text: str) -> None:
        print(f"fire_train: {text}", file=sys.stderr, flush=True)

    def arguments(attempt: int) -> list[str]:
        found = newest_snapshot(prefix, besides=before) if attempt else Found()
        for reason in found.skipped:
            say(reason)
        if not found.path:  # the job has saved nothing yet: it starts as it did
            return flags
        return [*without_flags(flags, ("--snapshot", "--weights")), "--snapshot", found.path]

    hosts = [host for host in options.hosts.split(",") if host]
    sys.exit(run_job(options.ranks, hosts, __spec__.name, arguments, options.restarts, say))


def _run_rank(options: argparse.Namespace, param: Any, communicator: Communicator) -> None:
    if options.summary:
        with logging_with(stderr_handler(), logging.WARNING):
            _summarise(options, param, communicator)
        return
    results = Results()
    effects = EFFECTS[options.sigint_effect], EFFECTS[options.sighup_effect]
    with (
        _display(options.log or param.debug_info, communicator.rank) as show,
        _logs(options, param, communicator.rank) as logs,
        watched(communicator, "fire_train"),
    ):
        solver = _make_solver(options, param, communicator, [show, results, *logs])
        solver.show_times = options.times
        with SignalRequests(*effects) as requests:
            solver.requested_action = requests
            solver.solve()
        solver.close()
        log.info("Optimization Done.")
    if communicator.rank == 0:
        for line in results.lines():
            print(line)


@contextmanager
def _display(plain: bool, rank: int) -> Iterator[Observer]:
    """A live display where there is a terminal to show it on, Caffe's log otherwise.

    Rank 0 speaks for all; the others only warn.
    """
    console = Console(stderr=True, highlight=False)
    if rank:
        with logging_with(stderr_handler(), logging.WARNING):
            yield lambda event: None
    elif plain or not console.is_terminal or console.is_dumb_terminal:
        with logging_with(stderr_handler(), logging.INFO):
            yield CaffeLog()
    else:
        warnings = logging_with(ConsoleHandler(console), logging.WARNING)
        with warnings, ProgressDisplay(console) as display:
            yield display


@contextmanager
def _logs(options: argparse.Namespace, param: Any, rank: int) -> Iterator[list[Observer]]:
    """The files in which rank 0 records the run."""
    logs: list[JsonLog | TensorBoardLog] = []
    if rank == 0:
        logs.append(JsonLog(log_path(param.snapshot_prefix)))
        if options.tensorboard:
            logs.append(TensorBoardLog(options.tensorboard))
    try:
        yield [*logs]
    finally:
        for each in logs:
            each.close()


class _Plan(NamedTuple):
    """What the flags make of a solver prototxt."""

    param: Any
    state: Any
    backend: Backend
    leaves: int
    seed: int


def _plan(options: argparse.Namespace, param: Any, ranks: Communicator) -> _Plan:
    options.threads = options.threads or max(1, available_cores() // ranks.local_size)
    backend = _backend(options, param)
    if options.snapshot == "auto":  # rank 0 looks: others might see older files
        found = _newest(param.snapshot_prefix) if ranks.rank == 0 else None
        options.snapshot = ranks.broadcast(found)
    recorded = recorded_run(options.snapshot) if options.snapshot else {}
    leaves = options.leaves or recorded.get("leaves") or default_leaves(ranks.size)
    check_leaves(leaves)
    # A run without a seed of its own drew one; a resumed run goes on with that.
    seed = recorded.get("seed") if param.random_seed < 0 else None
    seed = ranks.broadcast(seed if seed is not None else seed_for(param.random_seed))
    state = schema.NetState(level=options.level, stage=[s for s in options.stage.split(",") if s])
    if options.iterations:
        param.max_iter = options.iterations
    with _naming(options.solver):
        if options.synthetic is not None:
            param = without_data(param, state, options.synthetic)
        if options.shuffle:
            param = with_shuffling(param, state)
        if options.batch:
            param, factor = with_batch(param, state, options.batch, ranks.size)
            scale_rate(param, options.scale_lr, factor, options.warmup)
    return _Plan(param, state, backend, leaves, seed)


@contextmanager
def _naming(solver: str) -> Iterator[None]:
    """Errors about settings say in which file these are."""
    try:
        yield
    except SolverError as error:
        raise SolverError(f"{solver}: {error}") from error


@contextmanager
def _building(solver: str, plan: _Plan) -> Iterator[None]:
    """Errors about data say how to get what is not there."""
    with _naming(solver):
        try:
            yield
        except DataError as error:
            nets = [find_train_net(plan.param, plan.state), *find_test_nets(plan.param)]
            missing = missing_sources(filter_net(net.param) for net in nets)
            lines = advice(missing, f"fire_train --solver {solver}") if missing else []
            raise DataError("\n  ".join([str(error), *lines])) from error


def _summarise(options: argparse.Namespace, param: Any, ranks: Communicator) -> None:
    plan = _plan(options, param, ranks)
    with _building(options.solver, plan):
        net, need = planned(plan.param, plan.state, plan.backend, ranks, plan.leaves, plan.seed)
    if ranks.rank == 0:
        print("\n".join(summary_lines(net, need, ranks.size)))


def _make_solver(
    options: argparse.Namespace, param: Any, ranks: Communicator, observers: list[Observer]
) -> Solver:
    plan = _plan(options, param, ranks)
    with _building(options.solver, plan):
        solver = Solver(
            plan.param, backend=plan.backend, communicator=ranks, leaves=plan.leaves,
            seed=plan.seed, level=plan.state.level, stages=plan.state.stage, share_gradients=True,
            on_nan=options.on_nan, ignore_mismatch=options.ignore_mismatch,
            cuda_graph=options.cuda_graph, observers=observers,
        )  # fmt: skip
    if options.keep_best:
        solver.follow(options.keep_best, options.stop_after)
    solver.snapshots.keep = options.keep
    if options.snapshot:
        log.info("Resuming from %s", options.snapshot)
        solver.restore(options.snapshot)
    elif options.weights:
        log.info("Finetuning from %s", options.weights)
        solver.load_weights(options.weights)
    check_alike(ranks, solver.facts)
    return solver


def _newest(prefix: str) -> str | None:
    found = newest_snapshot(prefix)
    for reason in found.skipped:
        log.warning(reason)
    if found.path is None:
        log.warning("no snapshot %s_iter_*.solverstate to go on from: starting anew", prefix)
    return found.path


def _backend(options: argparse.Namespace, param: Any) -> Backend:
    if options.gpu is None and param.solver_mode == schema.SolverParameter.GPU:
        options.gpu = "auto"
        # Caffe's default is the GPU, so only who wrote it has a right to be surprised.
        level = logging.WARNING if param.HasField("solver_mode") else logging.INFO
    else:
        level = logging.WARNING
    backend = choose_backend(options.gpu, options.threads, level, options.cudnn)
    log.info("Use %s.", "CPU" if backend.name != "cuda" else backend.describe())
    return backend


if __name__ == "__main__":
    sys.exit(main())
