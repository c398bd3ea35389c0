"""Timing cuDNN's plans: the fastest of the first few is kept, in a file that later runs read.

Which one that is depends on noise, and on it depend the last bits. So plans are timed on request
only, once for each product and kind of device, and by a process that is alone: the ranks of a job
take what rank 0's file says, and cuDNN's first choice for everything else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import plan_choices
from ..tensor import FLOAT32

if TYPE_CHECKING:
    from .cudnn import CudnnPlan, Product

TRIED, REPEATS = 4, 5


def choices_file() -> Path:
    return plan_choices.choices_file("cudnn")


def read_choices() -> str:
    """What the file says."""
    return plan_choices.read_choices(choices_file())


class Trials:
    """Chooses among plans of one device; `told` is what rank 0 has read, if there are others."""

    def __init__(self, xp: Any, stream: Any, about: str, told: str | None) -> None:
        self._xp, self._stream = xp, stream
        self._alone = told is None
        self._choices = plan_choices.PlanChoices(choices_file(), about, told)

    def choose(self, product: Product, allowed: Iterator[CudnnPlan]) -> CudnnPlan | None:
        """The plan that was the fastest before, or is now; else the first."""
        name = self._choices.get(repr(product))
        if name is None and self._alone:
            return self._fastest(product, allowed)
        first = None
        for plan in allowed:
            first = first or plan
            if name is None or plan.name == name:
                return plan
        return first

    def _fastest(self, product: Product, allowed: Iterator[CudnnPlan]) -> CudnnPlan | None:
        timed = [(self._seconds(plan), plan) for plan in islice(allowed, TRIED)]
        if not timed:
            return None
        _, plan = min(timed, key=itemgetter(0))
        self._choices.keep(repr(product), plan.name)
        return plan

    def _seconds(self, plan: CudnnPlan) -> float:
        """Of one run, on memory of zeros."""
        xp, kind = self._xp, plan.product.kind
        size = 4 if kind == FLOAT32 else 2
        arrays = {n: xp.zeros(size * count, xp.uint8) for n, count in plan.product.elements.items()}
        workspace = xp.empty(max(plan.workspace, 1), xp.uint8)
        addresses = {number: array.data.ptr for number, array in arrays.items()}

        def run() -> None:
            plan.run(addresses, workspace.data.ptr if plan.workspace else 0)

        run()
        self._stream.synchronize()
        began = time.perf_counter()
        for _ in range(REPEATS):
            run()
        self._stream.synchronize()
        return (time.perf_counter() - began) / REPEATS
