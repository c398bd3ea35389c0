"""fire_sweep: train with several solvers, one after the other, and show them side by side."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import FireError, SolverError
from ..installation import find_model_file
from ..parallel.launch import STOPPED
from ..report.curves import draw, panels
from ..report.json_log import log_path
from ..report.run_facts import title_of
from ..report.runs import Run, read_run
from ..report.style import check_plot_name
from ..report.sweep import failed, sweep_table
from ..solver import read_param
from .common import Parser, run

COMMANDS = """
  fire_sweep models/googlenet/sweep -o sweep.png -- -n 4 --hosts a,b
                                      the FireCaffe paper's rates at batch 1024, 0.02 to 0.32;
                                      what comes after -- is for fire_train
  fire_sweep models/nin/sweep -- --synthetic --iterations 10           a trial without ImageNet
  fire_sweep a.prototxt b.prototxt -o ab.png                           any solvers

  Every run goes on from its newest snapshot, and one that is done is not run again: a sweep that
  was stopped goes on where it was.
"""
TRAIN = "pycaffe_fire.cli.fire_train"


def _parser() -> Parser:
    parser = Parser("fire_sweep", COMMANDS)
    parser.add_argument(
        "solvers", nargs="+", metavar="SOLVER", help="solver prototxts, or a folder of them"
    )
    parser.add_argument("-o", "--output", metavar="FILE.png", help="draw the curves as a plot")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    own = given[: given.index("--")] if "--" in given else given
    return run(_parser(), lambda options: _sweep(options, given[len(own) + 1 :]), own)


def _sweep(options: argparse.Namespace, flags: Sequence[str]) -> None:
    if options.output:
        check_plot_name(options.output)
    solvers = _solvers(options.solvers)
    logs = [log_path(read_param(solver).snapshot_prefix) for solver in solvers]
    if len(set(logs)) < len(logs):
        raise SolverError("two solvers have the same snapshot_prefix: their runs would be mixed up")
    runs = [_train(*each, flags) for each in zip(solvers, logs, strict=True)]
    print("\n".join(sweep_table(runs)))
    if options.output:
        draw(options.output, panels(runs), "iteration", title_of(runs))
        print(options.output)


def _solvers(given: Sequence[str]) -> list[str]:
    found: list[str] = []
    for path in map(find_model_file, given):
        inside = sorted(map(str, Path(path).glob("*.prototxt")), key=_by_number)
        if os.path.isdir(path) and not inside:
            raise SolverError(f"{path}: holds no solver prototxt")
        found += inside or [path]
    return found


def _by_number(path: str) -> tuple[float, str]:
    """lr_0.02 before lr_0.16, and lr_8 before lr_16."""
    number = Path(path).stem.rpartition("_")[2]
    try:
        return float(number), path
    except ValueError:
        return 0.0, path


def _train(solver: str, log: str, flags: Sequence[str]) -> Run:
    """One run of fire_train, to its end or to NaN; whatever else ends it ends the sweep."""
    if (
        os.path.exists(log)
        and (done := _read(log))
        and done.finished
        and not done.finished["early"]
    ):
        print(f"{solver}: done already ({log})", flush=True)
        return done
    print(f"{solver}: training", flush=True)
    resume = [] if {"--snapshot", "--weights"} & set(flags) else ["--snapshot", "auto"]
    command = [sys.executable, "-m", TRAIN, "--solver", solver, *resume, *flags]
    status = subprocess.run(command).returncode
    made = _read(log)
    if status == STOPPED:
        sys.exit(STOPPED)
    if made is None or (status and not failed(made)):
        raise FireError(f"{solver}: fire_train failed (status {status}); it has said why")
    return made


def _read(log: str) -> Run | None:
    """The run of a log; None where nothing was trained."""
    try:
        return read_run(log)
    except FireError:
        return None


if __name__ == "__main__":
    sys.exit(main())
