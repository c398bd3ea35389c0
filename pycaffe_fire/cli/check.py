"""fire_train --check and caffe check: every problem of a project, printed one below the other."""

from __future__ import annotations

import argparse
import logging

from .. import schema
from ..backend.choice import choose_backend
from ..errors import FireError
from ..report.glog import logging_with, stderr_handler
from ..solver.check import Check


def check_project(solver: str, options: argparse.Namespace) -> None:
    """Print what is wrong; raises a FireError that counts the problems, if there are any."""
    stages = [stage for stage in (options.stage or "").split(",") if stage]
    state = schema.NetState(level=options.level, stage=stages)
    with logging_with(stderr_handler(), logging.WARNING):
        check = Check(choose_backend(options.gpu or None), options.allow_python_layers)
        check.solver(solver, state, options.weights or "")
    for problem in check.problems:
        print(problem)
    if check.problems:
        count = len(check.problems)
        raise FireError(f"{count} problem{'s' * (count > 1)} in {', '.join(check.seen)}")
    print(f"no problems in {', '.join(check.seen)}")
