"""Larger batches with the right hyperparameters: another global batch, and a rate to match."""

from __future__ import annotations

from math import sqrt

from ..errors import SolverError
from ..layers import layer_class
from ..schema.proto import LayerParameter, NetState, SolverParameter
from .nets import edit_training_data

WARMUP_SHARE = 0.05  # of all iterations, where nothing else is said


def with_batch(
    solver: SolverParameter, cli_state: NetState, batch: int | str, ranks: int
) -> tuple[SolverParameter, float]:
    """A copy of the solver whose training net reads `batch` samples, and the factor that is.

    "per-rank" keeps the prototxt's batch for every rank, which is what BVLC Caffe does.
    """
    factors = set()

    def edit(layer: LayerParameter) -> None:
        param = layer_class(layer.type).own_param(layer)
        wanted = param.batch_size * ranks if batch == "per-rank" else batch
        factors.add(wanted / param.batch_size)
        param.batch_size = wanted

    made = edit_training_data(solver, cli_state, edit)
    if len(factors) != 1:
        raise SolverError(
            "--batch needs a training net with a data layer that has a batch_size"
            if not factors
            else "--batch needs data layers of one batch_size; this net has several"
        )
    return made, factors.pop()


def scale_rate(solver: SolverParameter, how: str | None, factor: float, warmup: int | None) -> None:
    """Scale base_lr with the batch (or its square root) and rise to it from the old one."""
    if how is None or factor == 1:
        return
    old = solver.base_lr
    solver.base_lr = old * (factor if how == "linear" else sqrt(factor))
    interval = warmup if warmup is not None else round(WARMUP_SHARE * solver.max_iter)
    if interval > 0:
        solver.rampup_interval, solver.rampup_lr = interval, old
