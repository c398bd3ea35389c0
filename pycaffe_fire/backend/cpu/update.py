"""Update rules over whole flat buffers, and sums and checks of them: native/update.c."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..plans import Segment, SegmentDots, UpdateStep, pieces
from ..tensor import Array
from .library import Doubles, Floats, Int32s, Ints, Kernel

BLOCK = 16384  # elements of a task
INFINITY_BITS = 0x7F800000  # of a float32; those of NaN are larger


class Rule(Kernel):
    """The fields that all rules share. A rule adds its history, `scale` and its own numbers."""

    w: Floats
    gradient: Floats
    starts: Ints
    stops: Ints
    rates: Floats
    l2: Floats
    l1: Floats
    blocks: int

    @classmethod
    def own_fields(cls) -> tuple[list[str], list[str]]:
        """Return the names of the histories and of the rule's numbers, in the rule's order."""
        own = cls.fields[len(Rule.fields) :]
        scale = own.index("scale")
        return list(own[:scale]), list(own[scale + 1 :])

    def check(self) -> None:
        blocks = ("starts", "stops", "rates", "l2", "l1")
        self.need(**dict.fromkeys(blocks, self.blocks))
        end = int(self.stops[: self.blocks].max(initial=0))
        self.need(**dict.fromkeys(("w", "gradient", *self.own_fields()[0]), end))


class Sgd(Rule):
    name = "sgd"
    h: Floats
    scale: float
    momentum: float


class Nesterov(Rule):
    name = "nesterov"
    h: Floats
    scale: float
    momentum: float


class Adagrad(Rule):
    name = "adagrad"
    h: Floats
    scale: float
    delta: float


class Rmsprop(Rule):
    name = "rmsprop"
    h: Floats
    scale: float
    delta: float
    decay: float


class Adadelta(Rule):
    name = "adadelta"
    h: Floats
    u: Floats
    scale: float
    delta: float
    momentum: float


class Adam(Rule):
    name = "adam"
    m: Floats
    v: Floats
    scale: float
    beta1: float
    beta2: float
    correction: float
    delta: float


class Adamw(Rule):
    name = "adamw"
    m: Floats
    v: Floats
    scale: float
    beta1: float
    beta2: float
    correction: float
    delta: float


RULES = {rule.name: rule for rule in (Sgd, Nesterov, Adagrad, Rmsprop, Adadelta, Adam, Adamw)}


class BlockDots(Kernel):
    name = "block_dots"
    x: Floats
    y: Floats
    starts: Ints
    stops: Ints
    sums: Doubles
    blocks: int

    def check(self) -> None:
        self.need(starts=self.blocks, stops=self.blocks, sums=self.blocks)
        end = int(self.stops[: self.blocks].max(initial=0))
        self.need(x=end, y=end)


class AddInto(Kernel):
    name = "add_into"
    total: Floats
    part: Floats
    count: int

    def check(self) -> None:
        self.need(total=self.count, part=self.count)


class LargestBits(Kernel):
    name = "largest_bits"
    values: Floats
    largest: Int32s
    count: int
    parts: int

    def check(self) -> None:
        self.need(values=self.count, largest=self.parts)


class Update(UpdateStep):
    """A rule over blocks of at most BLOCK elements, each inside one parameter."""

    def __init__(self, threads: int, rule: str, segments: Sequence[Segment]) -> None:
        starts, stops, self._owners = blocks_of(segments)
        mults = np.array([(s.lr_mult, s.decay_mult) for s in segments], np.float64).reshape(-1, 2)
        self._lr_mults, self._decay_mults = np.ascontiguousarray(mults[self._owners].T)
        self._rates, self._decays, self._zeros = np.zeros((3, starts.size), np.float32)
        kind = RULES[rule]
        self._history, self._numbers = kind.own_fields()
        self._kernel = kind(
            threads=threads, starts=starts, stops=stops, rates=self._rates, blocks=starts.size
        )

    def __call__(
        self, weights: Array, gradients: Array, history: Sequence[Array], rate: float,
        decay: float, l1: bool, scale: float, numbers: Sequence[float], rates: Array | None = None,
    ) -> None:  # fmt: skip
        kernel = self._kernel
        self._rates[...] = rate * self._lr_mults if rates is None else rates[self._owners]
        self._decays[...] = decay * self._decay_mults
        kernel.l1, kernel.l2 = (
            (self._decays, self._zeros) if l1 else (self._zeros, self._decays)
        )  # fmt: skip
        kernel.w, kernel.gradient = weights, gradients
        for name, array in zip(self._history, history, strict=True):
            setattr(kernel, name, array)
        for name, value in zip(("scale", *self._numbers), (scale, *numbers), strict=True):
            setattr(kernel, name, value)
        kernel.run()


class Dots(SegmentDots):
    """Every block on its own, then the blocks of a parameter from left to right."""

    def __init__(self, threads: int, segments: Sequence[Segment]) -> None:
        starts, stops, owners = blocks_of(segments)
        self._firsts = np.searchsorted(owners, np.arange(len(segments) + 1))
        self._sums = np.empty(starts.size, np.float64)
        self._kernel = BlockDots(
            threads=threads, starts=starts, stops=stops, sums=self._sums, blocks=starts.size
        )

    def __call__(self, a: Array, b: Array) -> Array:
        self._kernel.x, self._kernel.y = a, b
        self._kernel.run()
        each = np.split(self._sums, self._firsts[1:-1])
        return np.array([sum_in_order(sums) for sums in each], np.float64)


def blocks_of(segments: Sequence[Segment]) -> tuple[Array, Array, Array]:
    """Return the starts, stops and segments of the blocks of a flat buffer."""
    starts, stops, owners = np.ascontiguousarray(pieces(segments, BLOCK).T)
    return starts, stops, owners


def sum_in_order(sums: Array) -> float:
    """Sum from left to right, whatever the number of summands."""
    return float(np.cumsum(sums)[-1]) if sums.size else 0.0


def sum_of_squares(values: Array, threads: int) -> float:
    """Return the sum of squares of a flat buffer, the same for any number of threads."""
    starts = np.arange(0, values.size, BLOCK)
    stops = np.minimum(starts + BLOCK, values.size)
    sums = np.empty(starts.size, np.float64)
    BlockDots(
        threads=threads, x=values, y=values, starts=starts, stops=stops, sums=sums,
        blocks=starts.size,
    ).run()  # fmt: skip
    return sum_in_order(sums)


def add_into(total: Array, part: Array, threads: int = 1) -> None:
    """total += part, for flat buffers."""
    AddInto(threads=threads, total=total, part=part, count=total.size).run()


def all_finite(values: Array, threads: int) -> bool:
    """Return True if no element is infinite or NaN; one pass, at the speed of memory."""
    largest = np.empty(threads, np.int32)
    LargestBits(
        threads=threads, values=values, largest=largest, count=values.size, parts=threads
    ).run()
    return bool(largest.max() < INFINITY_BITS)
