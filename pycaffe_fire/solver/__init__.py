"""The training loop, update rules, learning-rate policies and snapshots."""

from .solver import Action, Solver, recorded_seed

__all__ = ["Action", "Solver", "recorded_seed"]
