"""MultiBoxLoss in all its modes against SSD's definition, object by object and prior by prior."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, log
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.numpy import NumPyBackend
from tests.layers.case import Array, Case, Trial
from tests.layers.test_detection import iou, some_boxes

IMAGES, PRIORS, CLASSES = 3, 24, 4
NOBODY, IGNORED = -1, -2
Place = tuple[int, int]  # a prior and the class whose location it is (0 if they are shared)


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def coded(code: str, prior: Array, box: Array) -> Array:
    """A box as a prior's regression target, before variances."""
    width, height = prior[2] - prior[0], prior[3] - prior[1]
    if code == "CORNER":
        return box - prior
    if code == "CORNER_SIZE":
        return (box - prior) / np.array([width, height, width, height])
    return np.array([
        ((box[0] + box[2]) - (prior[0] + prior[2])) / 2 / width,
        ((box[1] + box[3]) - (prior[1] + prior[3])) / 2 / height,
        log((box[2] - box[0]) / width), log((box[3] - box[1]) / height),
    ])  # fmt: skip


def placed(code: str, prior: Array, move: Array) -> Array:
    """The box that a prediction (times variances) means."""
    width, height = prior[2] - prior[0], prior[3] - prior[1]
    if code == "CORNER":
        return prior + move
    if code == "CORNER_SIZE":
        return prior + move * np.array([width, height, width, height])
    x = (prior[0] + prior[2]) / 2 + move[0] * width
    y = (prior[1] + prior[3]) / 2 + move[1] * height
    half_w, half_h = width * exp(move[2]) / 2, height * exp(move[3]) / 2
    return np.array([x - half_w, y - half_h, x + half_w, y + half_h])


@dataclass
class Definition:
    """SSD's loss of a batch and its slopes, from the settings of a layer by name."""

    loc: Array  # images x priors x location classes x 4
    conf: Array  # images x priors x classes
    priors: Array
    variances: Array
    objects: list[list[Array]]  # of each image: rows of image, class, instance, box, difficult
    norm: str = "VALID"
    code_type: str = "CORNER"
    loc_loss_type: str = "SMOOTH_L1"
    conf_loss_type: str = "SOFTMAX"
    match_type: str = "PER_PREDICTION"
    mining_type: str = "MAX_NEGATIVE"
    loc_weight: float = 1
    share_location: bool = True
    overlap_threshold: float = 0.5
    use_prior_for_matching: bool = True
    background_label_id: int = 0
    use_difficult_gt: bool = True
    neg_pos_ratio: float = 3
    neg_overlap: float = 0.5
    encode_variance_in_target: bool = False
    map_object_to_agnostic: bool = False
    ignore_cross_boundary_bbox: bool = False
    bp_inside: bool = False
    sample_size: int = 64
    use_prior_for_nms: bool = False
    nms_threshold: float = 0
    nms_top_k: int = -1
    matches: int = 0
    d_loc: Array = field(init=False)
    d_conf: Array = field(init=False)

    def loss(self) -> float:
        self.d_loc, self.d_conf = np.zeros_like(self.loc), np.zeros_like(self.conf)
        loc_loss = conf_loss = 0.0
        for image in range(len(self.loc)):
            match = self.matched(image)
            negatives: list[int] = []
            if self.mining_type != "NONE":
                negatives = self.mine(image, match)
            for place, found in match.items():
                if found >= 0:
                    self.matches += 1
                    loc_loss += self.location(image, place, found, learn=True)
            conf_loss += self.classes(image, match, negatives)
        norm = {
            "VALID": self.matches, "BATCH_SIZE": len(self.loc), "NONE": 1,
            "FULL": len(self.loc) * len(self.priors),
        }[self.norm]  # fmt: skip
        norm = max(norm, 1)
        self.d_loc *= self.loc_weight / norm
        self.d_conf /= norm
        return (self.loc_weight * loc_loss + conf_loss) / norm

    def rows(self, image: int) -> list[Array]:
        return [row for row in self.objects[image] if self.use_difficult_gt or not row[7]]

    def label(self, row: Array) -> int:
        return self.background_label_id + 1 if self.map_object_to_agnostic else int(row[1])

    def slots(self) -> list[int]:
        if self.share_location:
            return [0]
        return [c for c in range(self.conf.shape[2]) if c != self.background_label_id]

    def predicted(self, image: int, prior: int, slot: int) -> Array:
        move = self.loc[image, prior, slot]
        if not self.encode_variance_in_target:
            move = move * self.variances[prior]
        return placed(self.code_type, self.priors[prior], move)

    # Matching.

    def matched(self, image: int) -> dict[Place, int]:
        """An object, NOBODY or IGNORED for every place of an image."""
        rows = self.rows(image)
        result: dict[Place, int] = {}
        self.best: dict[Place, float] = {}
        if self.use_prior_for_matching:
            found, best = self.assigned(list(self.priors), rows, list(range(len(rows))))
        for slot in self.slots():
            if not self.use_prior_for_matching:
                boxes = [self.predicted(image, p, slot) for p in range(len(self.priors))]
                among = [k for k, row in enumerate(rows) if self.share_location or row[1] == slot]
                found, best = self.assigned(boxes, rows, among)
            for prior, one in enumerate(found):
                other = not self.share_location and one >= 0 and rows[one][1] != slot
                # What crosses the border is ignored where locations are shared; spread over
                # classes, SSD's matches start from "nobody".
                spread = not self.share_location and self.use_prior_for_matching
                result[prior, slot] = NOBODY if other or (spread and one < 0) else one
                self.best[prior, slot] = best[prior]
        return result

    def assigned(
        self, boxes: list[Array], rows: list[Array], among: list[int]
    ) -> tuple[list[int], list[float]]:
        found, best = [NOBODY] * len(boxes), [0.0] * len(boxes)
        if not among:
            return found, best
        table = {}
        for p, box in enumerate(boxes):
            if self.ignore_cross_boundary_bbox and (min(box) < 0 or max(box) > 1):
                found[p] = IGNORED
                continue
            for k in among:
                shared = overlap(box, rows[k][3:7])
                if shared > 1e-6:
                    table[p, k] = shared
                    best[p] = max(best[p], shared)
        waiting = set(among)
        while waiting:
            free = [
                (v, -p, -k) for (p, k), v in table.items() if found[p] == NOBODY and k in waiting
            ]
            if not free:
                break
            value, p, k = max(free)
            found[-p], best[-p] = -k, value
            waiting.remove(-k)
        if self.match_type == "PER_PREDICTION":
            for p in range(len(boxes)):
                good = [(v, -k) for (q, k), v in table.items() if q == p]
                if found[p] == NOBODY and good and max(good)[0] >= self.overlap_threshold:
                    found[p] = -max(good)[1]
        return found, best

    # Mining.

    def mine(self, image: int, match: dict[Place, int]) -> list[int]:
        """The negatives that count; easy matches are dropped where only hard examples do."""
        if not self.rows(image):
            return []
        hard = self.mining_type == "HARD_EXAMPLE"
        losses = {}
        for (prior, _), found in match.items():
            label = self.background_label_id
            if found >= 0:
                label = self.label(self.rows(image)[found])
            losses[prior] = self.class_loss(image, prior, {label})
            if hard and found >= 0:
                losses[prior] += self.location(image, (prior, 0), found)
        candidates = [
            p for p in range(len(self.priors))
            if hard or (match[p, 0] == NOBODY and self.best[p, 0] < self.neg_overlap)
        ]  # fmt: skip
        positives = sum(found >= 0 for found in match.values())
        wanted = self.sample_size if hard else int(positives * self.neg_pos_ratio)
        order = sorted(candidates, key=lambda p: -losses[p])
        if self.nms_threshold > 0:
            order = self.spread(image, order)
        chosen = order[:wanted]
        negatives = [p for p in chosen if match[p, 0] == NOBODY]
        for place, found in match.items():
            if hard and found >= 0 and place[0] not in chosen:
                match[place] = NOBODY
        return negatives

    def spread(self, image: int, order: list[int]) -> list[int]:
        """Those of the hardest that do not overlap a harder one by more than the threshold."""
        boxes = {
            p: self.priors[p] if self.use_prior_for_nms else self.predicted(image, p, 0)
            for p in order
        }  # fmt: skip
        order = order[: self.nms_top_k] if self.nms_top_k >= 0 else order
        kept: list[int] = []
        for p in order:
            if area(boxes[p]) < 1e-5:
                continue
            if all(overlap(boxes[p], boxes[k]) <= self.nms_threshold for k in kept):
                kept.append(p)
        return kept

    # Losses.

    def location(self, image: int, place: Place, found: int, learn: bool = False) -> float:
        prior, slot = place
        at, variance = self.priors[prior], self.variances[prior]
        target = coded(self.code_type, at, self.rows(image)[found][3:7])
        guess = self.loc[image, prior, slot]
        if not self.encode_variance_in_target:
            target = target / variance
        seen = at if self.use_prior_for_matching else self.predicted(image, prior, slot)
        total = 0.0
        for k in range(4):
            gap = float(guess[k] - target[k])
            if self.bp_inside and not 0 <= seen[k] <= 1:
                gap = 0.0
            if self.encode_variance_in_target:  # SSD divides the gap, but not the slope again
                gap /= variance[k]
            linear = self.loc_loss_type == "SMOOTH_L1" and abs(gap) >= 1
            total += abs(gap) - 0.5 if linear else gap * gap / 2
            if learn:
                self.d_loc[image, prior, slot, k] = np.sign(gap) if linear else gap
        return total

    def class_loss(self, image: int, prior: int, labels: set[int], learn: bool = False) -> float:
        """With LOGISTIC there may be several labels, or none."""
        scores, total = self.conf[image, prior], 0.0
        if self.conf_loss_type == "SOFTMAX":
            (label,) = labels
            spread = sum(exp(s) for s in scores)
            for c, score in enumerate(scores):
                if learn:
                    self.d_conf[image, prior, c] = exp(score) / spread - (c == label)
            return log(spread) - float(scores[label])
        for c, score in enumerate(scores):
            chance = sigmoid(float(score))
            total -= log(chance) if c in labels else log(1 - chance)
            if learn:
                self.d_conf[image, prior, c] = chance - (c in labels)
        return total

    def classes(self, image: int, match: dict[Place, int], negatives: list[int]) -> float:
        total = 0.0
        rows = self.rows(image)
        for prior in range(len(self.priors)):
            found = [match[prior, s] for s in self.slots() if match.get((prior, s), NOBODY) >= 0]
            labels = [self.label(rows[k]) for k in found]
            if self.mining_type != "NONE" and not labels and prior not in negatives:
                continue
            wanted = set(labels)
            if self.conf_loss_type == "SOFTMAX":
                wanted = {labels[-1] if labels else self.background_label_id}
            elif prior in negatives:
                wanted = {self.background_label_id}
            total += self.class_loss(image, prior, wanted, learn=True)
        return total


def area(box: Array) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def overlap(a: Array, b: Array) -> float:
    """0 for boxes that are turned inside out, as in SSD."""
    return iou(a, b) if area(a) > 0 and area(b) > 0 else 0.0


def prototxt(settings: dict[str, Any], classes: int) -> str:
    fields, nms = [f"num_classes: {classes}"], []
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else value
        if name.startswith("nms_"):
            nms.append(f"{'top_k' if name == 'nms_top_k' else name}: {text}")
        elif name != "norm":
            fields.append(f"{name}: {text}")
    if nms:
        fields.append(f"nms_param {{ {' '.join(nms)} }}")
    norm = settings.get("norm", "VALID")
    return f"multibox_loss_param {{ {' '.join(fields)} }} loss_param {{ normalization: {norm} }}"


MODES: list[dict[str, Any]] = [
    {},
    *({"code_type": code} for code in ("CENTER_SIZE", "CORNER_SIZE")),
    *({"norm": norm} for norm in ("FULL", "BATCH_SIZE", "NONE")),
    *(
        {"mining_type": mining, "conf_loss_type": conf, "match_type": match, **extra}
        for mining, extra in (
            ("NONE", {}),
            ("MAX_NEGATIVE", {"neg_pos_ratio": 1.5}),
            ("HARD_EXAMPLE", {"sample_size": 6}),
        )
        for conf in ("SOFTMAX", "LOGISTIC")
        for match in ("BIPARTITE", "PER_PREDICTION")
    ),
    *(
        {"mining_type": "NONE", "share_location": False, "use_prior_for_matching": prior,
         "code_type": code, "conf_loss_type": conf, "overlap_threshold": 0.3}
        for prior in (True, False)
        for code in ("CORNER", "CENTER_SIZE")
        for conf in ("SOFTMAX", "LOGISTIC")
    ),
    *(
        {"use_prior_for_matching": False, "code_type": code, "match_type": match}
        for code in ("CORNER", "CENTER_SIZE", "CORNER_SIZE")
        for match in ("BIPARTITE", "PER_PREDICTION")
    ),
    *(
        {"encode_variance_in_target": True, "code_type": code, "loc_loss_type": "L2"}
        for code in ("CORNER", "CENTER_SIZE", "CORNER_SIZE")
    ),
    {"loc_loss_type": "L2", "loc_weight": 2.5},
    {"neg_overlap": 0.2, "neg_pos_ratio": 50},
    {"use_difficult_gt": False, "mining_type": "HARD_EXAMPLE", "sample_size": 9},
    {"ignore_cross_boundary_bbox": True, "bp_inside": True},
    {"ignore_cross_boundary_bbox": True, "mining_type": "NONE", "share_location": False},
    {"ignore_cross_boundary_bbox": True, "mining_type": "HARD_EXAMPLE", "sample_size": 12},
    {"bp_inside": True, "use_prior_for_matching": False, "code_type": "CENTER_SIZE"},
    {"bp_inside": True, "encode_variance_in_target": True},
    {"nms_threshold": 0.3, "neg_pos_ratio": 9},
    {"nms_threshold": 0.3, "nms_top_k": 5, "use_prior_for_nms": True, "neg_pos_ratio": 9},
    {"nms_threshold": 0.2, "mining_type": "HARD_EXAMPLE", "sample_size": 8},
    {"map_object_to_agnostic": True},
    {"background_label_id": 3},
    {"background_label_id": 3, "conf_loss_type": "LOGISTIC", "mining_type": "NONE"},
    {"background_label_id": 9, "conf_loss_type": "LOGISTIC"},
]  # fmt: skip


def batch(seed: int, settings: dict[str, Any], classes: int) -> tuple[list[Array], Definition]:
    rng = np.random.default_rng(seed)
    boxes = some_boxes(rng, PRIORS)
    boxes[::5] -= 0.15  # some cross the border
    variances = np.tile([0.1, 0.1, 0.2, 0.2], (PRIORS, 1))
    truth = np.zeros((1, 1, 9, 8))
    truth[0, 0, :, 0] = [0, 0, 0, 0, 2, 2, 2, -1, -1]  # image 1 has no objects
    background = settings.get("background_label_id", 0)
    labels = [c for c in range(classes) if c != background]
    truth[0, 0, :, 1] = rng.choice(labels, 9)
    truth[0, 0, :, 3:7] = some_boxes(rng, 9)
    truth[0, 0, :, 7] = rng.integers(0, 2, 9)
    slots = 1 if settings.get("share_location", True) else classes
    loc = rng.normal(size=(IMAGES, PRIORS, slots, 4))
    conf = rng.normal(size=(IMAGES, PRIORS, classes))
    rows = truth[0, 0].astype(np.float64)
    definition = Definition(
        loc, conf, boxes, variances, [[r for r in rows if r[0] == i] for i in range(IMAGES)],
        **settings,
    )  # fmt: skip
    prior = np.stack([boxes.reshape(-1), variances.reshape(-1)])[None]
    return [loc.reshape(IMAGES, -1), conf.reshape(IMAGES, -1), prior, truth], definition


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "settings", MODES, ids=lambda m: " ".join(f"{k}={v}" for k, v in m.items()) or "default"
)
def test_loss_and_gradients_are_what_ssd_defines(settings: dict[str, Any], seed: int) -> None:
    classes = 2 if settings.get("map_object_to_agnostic") else CLASSES
    values, definition = batch(seed, settings, classes)
    case = Case(
        "loss", "MultiBoxLoss", prototxt(settings, classes), tuple(v.shape for v in values),
        gradients=(0, 1),
    )  # fmt: skip
    made = Trial(case, NumPyBackend(dtype=np.float64))
    (top,) = made.forward(values)
    want = definition.loss()
    assert definition.matches > 0
    assert float(top) == pytest.approx(want, rel=1e-6)
    d_loc, d_conf = made.backward([np.full((), 0.5)])[:2]
    np.testing.assert_allclose(d_loc, definition.d_loc.reshape(d_loc.shape) / 2, atol=1e-6)
    np.testing.assert_allclose(d_conf, definition.d_conf.reshape(d_conf.shape) / 2, atol=1e-6)
