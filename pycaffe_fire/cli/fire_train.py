"""fire_train: train the net of a solver prototxt."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from .. import schema
from ..backend.base import Backend
from ..data.recipes import advice, missing_sources
from ..defaults import choose_backend
from ..errors import DataError, SolverError
from ..net.graph import filter_net
from ..parallel.tree import check_leaves
from ..report.glog import logging_with, stderr_handler
from ..report.progress import ConsoleHandler, ProgressDisplay
from ..report.text import CaffeLog, Results
from ..solver import Solver, read_param, recorded_run
from ..solver.events import Observer
from ..solver.nets import find_test_nets, find_train_net, without_data
from ..solver.signals import EFFECTS, SignalRequests
from .common import Parser, run

log = logging.getLogger("pycaffe_fire")

COMMANDS = """
  fire_train --solver models/lenet/solver.prototxt                  all cores of this machine
  fire_train --solver models/lenet/solver.prototxt --threads 4      four threads
  fire_train --solver models/lenet/solver.prototxt --gpu 0          the first GPU
  fire_train --solver models/lenet/solver.prototxt --leaves 4       the batch in 4 parts at once;
                                                                    same bits on any machine
  fire_train --solver models/lenet/solver.prototxt --snapshot runs/lenet/lenet_iter_500.solverstate
                                                                    go on where a run stopped
  fire_train --solver models/lenet/solver.prototxt --weights old.caffemodel
                                                                    fine-tune: start from weights
  fire_train --solver models/googlenet/solver.prototxt --synthetic  try a net without its data
"""


def _parser() -> Parser:
    parser = Parser("fire_train", COMMANDS)
    flag = parser.add_argument
    flag("--solver", metavar="FILE", required=True, help="the solver prototxt")
    flag("--snapshot", metavar="FILE", help="resume from this .solverstate")
    flag(
        "--weights", metavar="FILES",
        help="fine-tune: copy weights by layer name from these .caffemodels, separated by commas",
    )  # fmt: skip
    flag(
        "--iterations", type=_positive, metavar="N",
        help="train as if max_iter said N (Caffe's train takes this flag, but ignores it)",
    )  # fmt: skip
    flag("--threads", type=_positive, metavar="N", help="CPU threads (default: all cores)")
    flag(
        "--leaves", type=_positive, metavar="L",
        help="cut the batch into L equal parts, L a power of two, that run side by side; results "
        "depend on L, but not on threads (default: 1, or what the resumed run had)",
    )  # fmt: skip
    flag(
        "--gpu", metavar="ID",
        help="a GPU's number; several (0,2) or all, one for each process on this host; auto: a GPU "
        "if one works, else the CPU (default: what solver_mode says, as auto)",
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
    flag("--log", action="store_true", help="Caffe's log lines on a terminal, too")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f'needs a whole number of at least 1, got "{text}"')
    return int(text)


def _image(text: str) -> tuple[int, ...]:
    shape = tuple(_positive(part) for part in text.split(","))
    if len(shape) != 3:
        raise argparse.ArgumentTypeError(f'needs channels,height,width, got "{text}"')
    return shape


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), _train, arguments)


def _train(options: argparse.Namespace) -> None:
    if options.snapshot and options.weights:
        raise SolverError("give --snapshot to resume or --weights to fine-tune, not both")
    results = Results()
    param = read_param(options.solver)
    effects = EFFECTS[options.sigint_effect], EFFECTS[options.sighup_effect]
    with _display(options.log or param.debug_info) as show:
        solver = _make_solver(options, param, [show, results])
        with SignalRequests(*effects) as requests:
            solver.requested_action = requests
            solver.solve()
        solver.close()
        log.info("Optimization Done.")
    for line in results.lines():
        print(line)


@contextmanager
def _display(plain: bool) -> Iterator[Observer]:
    """A live display where there is a terminal to show it on, Caffe's log otherwise."""
    console = Console(stderr=True, highlight=False)
    if plain or not console.is_terminal or console.is_dumb_terminal:
        with logging_with(stderr_handler(), logging.INFO):
            yield CaffeLog()
    else:
        warnings = logging_with(ConsoleHandler(console), logging.WARNING)
        with warnings, ProgressDisplay(console) as display:
            yield display


def _make_solver(options: argparse.Namespace, param: Any, observers: list[Observer]) -> Solver:
    backend = _backend(options, param)
    recorded = recorded_run(options.snapshot) if options.snapshot else {}
    leaves = options.leaves or recorded.get("leaves", 1)
    check_leaves(leaves)
    # A run without a seed of its own drew one; a resumed run goes on with that.
    seed = recorded.get("seed") if param.random_seed < 0 else None
    state = schema.NetState(level=options.level, stage=[s for s in options.stage.split(",") if s])
    if options.iterations:
        param.max_iter = options.iterations
    try:
        if options.synthetic is not None:
            param = without_data(param, state, options.synthetic)
        solver = Solver(
            param, backend=backend, leaves=leaves, seed=seed, level=state.level,
            stages=state.stage, share_gradients=True, observers=observers,
        )  # fmt: skip
    except SolverError as error:
        raise SolverError(f"{options.solver}: {error}") from error
    except DataError as error:
        nets = [find_train_net(param, state), *find_test_nets(param)]
        missing = missing_sources(filter_net(net.param) for net in nets)
        lines = advice(missing, f"fire_train --solver {options.solver}") if missing else []
        raise DataError("\n  ".join([str(error), *lines])) from error
    if options.snapshot:
        log.info("Resuming from %s", options.snapshot)
        solver.restore(options.snapshot)
    elif options.weights:
        log.info("Finetuning from %s", options.weights)
        solver.load_weights(options.weights)
    return solver


def _backend(options: argparse.Namespace, param: Any) -> Backend:
    if options.gpu is None and param.solver_mode == schema.SolverParameter.GPU:
        options.gpu = "auto"
        # Caffe's default is the GPU, so only who wrote it has a right to be surprised.
        level = logging.WARNING if param.HasField("solver_mode") else logging.INFO
    else:
        level = logging.WARNING
    backend = choose_backend(options.gpu, options.threads, level)
    log.info("Use %s.", "CPU" if backend.name != "cuda" else backend.describe())
    return backend


if __name__ == "__main__":
    sys.exit(main())
