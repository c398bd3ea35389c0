"""caffe: Caffe's command with its actions train, test, time and device_query; and check."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from .. import schema
from ..backend.base import Backend
from ..backend.choice import choose_backend
from ..backend.cuda.device import count
from ..errors import BackendError, FireError, NetError, SolverError
from ..net.timing import benchmark, has_loss
from ..parallel.job import ranks_started
from ..pycaffe.net import Net
from ..pycaffe.settings import allow_output, allow_python_layers
from ..registry import did_you_mean
from ..report.chart import chart_lines
from ..report.classes import class_lines, read_class_names, write_scores
from ..report.glog import logging_with, stderr_handler
from ..report.text import describe, precision_lines
from ..solver.average_precision import VERSIONS
from ..solver.confusion import ConfusionCounter
from ..solver.scoring import score
from ..solver.signals import EFFECTS
from . import device_query, fire_train
from .check import check_project
from .common import run
from .gflags import FlagParser
from .old_checkout import shadow

log = logging.getLogger("pycaffe_fire")

COMMANDS = """
  caffe train -solver solver.prototxt                         train, as fire_train does
  caffe train -solver solver.prototxt -snapshot lenet_iter_500.solverstate
  caffe train -solver solver.prototxt -weights old.caffemodel
  caffe test -model train_val.prototxt -weights net.caffemodel -iterations 100
  caffe test -model train_val.prototxt -weights net.caffemodel -per_class -json scores.json
  caffe time -model deploy.prototxt -iterations 10 -chart     time per layer, with bars and GFLOP/s
  caffe check -solver solver.prototxt                         train nothing, list every problem
  caffe device_query -gpu all

  Flags may be written -flag value, -flag=value, --flag value or --flag=value.
"""


def _parser() -> FlagParser:
    parser = FlagParser("caffe", COMMANDS)
    flag = parser.add_argument
    flag("action", nargs="?", metavar="ACTION", help=", ".join(_ACTIONS))
    flag("--gpu", default="", metavar="ID", help="a GPU's number, several (0,2) or all")
    flag("--solver", default="", metavar="FILE", help="train, check: the solver prototxt")
    flag("--model", default="", metavar="FILE", help="test, time: the net's prototxt")
    flag("--phase", default="", metavar="PHASE", help="time: TRAIN (default) or TEST")
    flag("--level", type=int, default=0, metavar="N", help="the net state's level")
    flag("--stage", default="", metavar="NAMES", help="the net state's stages, separated by commas")
    flag("--snapshot", default="", metavar="FILE", help="train: resume from this .solverstate")
    flag(
        "--weights",
        default="",
        metavar="FILES",
        help="train, test: .caffemodels, separated by commas",
    )
    flag(
        "--iterations", type=int, metavar="N",
        help="test, time: how many (default: 50); train ignores it: max_iter decides",
    )  # fmt: skip
    for name, effect in (("sigint", "stop"), ("sighup", "snapshot")):
        flag(
            f"--{name}_effect", choices=list(EFFECTS), default=effect,
            help=f"train: what {name.upper()} does (default: {effect})",
        )  # fmt: skip
    parser.boolean("per_class", "test: accuracy of each class and confusion matrix, also in -json")
    flag(
        "--ap_version", choices=VERSIONS, default="Integral",
        help="test: how average precision of detections is computed (default: Integral)",
    )  # fmt: skip
    parser.boolean("show_per_class_result", "test: average precision of each class of detections")
    flag("--labels", default="", metavar="FILE", help="test: names of the classes, one per line")
    flag("--json", default="", metavar="FILE", help="test: write the results to this file, too")
    parser.boolean("chart", "time: a bar and GFLOP/s for every layer, on standard output")
    flag(
        "--output_folder",
        default="",
        help="a folder in which the net's layers may write, besides the working directory",
    )
    parser.boolean("allow_python_layers", "import the modules that the net's Python layers name")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), _brew, arguments)


def _brew(options: argparse.Namespace) -> None:
    if options.action is None:
        _parser().print_help(sys.stderr)
        return
    if options.action not in _ACTIONS:
        raise FireError(
            f'unknown action "{options.action}"{did_you_mean(options.action, list(_ACTIONS))}; '
            f"available actions: {', '.join(_ACTIONS)}"
        )
    if found := shadow():
        print(f"caffe: {found}", file=sys.stderr)
    _ACTIONS[options.action](options)


def _train(options: argparse.Namespace) -> None:
    """fire_train with Caffe's flags; one rank for each GPU where several are named."""
    if not options.solver:
        raise SolverError("need a solver definition to train: -solver FILE")
    if options.iterations is not None:
        print("caffe: train ignores -iterations; set max_iter", file=sys.stderr)
    flags = [
        "--as",
        "caffe",
        "--verbose",
        "--solver",
        options.solver,
        "--level",
        str(options.level),
    ]
    for name in ("gpu", "snapshot", "weights", "stage", "sigint_effect", "sighup_effect"):
        if getattr(options, name):
            flags += [f"--{name}", getattr(options, name)]
    if options.allow_python_layers:
        flags.append("--allow-python-layers")
    if options.output_folder:
        flags += ["--output-folder", options.output_folder]
    if options.debug:
        flags.append("--debug")
    devices = count().devices if options.gpu == "all" else len(options.gpu.split(","))
    if devices > 1 and ranks_started() == 1:
        flags += ["-n", str(devices)]
    sys.exit(fire_train.main(flags))


def _check(options: argparse.Namespace) -> None:
    if not options.solver:
        raise SolverError("need a solver definition to check: -solver FILE")
    check_project(options.solver, options)


def _test(options: argparse.Namespace) -> None:
    if not options.weights:
        raise NetError("need model weights to score: -weights FILE")
    with logging_with(stderr_handler(), logging.INFO):
        net = _net(options, schema.TEST, _backend(options))
        try:
            for path in options.weights.split(","):
                net.copy_from(path)
            counter = ConfusionCounter(net) if options.per_class else None
            outputs, evaluation = score(
                net, _iterations(options), counter.count if counter else _nothing,
                options.ap_version,
            )  # fmt: skip
            if options.show_per_class_result:
                for line in precision_lines(evaluation.precisions):
                    log.info(line)
            for output in outputs:
                log.info("%s", describe(output))
        finally:
            net.close()
    found = counter.results() if counter else []
    names = read_class_names(options.labels, found) if options.labels else []
    for confusion in found:
        print("\n".join(class_lines(confusion, names)))
    if options.json:
        write_scores(options.json, _iterations(options), outputs, found, names)


def _nothing() -> None:
    """What happens after a batch if nobody counts."""


def _time(options: argparse.Namespace) -> None:
    phases = {"": schema.TRAIN, "TRAIN": schema.TRAIN, "TEST": schema.TEST}
    if options.phase not in phases:
        raise NetError(f'phase must be "TRAIN" or "TEST", got "{options.phase}"')
    with logging_with(stderr_handler(), logging.INFO):
        net = _net(options, phases[options.phase], _backend(options), differentiate=True)
        try:
            times = benchmark(net, _iterations(options))
            if options.chart:
                print("\n".join(chart_lines(net, times)))
        finally:
            net.close()


def _device_query(options: argparse.Namespace) -> None:
    sys.exit(device_query.main(["--gpu", options.gpu or "all"]))


def _net(
    options: argparse.Namespace, phase: int, backend: Backend, differentiate: bool = False
) -> Net:
    """The -model; if it is to have a backward pass but has no loss, one through all layers."""
    if not options.model:
        raise NetError(f"need a model definition to {options.action}: -model FILE")
    if options.allow_python_layers:
        allow_python_layers()
    allow_output(options.output_folder)
    stages = [stage for stage in options.stage.split(",") if stage]
    param = schema.read_net(options.model)
    state = schema.NetState(phase=phase, level=options.level, stage=stages)
    if differentiate and not has_loss(param, state):
        log.info("%s has no loss: gradients are computed for all of its layers", options.model)
        param.force_backward = True
    return Net(
        param, phase, level=options.level, stages=stages, backend=backend, source=options.model
    )


def _backend(options: argparse.Namespace) -> Backend:
    backend = choose_backend(options.gpu or None)
    log.info("Use %s.", "CPU" if backend.name != "cuda" else backend.describe())
    return backend


def _iterations(options: argparse.Namespace) -> int:
    count = 50 if options.iterations is None else options.iterations
    if count < 1:
        raise BackendError(f"-iterations must be at least 1, got {count}")
    return int(count)


_ACTIONS: dict[str, Callable[[argparse.Namespace], None]] = {
    "train": _train,
    "check": _check,
    "test": _test,
    "time": _time,
    "device_query": _device_query,
}

if __name__ == "__main__":
    sys.exit(main())
