"""The training loop, update rules, learning-rate policies and snapshots."""

from .nets import read_param
from .options import Action, SolverOptions
from .run_record import recorded_run
from .solver import Solver

__all__ = ["Action", "Solver", "SolverOptions", "read_param", "recorded_run"]
