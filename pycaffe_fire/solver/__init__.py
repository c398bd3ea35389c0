"""The training loop, update rules, learning-rate policies and snapshots."""

from .nets import read_param
from .solver import Action, Solver, recorded_run

__all__ = ["Action", "Solver", "read_param", "recorded_run"]
