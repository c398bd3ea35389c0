"""From what a user asks for to a solver that is ready to run: the one place where a run is put
together, for commands and for pycaffe's solvers that train together."""  # fmt: skip

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from .. import schema
from ..backend.base import Backend
from ..backend.choice import FP32, ON_CPU, GpuOptions, choose_backend
from ..backend.cuda.plan_trials import read_choices
from ..backend.tensor import FLOAT32
from ..data.bad_records import FAIL
from ..errors import DataError, SolverError
from ..net import Net
from ..net.graph import filter_net
from ..net.missing_data import advice, missing_sources
from ..parallel.communicator import Communicator
from ..parallel.division import advice as division_advice
from ..parallel.division import choose_leaves
from ..parallel.interconnect import survey
from ..parallel.job import check_alike
from ..parallel.threads import choose_threads
from ..parallel.tree import check_leaves
from ..schema.proto import SolverParameter
from .capacity import Need, planned
from .events import Observer
from .large_batch import EPOCHS, changes, keep_epochs, scale_rate, schedule_kept, with_batch
from .nets import (
    find_test_nets,
    find_train_net,
    training_batch,
    with_shuffling,
    without_data,
)
from .options import Action, SolverOptions, net_state, nothing
from .run_record import recorded_run
from .snapshot_files import newest_snapshot
from .solver import Solver
from .statistics import with_sync

log = logging.getLogger("pycaffe_fire")

AUTO = "auto"  # the newest snapshot


@dataclass(frozen=True)
class RunOptions:
    """What fire_train's flags of the same names say; see there."""

    solver: str
    snapshot: str | None = None
    weights: str | None = None
    ignore_mismatch: bool = False
    allow_empty_weights: bool = False
    iterations: int | None = None
    threads: int | None = None
    leaves: int | None = None
    gpu: str | None = None
    cudnn: bool | None = None  # where it loads
    math: str = FP32
    precision: str = FLOAT32
    jpeg: str = ON_CPU
    time_plans: bool = False
    cuda_graph: bool | None = None  # where it can be
    level: int = 0
    stage: str = ""
    synthetic: Sequence[int] | None = None
    shuffle: bool = False
    bad_records: str = FAIL
    allow_python_layers: bool = False
    output_folder: str = ""
    on_nan: str = "stop"
    keep: int | None = None
    keep_best: str | None = None
    stop_after: int | None = None
    batch: int | str | None = None
    scale_lr: str | None = None
    warmup: int | None = None
    schedule: str | None = None
    sync_bn: bool = False


@dataclass(frozen=True)
class Plan:
    """What options make of a solver prototxt: its parameters, and how the solver is to run."""

    param: SolverParameter
    options: SolverOptions
    snapshot: str | None


def fresh_seed() -> int:
    """A seed for a run that was given none."""
    return secrets.randbits(31)


def rank_options(
    ranks: Communicator,
    seed: int,
    make_backend: Callable[[int], Backend],
    leaves: int | None = None,
    threads: int | None = None,
) -> SolverOptions:
    """How one rank of a job computes: its share of the host's cores, all ranks' leaves and seed."""
    chosen = choose_threads(ranks, threads)
    counts = ranks.gather(chosen.count)
    others = "" if len(set(counts)) == 1 else f"; {min(counts)} to {max(counts)} on all ranks"
    log.info("Threads: %s%s", chosen, others)
    leaves = leaves or choose_leaves(ranks.size)
    check_leaves(leaves)
    return SolverOptions(make_backend(chosen.count), ranks.broadcast(seed), ranks, leaves)


def plan_run(asked: RunOptions, param: SolverParameter, ranks: Communicator) -> Plan:
    """Everything that must be known before nets are built; all ranks call it together."""
    snapshot = asked.snapshot
    if snapshot == AUTO:  # rank 0 looks: others might see older files
        snapshot = ranks.broadcast(_newest(param.snapshot_prefix) if ranks.rank == 0 else None)
    recorded = recorded_run(snapshot) if snapshot else {}
    options = rank_options(
        ranks, _seed(param, recorded), lambda threads: _backend(asked, param, threads, ranks),
        asked.leaves or recorded.get("leaves"), asked.threads,
    )  # fmt: skip
    options = replace(
        options, level=asked.level, stages=[s for s in asked.stage.split(",") if s],
        share_gradients=True, on_nan=asked.on_nan, bad_records=asked.bad_records,
        python_modules=asked.allow_python_layers, output_folder=asked.output_folder,
        ignore_mismatch=asked.ignore_mismatch, allow_empty_weights=asked.allow_empty_weights,
        cuda_graph=asked.cuda_graph, keep=asked.keep, keep_best=asked.keep_best,
        stop_after=asked.stop_after, timeline=True,
    )  # fmt: skip
    with _naming(asked.solver):
        changed, notes = _changed(asked, param, options, ranks)
        batch = training_batch(changed, net_state(options))
    options = replace(options, notes=notes)
    if not (asked.leaves or recorded.get("leaves")):
        options = replace(options, leaves=choose_leaves(ranks.size, batch))
    if ranks.rank == 0 and (text := division_advice(ranks.size, options.leaves, batch)):
        log.warning("%s", text)
    return Plan(changed, options, snapshot)


def make_solver(
    asked: RunOptions,
    param: SolverParameter,
    ranks: Communicator,
    observers: Sequence[Observer] = (),
    requested_action: Callable[[], Action] = nothing,
) -> Solver:
    """The solver that a run asks for, with its weights or snapshot loaded, alike on all ranks."""
    plan = plan_run(asked, param, ranks)
    job = survey(ranks, plan.options.backend.describe())
    options = replace(plan.options, observers=observers, requested_action=requested_action, job=job)
    with _building(asked.solver, plan):
        solver = Solver(plan.param, options)
        solver.check_end()
    if plan.snapshot:
        log.info("Resuming from %s", plan.snapshot)
        solver.restore(plan.snapshot)
    elif asked.weights:
        log.info("Finetuning from %s", asked.weights)
        solver.load_weights(asked.weights)
    check_alike(ranks, solver.facts)
    return solver


def plan_memory(asked: RunOptions, param: SolverParameter, ranks: Communicator) -> tuple[Net, Need]:
    """The training net without a solver, and what training it on one rank would take."""
    plan = plan_run(asked, param, ranks)
    with _building(asked.solver, plan):
        return planned(plan.param, plan.options)


def _seed(param: SolverParameter, recorded: dict[str, Any]) -> int:
    if param.random_seed >= 0:
        return int(param.random_seed)
    # A run without a seed of its own drew one; a resumed run goes on with that.
    seed = recorded.get("seed")
    return fresh_seed() if seed is None else int(seed)


def _changed(
    asked: RunOptions, param: SolverParameter, options: SolverOptions, ranks: Communicator
) -> tuple[SolverParameter, list[str]]:
    """The solver's parameters with what the flags change in them, and what to say about it."""
    state = net_state(options)
    old, factor = param, 1.0
    kept = schedule_kept(asked.schedule, asked.batch, asked.scale_lr)
    if asked.synthetic is not None:
        param = without_data(param, state, asked.synthetic)
    if asked.shuffle:
        param = with_shuffling(param, state)
    if asked.sync_bn:
        param = with_sync(param, state)
    if asked.batch:
        param, factor = with_batch(param, state, asked.batch, ranks.size)
    if kept == EPOCHS:
        keep_epochs(param, factor)
    if asked.iterations:
        param.max_iter = asked.iterations
    scale_rate(param, asked.scale_lr, factor, asked.warmup)
    notes = changes(old, param, factor, kept)
    if asked.weights:
        notes.append(f"First weights: {asked.weights}")
    return param, notes


@contextmanager
def _naming(solver: str) -> Iterator[None]:
    """Errors about settings say in which file these are."""
    try:
        yield
    except SolverError as error:
        raise SolverError(f"{solver}: {error}") from error


@contextmanager
def _building(solver: str, plan: Plan) -> Iterator[None]:
    """Errors about data say how to get what is not there."""
    with _naming(solver):
        try:
            yield
        except DataError as error:
            nets = [
                find_train_net(plan.param, net_state(plan.options)), *find_test_nets(plan.param)
            ]  # fmt: skip
            missing = missing_sources(filter_net(net.param) for net in nets)
            lines = advice(missing, f"fire_train --solver {solver}") if missing else []
            raise DataError("\n  ".join([str(error), *lines])) from error


def _newest(prefix: str) -> str | None:
    found = newest_snapshot(prefix)
    for reason in found.skipped:
        log.warning(reason)
    if found.path is None:
        log.warning("no snapshot %s_iter_*.solverstate to go on from: starting over", prefix)
    return found.path


def _backend(
    asked: RunOptions, param: SolverParameter, threads: int, ranks: Communicator
) -> Backend:
    gpu, level = asked.gpu, logging.WARNING
    if gpu is None and param.solver_mode == schema.SolverParameter.GPU:
        gpu = "auto"
        # Caffe's default is the GPU, so only who wrote it has a right to be surprised.
        level = logging.WARNING if param.HasField("solver_mode") else logging.INFO
    timed = None
    if asked.time_plans and ranks.size > 1:  # all of them take what one knows
        timed = ranks.broadcast(read_choices() if ranks.rank == 0 else None)
    options = GpuOptions(
        asked.cudnn, asked.math, asked.precision, asked.jpeg, asked.time_plans, timed
    )  # fmt: skip
    backend = choose_backend(gpu, threads, level, options, param.device_id)
    log.info("Use %s.", "CPU" if backend.name != "cuda" else backend.describe())
    return backend
