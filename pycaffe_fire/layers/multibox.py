"""Which priors SSD's loss counts: ground truth, matching, and mining of hard examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend.blob import Blob
from .base import Layer
from .boxes import CENTER_SIZE, UNMATCHED, areas, decode, match, overlaps, suppress
from .indices import truncated

FIELDS = 8  # image, label, instance, box, difficult
NONE, MAX_NEGATIVE, HARD_EXAMPLE = 0, 1, 2  # MultiBoxLossParameter.MiningType
BIPARTITE = 0  # MultiBoxLossParameter.MatchType
SMALL = 1e-5  # boxes of a smaller area do not take part in mining with nms


@dataclass
class Truth:
    """The objects of one image."""

    boxes: Any
    labels: Any


def object_labels(param: Any) -> range:
    """The classes before or after the background, whichever are more."""
    after = range(param.background_label_id + 1, param.num_classes)
    before = range(min(param.background_label_id, param.num_classes))
    return max(after, before, key=len)


def read_truth(layer: Layer, blob: Blob, num: int, param: Any) -> list[Truth]:
    """The objects of every image of a batch, from rows of 8 numbers."""
    xp, rows = layer.xp, blob.data.reshape(-1, FIELDS)
    rows = rows[truncated(xp, rows[:, 0]) != -1]
    images, labels = truncated(xp, rows[:, 0]), truncated(xp, rows[:, 1])
    wrong = (images < 0) | (images >= num)
    wrong |= labels == param.background_label_id
    if not param.map_object_to_agnostic:
        wrong |= (labels < 0) | (labels >= param.num_classes)
    if param.code_type == CENTER_SIZE:
        wrong |= (rows[:, 5:7] <= rows[:, 3:5]).any(axis=1)
    if wrong.any():
        row = [float(v) for v in rows[int(xp.nonzero(wrong)[0][0])]]
        layer.fail(
            f'object {row} in "{blob.name}" makes no sense: expected are an image of 0 to '
            f"{num - 1}, a class of 0 to {param.num_classes - 1} that is not the background "
            f"({param.background_label_id}), an instance, a box xmin < xmax, ymin < ymax, and a "
            f"difficult flag"
        )
    if not param.use_difficult_gt:
        kept = rows[:, 7] == 0
        rows, images, labels = rows[kept], images[kept], labels[kept]
    return [Truth(rows[images == i, 3:7], labels[images == i]) for i in range(num)]


class Matcher:
    """Finds, for one batch, a box for each prior and the negatives to count."""

    def __init__(self, xp: Any, param: Any, priors: Any, variances: Any) -> None:
        self.xp, self.param, self.priors, self.prior_variances = xp, param, priors, variances
        # What codes are divided by; 1 if the loss, not the code, is to be scaled.
        self.variances = xp.ones_like(variances) if param.encode_variance_in_target else variances

    def decoded(self, loc: Any) -> Any:
        return decode(self.xp, self.param.code_type, self.priors, self.variances, loc)

    def matches(self, truth: Truth, loc: Any) -> tuple[Any, Any]:
        """(box, overlap), each location classes x priors, for one image; see boxes.match."""
        xp, param, classes = self.xp, self.param, loc.shape[1]
        index = xp.full((classes, len(self.priors)), UNMATCHED)
        best = xp.zeros(index.shape, loc.dtype)
        if not len(truth.labels):
            return index, best
        if param.use_prior_for_matching:
            shared, best[...] = self._match(self.priors, truth.boxes)
            if param.share_location:
                return shared[None], best
            labels = truth.labels[xp.maximum(shared, 0)]
            wanted = xp.arange(classes)[:, None]
            own = (shared >= 0) & (labels == wanted) & (wanted != param.background_label_id)
            return xp.where(own, shared, index), best
        for c in range(classes):
            if param.share_location:
                index[c], best[c] = self._match(self.decoded(loc[:, c]), truth.boxes)
            elif c != param.background_label_id and (truth.labels == c).any():
                among = xp.nonzero(truth.labels == c)[0]
                found, best[c] = self._match(self.decoded(loc[:, c]), truth.boxes[among])
                index[c] = xp.where(found >= 0, among[xp.maximum(found, 0)], found)
        return index, best

    def _match(self, candidates: Any, boxes: Any) -> tuple[Any, Any]:
        param, xp = self.param, self.xp
        ignored = xp.zeros(len(candidates), bool)
        if param.ignore_cross_boundary_bbox:
            ignored = ((candidates < 0) | (candidates > 1)).any(axis=1)
        threshold = None if param.match_type == BIPARTITE else np.float32(param.overlap_threshold)
        return match(xp, overlaps(xp, candidates, boxes), threshold, ignored)

    def mine(self, index: Any, best: Any, losses: Any, loc: Any) -> tuple[Any, Any]:
        """(index without the easy positives, negatives) of one image, all per prior."""
        xp, param = self.xp, self.param
        hard = param.mining_type == HARD_EXAMPLE
        eligible = (
            xp.ones(index.shape, bool)
            if hard
            else (index == UNMATCHED) & (best < np.float32(param.neg_overlap))
        )
        among = xp.nonzero(eligible)[0]
        wanted = param.sample_size if hard else int(int((index >= 0).sum()) * param.neg_pos_ratio)
        order = xp.argsort(-losses[among], kind="stable")
        if param.HasField("nms_param") and param.nms_param.nms_threshold > 0:
            order = self._spread(order, among, loc)
        chosen = xp.zeros(index.shape, bool)
        chosen[among[order[:wanted]]] = True
        negatives = chosen & (index == UNMATCHED)
        if hard:
            index = xp.where((index >= 0) & ~chosen, UNMATCHED, index)
        return index, negatives

    def _spread(self, order: Any, among: Any, loc: Any) -> Any:
        """Of candidates in the order of their losses, those that do not overlap much."""
        xp, nms = self.xp, self.param.nms_param
        boxes = self.priors if self.param.use_prior_for_nms else self.decoded(loc)
        boxes = boxes[among]
        if nms.HasField("top_k") and nms.top_k >= 0:
            order = order[: nms.top_k]
        order = order[areas(xp, boxes[order]) >= SMALL]
        return order[suppress(xp, boxes[order], nms.nms_threshold)]
