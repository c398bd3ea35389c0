"""SSD's batch_sampler: random windows of an image that keep something of its objects in view."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, Protocol

import numpy as np

from ..errors import DataError
from ..schema.proto import BatchSampler, SampleConstraint, Sampler
from .objects import BOX, Floats, Scene, Window, coverages, overlaps

_KINDS = ("jaccard_overlap", "sample_coverage", "object_coverage")


class Chooser(Protocol):
    def below(self, limit: int) -> int:
        """A random number from 0 to limit - 1."""

    def between(self, low: float, high: float) -> float:
        """A random number between the two."""


def check_samplers(samplers: Sequence[BatchSampler]) -> None:
    for number, batch_sampler in enumerate(samplers):
        s = batch_sampler.sampler
        if not 0 < s.min_scale <= s.max_scale <= 1:
            raise DataError(
                f"batch_sampler {number}: needs 0 < min_scale <= max_scale <= 1, got "
                f"{s.min_scale:g} and {s.max_scale:g}"
            )
        if not 0 < s.min_aspect_ratio <= s.max_aspect_ratio:
            raise DataError(
                f"batch_sampler {number}: needs 0 < min_aspect_ratio <= max_aspect_ratio, got "
                f"{s.min_aspect_ratio:g} and {s.max_aspect_ratio:g}"
            )


def cut(scene: Scene, window: Window) -> Any:
    """The pixels of the image in a window that lies within it, at least one."""
    _, height, width = scene.image.shape
    left, top = int(np.float32(window[0]) * width), int(np.float32(window[1]) * height)
    wide = max(1, int(np.float32(window[2] - window[0]) * width))
    high = max(1, int(np.float32(window[3] - window[1]) * height))
    return scene.image[:, top : top + high, left : left + wide]


def sample_window(scene: Scene, samplers: Sequence[BatchSampler], dice: Chooser) -> Window | None:
    """One of all windows that the samplers find in the scene; None if they find none.

    Every sampler tries max_trials windows, until max_sample of them meet its constraint.
    """
    boxes = scene.objects[:, BOX]
    found: list[Window] = []
    for sampler in samplers:
        if sampler.use_original_image:
            found += _windows(boxes, sampler, dice)
    return found[dice.below(len(found))] if found else None


def _windows(boxes: Floats, sampler: BatchSampler, dice: Chooser) -> list[Window]:
    found: list[Window] = []
    for _ in range(sampler.max_trials):
        if sampler.HasField("max_sample") and len(found) >= sampler.max_sample:
            break
        window = _window(sampler.sampler, dice)
        if _fits(boxes, np.array(window, np.float32), sampler.sample_constraint):
            found.append(window)
    return found


def _window(sampler: Sampler, dice: Chooser) -> Window:
    scale = dice.between(sampler.min_scale, sampler.max_scale)
    ratio = dice.between(sampler.min_aspect_ratio, sampler.max_aspect_ratio)
    ratio = min(max(ratio, scale**2), 1 / scale**2)  # neither side is longer than the image
    width, height = min(1.0, scale * sqrt(ratio)), min(1.0, scale / sqrt(ratio))
    left, top = dice.between(0.0, 1.0 - width), dice.between(0.0, 1.0 - height)
    return left, top, left + width, top + height


def _fits(boxes: Floats, window: Floats, limits: SampleConstraint) -> bool:
    """Does some object meet all constraints? Without any, every window fits."""
    given = [kind for kind in _KINDS if _limited(limits, kind)]
    if not given:
        return True
    of_object, of_window = coverages(boxes, window)
    values: dict[str, Any] = {
        "jaccard_overlap": overlaps(boxes, window),
        "sample_coverage": of_window,
        "object_coverage": of_object,
    }
    return bool(np.all([_within(values[kind], limits, kind) for kind in given], axis=0).any())


def _limited(limits: SampleConstraint, kind: str) -> bool:
    return limits.HasField(f"min_{kind}") or limits.HasField(f"max_{kind}")


def _within(values: Floats, limits: SampleConstraint, kind: str) -> Any:
    fine = np.ones(len(values), bool)
    for end, beyond in (("min", np.less), ("max", np.greater)):
        if limits.HasField(f"{end}_{kind}"):
            fine &= ~beyond(values, np.float32(getattr(limits, f"{end}_{kind}")))
    return fine
