"""Arithmetic of boxes (xmin, ymin, xmax, ymax): overlap, coding against priors, matching, NMS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend import compiled
from ..backend.blob import Blob
from .base import Layer

CORNER, CENTER_SIZE, CORNER_SIZE = 1, 2, 3  # PriorBoxParameter.CodeType
MIN_OVERLAP = 1e-6  # less than this is none
UNMATCHED, IGNORED = -1, -2


def read_priors(layer: Layer, blob: Blob, code: int) -> tuple[Any, Any]:
    """(boxes, variances), each priors x 4, of PriorBox's top; refuses what `code` divides by."""
    boxes, variances = blob.data.reshape(2, -1, 4)
    whole = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)  # False for NaN
    if code != CORNER and not whole.all():
        bad = int(layer.xp.nonzero(~whole)[0][0])
        layer.fail(
            f'prior {bad} in "{blob.name}" is empty or not a number: {boxes[bad].tolist()}; its '
            f"code_type divides by the size of priors"
        )
    return boxes, variances


def check_predictions(layer: Layer, bottom: Sequence[Blob], locations: int, classes: int) -> int:
    """Locations, confidences and priors must fit each other; returns the number of priors."""
    loc, conf, prior = bottom[:3]
    shape = prior.shape
    if len(shape) < 3 or shape[:2] != (1, 2) or prior.count % 8 or not prior.count:
        layer.fail(f'priors "{prior.name}" must be 1 x 2 x (4 per prior), got {list(shape)}')
    priors = prior.count // 8
    need_per_prior(layer, (loc, conf), (4 * locations, classes), priors, loc.num)
    return priors


def need_per_prior(
    layer: Layer, blobs: Sequence[Blob], values: Sequence[int], priors: int, num: int
) -> None:
    """Each blob must hold so many values for every prior of every image."""
    for blob, each in zip(blobs, values, strict=False):
        if blob.num != num or blob.count != num * priors * each:
            layer.fail(
                f'"{blob.name}" must hold {each} values for each of {priors} priors: '
                f"{num} x {priors * each}, got {list(blob.shape)}"
            )


def areas(xp: Any, boxes: Any) -> Any:
    """Width times height; 0 for boxes turned inside out."""
    sides = xp.maximum(boxes[..., 2:] - boxes[..., :2], 0)
    return sides[..., 0] * sides[..., 1]


def overlaps(xp: Any, a: Any, b: Any) -> Any:
    """Intersection over union of every box of `a` with every one of `b`."""
    low = xp.maximum(a[:, None, :2], b[None, :, :2])
    high = xp.minimum(a[:, None, 2:], b[None, :, 2:])
    sides = xp.maximum(high - low, 0)
    shared = sides[..., 0] * sides[..., 1]
    union = areas(xp, a)[:, None] + areas(xp, b) - shared
    return xp.where(shared > 0, shared / xp.where(shared > 0, union, 1), 0)


def _center_size(xp: Any, boxes: Any) -> tuple[Any, Any]:
    return (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]


def encode(xp: Any, code: int, priors: Any, variances: Any, boxes: Any) -> Any:
    """What a net should predict at these priors for these boxes; variances divide (or are 1)."""
    if code == CORNER:
        raw = boxes - priors
    elif code == CORNER_SIZE:
        raw = (boxes - priors) / xp.tile(priors[..., 2:] - priors[..., :2], 2)
    else:
        center, size = _center_size(xp, priors)
        box_center, box_size = _center_size(xp, boxes)
        raw = xp.concatenate([(box_center - center) / size, xp.log(box_size / size)], axis=-1)
    return raw / variances


def decode(xp: Any, code: int, priors: Any, variances: Any, codes: Any) -> Any:
    """The boxes that a net's predictions at these priors mean; the inverse of `encode`."""
    codes = codes * variances
    if code == CORNER:
        return priors + codes
    if code == CORNER_SIZE:
        return priors + codes * xp.tile(priors[..., 2:] - priors[..., :2], 2)
    center, size = _center_size(xp, priors)
    center, half = center + codes[..., :2] * size, xp.exp(codes[..., 2:]) * size / 2
    return xp.concatenate([center - half, center + half], axis=-1)


def match(xp: Any, overlap: Any, threshold: float | None, ignored: Any) -> tuple[Any, Any]:
    """(matched box or UNMATCHED or IGNORED, overlap) of every prior.

    `overlap` is priors x boxes. First every box takes the prior it overlaps most, the best pair
    first; then, if there is a threshold, every free prior that reaches it takes its best box.
    """
    overlap = xp.where((overlap > MIN_OVERLAP) & ~ignored[:, None], overlap, 0)
    index = xp.where(ignored, IGNORED, UNMATCHED)
    best = overlap.max(axis=1)
    left = overlap.copy()
    for _ in range(overlap.shape[1]):
        prior, box = divmod(int(left.argmax()), overlap.shape[1])
        if left[prior, box] <= 0:
            break
        index[prior], best[prior] = box, overlap[prior, box]
        left[prior, :] = 0
        left[:, box] = 0
    if threshold is not None:
        reached = (index == UNMATCHED) & (best >= threshold) & (best > 0)
        index = xp.where(reached, overlap.argmax(axis=1), index)
    return index, best


@compiled.jit
def _suppress(boxes: Any, threshold: Any, eta: Any, kept: Any) -> int:
    """Write the indices of kept boxes; returns how many there are."""
    count = 0
    for i in range(len(boxes)):
        keep = True
        a = boxes[i]
        for k in range(count):
            b = boxes[kept[k]]
            width = min(a[2], b[2]) - max(a[0], b[0])
            height = min(a[3], b[3]) - max(a[1], b[1])
            if width > 0 and height > 0:
                shared = width * height
                size = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
                if shared / (size - shared) > threshold:
                    keep = False
                    break
        if keep:
            kept[count] = i
            count += 1
            if eta < 1 and threshold > 0.5:
                threshold *= eta
    return count


def _suppress_rows(xp: Any, boxes: Any, threshold: Any, eta: Any) -> Any:
    """What `_suppress` does, a kept box against all that are left, on any array library."""
    kept = []
    left = xp.arange(len(boxes))
    worst = xp.zeros(len(boxes), boxes.dtype)
    while left.size:
        kept.append(int(left[0]))
        if eta < 1 and threshold > 0.5:
            threshold *= eta
        rest = left[1:]
        worst = xp.maximum(worst[1:], overlaps(xp, boxes[left[:1]], boxes[rest])[0])
        fine = worst <= threshold
        left, worst = rest[fine], worst[fine]
    return xp.asarray(kept, dtype=left.dtype)


def suppress(xp: Any, boxes: Any, threshold: float, eta: float = 1.0) -> Any:
    """Indices of the boxes, best first, that overlap no kept better one by more than `threshold`.

    With eta < 1 the threshold shrinks by that factor after every kept box, while above 0.5.
    """
    limit, factor = boxes.dtype.type(threshold), boxes.dtype.type(eta)
    if xp is not np or not compiled.available():
        return _suppress_rows(xp, boxes, limit, factor)
    kept = np.empty(len(boxes), np.int64)
    return kept[: _suppress(np.ascontiguousarray(boxes), limit, factor, kept)]
