"""Which method of an op is faster here: all are tried while planning for inference.

An estimate knows neither a machine's caches nor how well the library uses its vectors. The methods
round differently, so what was found is kept in a file, by processor, library, threads and shapes:
later processes try nothing and compute the same bits. Where others use the processors meanwhile,
estimates decide for this process, and nothing is kept. Training has no part in this: estimates
decide there, on every machine alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from math import prod

import numpy as np

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from ..blob import Blob
from ..host import processor
from ..plan_choices import PlanChoices, choices_file
from ..plans import WeightedPlan
from .convolution import Convolution
from .inner_product import InnerProduct
from .packed_inner_product import PackedInnerProduct
from .packed_pointwise import PackedPointwise
from .packed_winograd import GroupedWinograd, PackedWinograd
from .winograd import Winograd

WORTH_A_TRIAL = 5_000_000  # multiplications: a tenth of a millisecond
WORTH_READING = 500_000  # weights: the same
REPEATS, ENOUGH = 16, 0.2  # rounds of runs, and seconds after which no other one begins
BETTER = 0.95  # of the first one's time: what is about as fast should not depend on chance
OTHERS = 8_000_000  # numbers of other layers, say, which pass through the caches before each run
MOST_TRIED = 8_000_000  # weights of an inner product: no cache holds them, and more need not be had


def fastest_convolution(direct: Convolution) -> WeightedPlan:
    """A plan for weights that rarely change."""
    methods = _methods(direct)
    if len(methods) == 1:
        return direct
    if not _is_long(direct):
        return _estimated(direct)
    known = _choices(direct.backend.describe())
    shapes = (list(blob.shape) for blob in (direct.x, direct.w, direct.y))
    op = f"convolution {' '.join(map(str, shapes))} pad {list(direct.window.pad)}"
    name = known.get(op)
    if name not in methods:
        name = _fastest(direct)
        if name is None:
            return _estimated(direct)
        known.keep(op, name)
    return methods[name](direct) or direct


def _is_long(direct: Convolution) -> bool:
    """Is it worth a trial?"""
    weights, pixels = prod(direct.w.shape), direct.y.shape[0] * prod(direct.y.shape[2:])
    return weights * pixels >= WORTH_A_TRIAL or weights >= WORTH_READING


def _estimated(direct: Convolution) -> WeightedPlan:
    if PackedPointwise.can(direct) and _is_long(direct):
        return PackedPointwise(direct)
    return PackedWinograd(direct) if PackedWinograd.suits(direct) else direct


def _grouped(direct: Convolution) -> WeightedPlan | None:
    plan = GroupedWinograd(direct)
    return plan if plan.has_kernel else None


Methods = dict[str, Callable[[Convolution], WeightedPlan | None]]
DIRECT: Methods = {"direct": lambda direct: direct}
WINDOWS: Methods = {
    **DIRECT, "Winograd": PackedWinograd, "Winograd, products as groups": _grouped,
}  # fmt: skip
POINTS: Methods = {"product": PackedPointwise, **DIRECT}  # the first if they are about as fast


def _methods(direct: Convolution) -> Methods:
    if Winograd.can(direct):
        return WINDOWS
    return POINTS if PackedPointwise.can(direct) else DIRECT


@cache
def _choices(backend: str) -> PlanChoices:
    return PlanChoices(choices_file("onednn"), f"{processor()}, {backend}")


def _stand_in(direct: Convolution) -> Convolution:
    """The same on blobs of zeros that lie like its own."""
    x, w, y = (Blob(blob.backend, blob.shape) for blob in (direct.x, direct.w, direct.y))
    b = Blob(direct.backend, direct.b.shape) if direct.b is not None else None
    for blob, like in ((x, direct.x), (y, direct.y)):
        blob.lay_out(like.value.layout)
        blob.value.pinned = True
    return Convolution(
        direct.backend, x, w, b, y, direct.window, direct.groups, direct.relu, False
    )  # fmt: skip


def _fastest(direct: Convolution) -> str | None:
    stand_in = _stand_in(direct)
    made = {name: make(stand_in) for name, make in _methods(direct).items()}
    return _least_time({name: plan for name, plan in made.items() if plan is not None})


def _least_time(plans: dict[str, WeightedPlan]) -> str | None:
    """The name of the plan that runs fastest; of the first, if that is as good as any; None if one
    never ran undisturbed."""
    for plan in plans.values():
        plan.pack()
        plan.forward()
    others, least = np.ones(OTHERS, np.float32), dict.fromkeys(plans, float("inf"))
    began = time.perf_counter()
    for number in range(REPEATS):
        if number and time.perf_counter() - began > ENOUGH:
            break
        for name, plan in plans.items():
            others.sum()
            least[name] = min(least[name], _seconds(plan))
    if max(least.values()) == float("inf"):
        return None
    first, best = next(iter(plans)), min(least, key=least.__getitem__)
    return best if least[best] < BETTER * least[first] else first


def _seconds(plan: WeightedPlan) -> float:
    """Of one run; infinite if one of our threads had to wait for a processor."""
    before, began = _interruptions(), time.perf_counter()
    plan.forward()
    seconds = time.perf_counter() - began
    return seconds if _interruptions() == before else float("inf")


def _interruptions() -> int:
    """How often others have taken a processor from this process, where the system counts that."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw if resource is not None else 0


PLAIN, IN_BLOCKS = "plain", "weights in blocks"


def faster_if_packed(plain: InnerProduct) -> PackedInnerProduct | None:
    """A plan for weights that rarely change, if there is one that beats the plain product."""
    if plain.rows == 1 or plain.rows * plain.inputs * plain.outputs < WORTH_A_TRIAL:
        return None  # a single row takes as long as it takes to read the weights
    packed = PackedInnerProduct.of(plain)
    if packed is None:
        return None
    known = _choices(plain.backend.describe())
    op = f"inner product {[plain.rows, plain.inputs]} {[plain.outputs, plain.inputs]}"
    name = known.get(op)
    if name not in (PLAIN, IN_BLOCKS):
        name = _faster_product(plain)
        if name is not None:
            known.keep(op, name)
    return packed if name == IN_BLOCKS else None


def _faster_product(plain: InnerProduct) -> str | None:
    """Tried on blobs of zeros, with fewer outputs where there are very many weights."""
    outputs = min(plain.outputs, max(MOST_TRIED // plain.inputs, 1))
    plans: dict[str, InnerProduct] = {}
    for name in (PLAIN, IN_BLOCKS):
        shapes = ((plain.rows, plain.inputs), (outputs, plain.inputs), (outputs,),
                  (plain.rows, outputs))  # fmt: skip
        x, w, b, y = (Blob(plain.backend, shape) for shape in shapes)
        plans[name] = InnerProduct(plain.backend, x, w, b, y, 1, False, plain.relu)
    packed = PackedInnerProduct.of(plans[IN_BLOCKS])
    if packed is None:
        return PLAIN
    return _least_time({PLAIN: plans[PLAIN], IN_BLOCKS: packed})
