"""fire_train: train the net of a solver prototxt."""

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
from ..parallel.communicators.wire import WIRES
from ..parallel.job import (
    check_alike,
    check_names,
    default_leaves,
    failing_together,
    join,
    ranks_started,
)
from ..parallel.launch import run_job
from ..parallel.monitor import Reporter
from ..parallel.tree import check_leaves
from ..report.glog import logging_with, stderr_handler
from ..report.json_log import JsonLog, log_path
from ..report.progress import ConsoleHandler, ProgressDisplay
from ..report.summary import summary_lines
from ..report.tensorboard import TensorBoardLog
from ..report.text import CaffeLog, Results
from ..solver import Solver, read_param, recorded_run
from ..solver.capacity import planned
from ..solver.events import Observer
from ..solver.health import POLICIES
from ..solver.large_batch import scale_rate, with_batch
from ..solver.nets import find_test_nets, find_train_net, with_shuffling, without_data
from ..solver.shelf import Found, known_states, newest_snapshot
from ..solver.signals import EFFECTS, SignalRequests
from .common import Parser, positive, run, whole, without_flags

log = logging.getLogger("pycaffe_fire")

COMMANDS = """
  fire_train --solver models/lenet/solver.prototxt                  all cores of this machine
  fire_train --solver models/lenet/solver.prototxt --threads 4      four threads
  fire_train --solver models/lenet/solver.prototxt --gpu 0          the first GPU
  fire_train --solver models/lenet/solver.prototxt --leaves 4       the batch in 4 parts at once;
                                                                    same bits on any machine
  fire_train --solver models/lenet/solver.prototxt --snapshot runs/lenet/lenet_iter_500.solverstate
                                                                    go on where a run stopped
  fire_train --solver models/lenet/solver.prototxt --snapshot auto --keep 3 --keep-best accuracy
                                                                    go on from the newest snapshot,
                                                                    keep three and the best one
  fire_train --solver models/lenet/solver.prototxt --weights old.caffemodel
                                                                    fine-tune: start from weights
  fire_train --solver models/googlenet/solver.prototxt --synthetic  try a net without its data
  fire_train -n 4 --solver models/lenet/solver.prototxt             four ranks on this machine
  fire_train -n 8 --hosts a,b --restarts 3 --solver ...             eight on two hosts; where one
                                                                    fails, on with the others
  mpiexec -n 8 fire_train --solver ...   srun fire_train --solver ...   as your cluster does it
"""

# Flags that mean something only beside another one, with what to say where that is missing.
NEEDED = (
    ("stop_after", "keep_best", "--keep-best METRIC: which output is to improve?"),
    ("scale_lr", "batch", "--batch: the rate is scaled with the batch"),
    ("warmup", "scale_lr", "--scale-lr: to which rate should it rise?"),
    ("hosts", "ranks", "-n RANKS; where mpiexec or srun starts them, tell it the hosts"),
    ("restarts", "ranks", "-n RANKS: only what starts the ranks can start them again"),
)


def _parser() -> Parser:
    parser = Parser("fire_train", COMMANDS)
    flag = parser.add_argument
    flag("--solver", metavar="FILE", required=True, help="the solver prototxt")
    flag(
        "--snapshot", metavar="FILE",
        help="resume from this .solverstate; auto: from the newest complete one, if there is any",
    )  # fmt: skip
    flag(
        "--weights", metavar="FILES",
        help="fine-tune: copy weights by layer name from these .caffemodels, separated by commas",
    )  # fmt: skip
    flag(
        "--ignore-mismatch", action="store_true",
        help="with --weights: copy what fits and leave out, with a warning, what does not",
    )  # fmt: skip
    flag(
        "--iterations", type=positive, metavar="N",
        help="train as if max_iter said N (Caffe's train takes this flag, but ignores it)",
    )  # fmt: skip
    flag("--threads", type=positive, metavar="N", help="CPU threads (default: all cores)")
    flag(
        "--leaves", type=positive, metavar="L",
        help="cut the batch into L equal parts, L a power of two, that run side by side; results "
        "depend on L, but not on threads (default: 1, or what the resumed run had)",
    )  # fmt: skip
    flag(
        "--gpu", metavar="ID",
        help="a GPU's number; several (0,2) or all, one for each process on this host; auto: a GPU "
        "if one works, else the CPU (default: what solver_mode says, as auto)",
    )  # fmt: skip
    flag(
        "--cudnn", action="store_true",
        help="convolutions by cuDNN instead of our own; never tried on hardware",
    )  # fmt: skip
    flag(
        "--cuda-graph", action="store_true",
        help="record an iteration on the GPU and replay it; never tried on hardware",
    )  # fmt: skip
    flag("--level", type=int, default=0, metavar="N", help="the net state's level")
    flag("--stage", default="", metavar="NAMES", help="the net state's stages, with commas")
    for name, effect in (("sigint", "stop"), ("sighup", "snapshot")):
        flag(
            f"--{name}_effect", choices=list(EFFECTS), default=effect,
            help=f"what {name.upper()} does (default: {effect}); to stop leaves a snapshot",
        )  # fmt: skip
    flag(
        "--synthetic", nargs="?", const=(), type=_image, metavar="C,H,W",
        help="made-up data in place of the data layers; C,H,W where they have no crop_size",
    )  # fmt: skip
    flag("--shuffle", action="store_true", help="read the training data in a new order every epoch")
    flag(
        "--bad-records", choices=["fail", "skip"], default="fail",
        help="what a record that cannot be used does: end the run (default), or be skipped",
    )  # fmt: skip
    flag(
        "--allow-python-layers", action="store_true",
        help="import the modules that the net's Python layers name: they run as code of yours",
    )  # fmt: skip
    flag(
        "--on-nan", choices=list(POLICIES), default="stop",
        help="what NaN or infinity in the loss or gradients does: end the run (default); skip the "
        "iteration; roll back to the last snapshot and go on with half the rate",
    )  # fmt: skip
    flag("--log", action="store_true", help="Caffe's log lines on a terminal, too")
    flag(
        "--tensorboard", metavar="DIR",
        help="write event files for TensorBoard to this folder (a JSON log is always written: "
        "PREFIX_log.jsonl beside the snapshots; see fire_plot)",
    )  # fmt: skip
    flag(
        "--summary", action="store_true",
        help="show the net's layers, shapes, parameters, memory and GFLOPs, and train nothing",
    )  # fmt: skip
    flag("--times", action="store_true", help="with every display: where time went, on each rank")
    _add_keeping_flags(parser)
    _add_rank_flags(parser)
    return parser


def _add_keeping_flags(parser: Parser) -> None:
    flag = parser.add_argument
    flag("--keep", type=positive, metavar="N", help="keep the last N snapshots, delete older ones")
    flag(
        "--keep-best", metavar="METRIC",
        help="keep a snapshot PREFIX_best of the best test result. METRIC is an output of a test "
        "net: a loss or error (lowest) or, say, accuracy (highest); min:NAME or max:NAME decide",
    )  # fmt: skip
    flag(
        "--stop-after", type=positive, metavar="N",
        help="stop when N tests in a row have not improved --keep-best's METRIC",
    )  # fmt: skip


def _add_rank_flags(parser: Parser) -> None:
    flag = parser.add_argument
    flag("-n", "--ranks", type=positive, metavar="P", help="start P ranks")
    flag("--hosts", default="", metavar="NAMES", help="hosts for the ranks, with commas")
    flag(
        "--restarts", type=whole, default=0, metavar="N",
        help="if a rank fails, go on up to N times from the newest snapshot with those left",
    )  # fmt: skip
    flag(
        "--communicator", default="", metavar="NAME",
        help="how ranks sum gradients: halving (default), tree, server, ring, mpi; auto measures; "
        "nccl (default where each rank has a GPU). The first three give the same bits on any "
        "number of ranks",
    )  # fmt: skip
    flag(
        "--gradients", choices=list(WIRES), default="float32",
        help="gradients on the wire (default: float32)",
    )  # fmt: skip
    flag(
        "--batch", type=_batch, metavar="SIZE",
        help="the global batch instead of the prototxt's; per-rank: the prototxt's, times ranks",
    )  # fmt: skip
    flag(
        "--scale-lr", choices=["linear", "sqrt"],
        help="with --batch: scale the learning rate with the batch, or with its square root",
    )  # fmt: skip
    flag(
        "--warmup", type=whole, metavar="N",
        help="with --scale-lr: rise to the scaled rate over N iterations (default: 5 %% of all)",
    )  # fmt: skip


def _batch(text: str) -> int | str:
    return text if text == "per-rank" else positive(text)


def _image(text: str) -> tuple[int, ...]:
    shape = tuple(positive(part) for part in text.split(","))
    if len(shape) != 3:
        raise argparse.ArgumentTypeError(f'needs channels,height,width, got "{text}"')
    return shape


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), _train, arguments)


def _train(options: argparse.Namespace) -> None:
    if options.snapshot and options.weights:
        raise SolverError("give --snapshot to resume or --weights to fine-tune, not both")
    for flag, needed, reason in NEEDED:
        if getattr(options, flag) and not getattr(options, needed):
            raise SolverError(f"--{flag.replace('_', '-')} needs {reason}")
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
    reporter = Reporter(communicator.rank, lambda: communicator.doing)
    with (
        _display(options.log or param.debug_info, communicator.rank) as show,
        _logs(options, param, communicator.rank) as logs,
    ):
        solver = _make_solver(options, param, communicator, [show, results, *logs])
        solver.show_times = options.times
        with SignalRequests(*effects) as requests:
            solver.requested_action = requests
            solver.solve()
        reporter.close()
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
