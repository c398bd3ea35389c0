"""Runs that need nothing but this package: the data of a model is drawn before it is trained."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..data.digits import make_digits
from ..errors import SolverError


class Demo(NamedTuple):
    """A model's solver, the folder its nets read from, and what draws the data there."""

    solver: str
    data: str
    draw: Callable[[Path], list[str]]


DEMOS = {"lenet": Demo("models/lenet/solver.prototxt", "data", make_digits)}


def prepare(name: str, out: str | None) -> str:
    """Enter the folder of the run, draw the data where it is missing, and name the solver."""
    demo = DEMOS[name]
    if out:
        try:
            os.makedirs(out, exist_ok=True)
            os.chdir(out)
        except OSError as error:
            raise SolverError(f"--out {out}: {error.strerror}") from error
    for line in demo.draw(Path(demo.data)):
        print(line, file=sys.stderr, flush=True)
    return demo.solver
