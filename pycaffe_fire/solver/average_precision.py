"""Average precision of the detections of a class, in the versions that SSD knows.

11point      the mean of the best precision at recalls of 0, 0.1, ... 1 and beyond (VOC 2007)
MaxIntegral  the area under the best precision at each recall and beyond (VOC 2012, ILSVRC)
Integral     the area under the precision itself
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SolverError
from ..registry import did_you_mean

VERSIONS = ("11point", "MaxIntegral", "Integral")
_SAME = 1e-6  # recalls that differ by less are one

Floats = NDArray[np.float32]


def check_version(version: str) -> str:
    """The version itself, or an error that lists those there are."""
    if version not in VERSIONS:
        hint = did_you_mean(version, list(VERSIONS))
        raise SolverError(f'unknown ap_version "{version}"{hint}; known: {", ".join(VERSIONS)}')
    return version


def average_precision(scores: Any, right: Any, objects: int, version: str) -> float:
    """Of detections with these scores, of which some are `right` (1 or 0), of so many objects."""
    check_version(version)
    if not len(scores) or not objects:
        return 0.0
    order = np.argsort(-np.asarray(scores, np.float32), kind="stable")
    hits = np.cumsum(np.asarray(right)[order])
    precision: Floats = (hits / np.arange(1, len(hits) + 1)).astype(np.float32)
    recall: Floats = hits.astype(np.float32) / np.float32(objects)
    if version == "11point":
        reached = [precision[recall >= point / 10] for point in range(11)]
        return float(sum(part.max() if len(part) else 0.0 for part in reached) / 11)
    if version == "MaxIntegral":
        # As SSD sums it: a step belongs to the better of the precisions at its two ends.
        precision = np.maximum.accumulate(precision[::-1])[::-1]
        steps = np.diff(recall)
        return float(recall[0] * precision[0] + (precision[:-1] * steps)[steps > _SAME].sum())
    steps = np.diff(recall, prepend=np.float32(0))
    return float((precision * steps)[steps > _SAME].sum())
