"""Compares the variants of a case; rounding is bounded by runs in float64."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pycaffe_fire.errors import FireError

from .case import Case
from .execute import BLAS, DOUBLE, FUSED, NUMPY, PLAIN, Record, Run, Variant

Array = np.ndarray[Any, Any]
CLOSE = 3e-5  # of the largest value of an array: nothing to look into
NOISE = 2e-6  # of the largest value: what rounding may add to a blob in float32
# Of the largest value anywhere: what differences of large numbers leave over, also where a norm
# divides it by a small deviation.
CANCELLED, CANCELLED_IN_NORMS = 1e-6, 5e-5
NORMS = {"BatchNorm", "BN", "MVN", "GroupNorm", "LayerNorm", "Normalize"}
NOISY_RUNS = 24
MARGIN = 8.0  # how much larger than noise a difference must be
HUGE = 1e30  # beyond it float32 may overflow where float64 does not


@dataclass(frozen=True)
class Outcome:
    """What a variant did: records, or how it failed."""

    records: list[Record]
    refusal: str = ""  # the sentence of a FireError
    crash: str = ""  # a traceback


@dataclass(frozen=True)
class Verdict:
    """What became of a case: refused by all, agreeing, or a finding."""

    finding: str = ""
    refused: bool = False


def execute(case: Case, variant: Variant, noise: float = 0.0, noise_seed: int = 0) -> Outcome:
    run = None
    try:
        with np.errstate(all="ignore"):
            run = Run(case, variant, noise, noise_seed)
            return Outcome(run.run())
    except FireError as error:
        return Outcome(run.records if run else [], refusal=f"{type(error).__name__}: {error}")
    except Exception:
        return Outcome(run.records if run else [], crash=traceback.format_exc(limit=-4))


def variants_of(seed: int) -> tuple[Variant, ...]:
    """The ways in which a random net runs beside NumPy's: always fused, the others in turns."""
    others = {0: (PLAIN, BLAS), 2: (PLAIN,)}
    return (FUSED, *others.get(seed % 4, ()))


def judge(case: Case, variants: tuple[Variant, ...] = (FUSED, PLAIN, BLAS)) -> Verdict:
    """Run a case in several ways and compare with the NumPy backend."""
    reference = execute(case, NUMPY)
    outcomes = [(variant, execute(case, variant)) for variant in variants]
    for variant, outcome in [(NUMPY, reference), *outcomes]:
        if outcome.crash:
            return Verdict(f"TRACEBACK on {variant.name}: {outcome.crash}")
    for variant, outcome in outcomes:
        if bool(outcome.refusal) != bool(reference.refusal):
            return Verdict(
                f"REFUSED on {variant.name}: {outcome.refusal or 'no'}; "
                f"on numpy: {reference.refusal or 'no'}"
            )
    noise = _Noise(case)
    for variant, outcome in outcomes:
        for difference in differences(outcome.records, reference.records, noise):
            return Verdict(f"DIFFERENT on {variant.name}: {difference}")
    return Verdict(refused=bool(reference.refusal))


def differences(found: list[Record], wanted: list[Record], noise: _Noise) -> Iterator[str]:
    """Records that differ by more than rounding explains."""
    for number, ((what, a), (label, b)) in enumerate(zip(found, wanted, strict=False)):
        if what != label:
            yield f"recorded {what} instead of {label}"
            return
        if a.shape != b.shape:
            yield f"{what}: shape {a.shape} instead of {b.shape}"
        elif not is_close(a, b) and (told := noise.told(number, a, b)):
            yield f"{what}: {told}"
    if len(found) != len(wanted):
        yield f"{len(found)} records instead of {len(wanted)}"


def is_close(a: Array, b: Array) -> bool:
    if a.size == 0:
        return True
    scale = np.abs(b).max()
    with np.errstate(all="ignore"):
        return bool(np.isfinite(scale) and np.abs(a - b).max() <= CLOSE * max(scale, 1e-3))


class _Noise:
    """Float64 runs of a case: an exact one, and others that are disturbed everywhere."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._exact: list[Record] | None = None
        self._noisy: list[list[Record]] = []

    def told(self, number: int, a: Array, b: Array) -> str:
        """How a record differs from the exact one, if noise does not explain it; else ""."""
        if self._exact is None:
            self._exact = execute(self._case, DOUBLE).records
        if number >= len(self._exact) or self._exact[number][1].shape != a.shape:
            return f"no float64 run to compare with; {_gap(a, b)}"
        exact = self._exact[number][1]
        for runs in (4, NOISY_RUNS):
            while len(self._noisy) < runs:
                seed = len(self._noisy)
                self._noisy.append(execute(self._case, DOUBLE, NOISE, seed).records)
            if not self._differs(number, a, b, exact):
                return ""
        return f"{_gap(a, exact)}, noise {self._bound(number, exact):.2g}"

    def _differs(self, number: int, a: Array, b: Array, exact: Array) -> bool:
        """True if `a` is farther from the exact values than noise, or than `b` in float32."""
        known = np.isfinite(exact) & (np.abs(exact) < HUGE)
        for records in self._noisy:
            known &= np.isfinite(records[number][1])
        if (~np.isfinite(a) & known).any():
            return True
        if not known.any():
            return False
        gap = np.abs(np.where(known, a - exact, 0)).max()
        rounded = np.abs(np.where(known, b - exact, 0)).max()
        return bool(gap > MARGIN * max(self._bound(number, exact), rounded))

    def _bound(self, number: int, exact: Array) -> float:
        """The largest change that noise makes in a record, and what storing it rounds off."""
        known = np.isfinite(exact) & (np.abs(exact) < HUGE)
        changes = [0.0]
        for records in self._noisy:
            change = np.abs(np.where(known, records[number][1] - exact, 0))
            changes.append(float(np.nan_to_num(change, nan=0.0, posinf=HUGE).max(initial=0)))
        size = float(np.abs(np.where(known, exact, 0)).max(initial=0))
        has_norms = any(layer.type in NORMS for layer in self._case.layers)
        floor = CANCELLED_IN_NORMS if has_norms else CANCELLED
        return max(changes) + NOISE * size + floor * max(self._largest(number), 1.0)

    def _largest(self, number: int) -> float:
        """The largest value among all records of this kind (values or gradients)."""
        assert self._exact is not None
        is_gradient = " diff " in self._exact[number][0]
        sizes = [
            float(np.abs(values).max(initial=0))
            for what, values in self._exact
            if (" diff " in what) == is_gradient and np.isfinite(values).all()
        ]
        return min(max(sizes, default=0.0), HUGE)


def _gap(a: Array, b: Array) -> str:
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        many = float((apart > CLOSE * np.abs(b).max(initial=0)).mean()) if a.size else 0.0
        broken = int((~np.isfinite(a)).sum())
        text = (
            f"max diff {np.nanmax(apart):.3g} of max {np.abs(b).max():.3g}, {many:.1%} of {a.size}"
        )
    return text + (f", {broken} not finite" if broken else "")
