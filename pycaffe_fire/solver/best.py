"""The best test result so far: when to keep the weights, and when to stop trying."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from ..errors import SolverError
from ..net import Net
from ..parallel.leaves import Output, output_names
from ..registry import did_you_mean

log = logging.getLogger("pycaffe_fire")

_LOW_IS_GOOD = ("loss", "error")


class Best:
    """Follows an output of the first test net that has it. `metric` is the output's name; what
    has a loss weight, or "loss" or "error" in its name, is to be low, all else high, unless
    min:NAME or max:NAME says so. `patience` is how many tests may pass without a new best."""

    def __init__(self, metric: str, patience: int | None, nets: Sequence[Net]) -> None:
        way, colon, name = metric.rpartition(":")
        if colon and way not in ("min", "max"):
            raise SolverError(f'metric "{metric}": only min: or max: may stand before the name')
        outputs = [dict(output_names(net)) for net in nets]
        known = list(dict.fromkeys(n for found in outputs for n in found))
        if name not in known:
            raise SolverError(
                f'no test net has an output "{name}" to judge weights by'
                f"{did_you_mean(name, known)}; there is: {', '.join(known) or 'no test net'}"
            )
        self.net = next(i for i, found in enumerate(outputs) if name in found)
        low = outputs[self.net][name] != 0 or any(word in name.lower() for word in _LOW_IS_GOOD)
        self.name, self.low = name, way == "min" or (way != "max" and low)
        self.patience = patience
        self.value: float | None = None
        self.iteration = 0
        self.tests_since = 0

    def __str__(self) -> str:
        return f"{'lowest' if self.low else 'highest'} {self.name} of test net #{self.net}"

    def judge(self, iteration: int, results: Sequence[Sequence[Output]]) -> bool:
        """Take in the outputs of all test nets; is this the best so far?"""
        values = [o.value for o in results[self.net] if o.name == self.name]
        value = sum(values) / len(values)
        better = self.value is None or (value < self.value if self.low else value > self.value)
        if better and not math.isnan(value):
            self.value, self.iteration, self.tests_since = value, iteration, 0
            return True
        self.tests_since += 1
        return False

    @property
    def exhausted(self) -> bool:
        return self.patience is not None and self.tests_since >= self.patience

    def state(self) -> Any:
        """For snapshots, see Carried."""
        return [self.net, self.name, self.low, self.value, self.iteration, self.tests_since]

    def restore(self, state: Any) -> None:
        net, name, low, *rest = state
        if (net, name, low) != (self.net, self.name, self.low):
            log.warning(
                "The snapshot's run followed %s of test net #%d: a new best counts", name, net
            )
            return
        self.value, self.iteration, self.tests_since = rest
