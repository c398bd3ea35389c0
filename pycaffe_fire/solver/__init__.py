"""The training loop, update rules, learning-rate policies and snapshots."""

from .nets import read_param
from .recorded import recorded_run
from .solver import Action, Solver

__all__ = ["Action", "Solver", "read_param", "recorded_run"]
