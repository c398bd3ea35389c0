"""Larger batches with the right hyperparameters: another global batch, a rate to match, and a
schedule that sees the data as often as before."""  # fmt: skip

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from ..errors import SolverError
from ..layers import layer_class
from ..schema.proto import LayerParameter, NetState, SolverParameter
from .nets import edit_training_data
from .rates import base_rate

WARMUP_SHARE = 0.05  # of all iterations, where nothing else is said
EPOCHS, ITERATIONS = "epochs", "iterations"
PER_RANK = "per-rank"

# What a solver counts in iterations.
COUNTED = (
    "max_iter", "stepsize", "stepvalue", "stageiter", "plateau_winsize", "rampup_interval",
    "warmup_iter", "test_interval", "snapshot", "display", "average_loss",
)  # fmt: skip
NEARBY = 0.25  # how far a test_interval may move for a test at the very end


class KnownRates(NamedTuple):
    """Rates that somebody has tried for a net at a batch: those that failed, and the best."""

    batch: int
    failed: Sequence[float]
    best: float
    source: str


KNOWN_RATES = {"googlenet": KnownRates(1024, (0.16, 0.32), 0.08, "the FireCaffe paper")}


def with_batch(
    solver: SolverParameter, cli_state: NetState, batch: int | str, ranks: int
) -> tuple[SolverParameter, float]:
    """A copy of the solver whose training net reads `batch` samples, and the factor that is.

    "per-rank" keeps the prototxt's batch for every rank, which is what BVLC Caffe does.
    """
    factors = set()

    def edit(layer: LayerParameter) -> None:
        param = layer_class(layer.type).own_param(layer)
        wanted = param.batch_size * ranks if batch == PER_RANK else batch
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


def schedule_kept(asked: str | None, batch: int | str | None, scale_lr: str | None) -> str:
    """What stays when the batch changes: the epochs, unless it is all to be as in BVLC Caffe."""
    return asked or (ITERATIONS if batch == PER_RANK and not scale_lr else EPOCHS)


def keep_epochs(solver: SolverParameter, factor: float) -> None:
    """Divide what is counted in iterations by the factor, so that it comes after as many samples.

    A schedule that ends with a test does so again, if its test_interval need not move far.
    Laws that lower the rate a little in every iteration do so by as much per sample.
    """
    if factor == 1:
        return
    ends_with_a_test = _ends_with_a_test(solver)
    for name in COUNTED:
        value = getattr(solver, name)
        if isinstance(value, int):
            if value > 0 and solver.HasField(name):
                setattr(solver, name, _divided(value, factor))
        else:
            value[:] = [_divided(each, factor) for each in value]
    if solver.lr_policy == "exp":
        solver.gamma **= factor
    elif solver.lr_policy in ("inv", "sigmoid"):
        solver.gamma *= factor
    if ends_with_a_test:
        _end_with_a_test(solver)


def _divided(count: int, factor: float) -> int:
    return max(1, round(count / factor))


def _ends_with_a_test(solver: SolverParameter) -> bool:
    return solver.test_interval > 0 and solver.max_iter % solver.test_interval == 0


def _end_with_a_test(solver: SolverParameter) -> None:
    """Move test_interval a little if rounding has lost the test after the last iteration."""
    length, ideal = solver.max_iter, solver.test_interval
    least, most = max(1, ideal - int(NEARBY * ideal)), min(length, ideal + int(NEARBY * ideal))
    nearby = [n for n in range(least, most + 1) if length % n == 0]
    if nearby:
        solver.test_interval = min(nearby, key=lambda n: abs(n - ideal))


def scale_rate(solver: SolverParameter, how: str | None, factor: float, warmup: int | None) -> None:
    """Scale base_lr with the batch (or its square root) and rise to it from the old one."""
    if how is None or factor == 1:
        return
    old, gain = base_rate(solver), factor if how == "linear" else sqrt(factor)
    solver.base_lr = old * gain
    solver.stagelr[:] = [rate * gain for rate in solver.stagelr]
    interval = warmup if warmup is not None else round(WARMUP_SHARE * solver.max_iter)
    if interval > 0:
        solver.rampup_interval, solver.rampup_lr = interval, old


def changes(old: SolverParameter, new: SolverParameter, factor: float, kept: str) -> list[str]:
    """What another batch has made of a schedule, for the run's header; nothing where it has not."""
    if factor == 1:
        return []
    changed = [
        f"{name} {_text(getattr(old, name))} -> {_text(getattr(new, name))}"
        for name in (*COUNTED, "gamma", "base_lr", "stagelr")
        if getattr(old, name) != getattr(new, name)
    ]
    length = "as many epochs" if kept == EPOCHS else f"as many iterations, {factor:g} x the epochs"
    lines = [f"Schedule: batch x {factor:g}, {length}; {', '.join(changed) or 'nothing changed'}"]
    if _ends_with_a_test(old) and not _ends_with_a_test(new):
        last = new.max_iter // new.test_interval * new.test_interval
        lines.append(f"The last test is at iteration {last} of {new.max_iter}")
    return lines


def _text(value: float | Sequence[float]) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, int) else ",".join(map(_text, value))


def known_to_fail(net: str, batch: int, rate: float) -> str:
    """What others have found where this rate does not train that net; nothing where it may."""
    known = KNOWN_RATES.get(net.casefold())
    if known is None or batch > known.batch or rate < min(known.failed) * (1 - 1e-6):
        return ""
    return (
        f"base_lr {rate:g} at batch {batch}: in {known.source} {net} does not train at batch "
        f"{known.batch} with {' or '.join(f'{each:g}' for each in known.failed)}; the best rate "
        f"there was {known.best:g}"
    )
