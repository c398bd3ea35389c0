"""Faster R-CNN and R-FCN: proposals, hard examples and aligned regions, by their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.layers.proposal import anchor_boxes
from tests.layers.case import Array, Case, Trial


def test_anchors_are_those_of_faster_r_cnn() -> None:
    """The nine that its generate_anchors.py prints."""
    want = [
        [-84, -40, 99, 55], [-176, -88, 191, 103], [-360, -184, 375, 199],
        [-56, -56, 71, 71], [-120, -120, 135, 135], [-248, -248, 263, 263],
        [-36, -80, 51, 95], [-80, -168, 95, 183], [-168, -344, 183, 359],
    ]  # fmt: skip
    np.testing.assert_array_equal(anchor_boxes(16, (0.5, 1, 2), (8, 16, 32)), want)


def overlap(a: Array, b: Array) -> float:
    """Of boxes whose corners are pixels that belong to them."""
    width = min(a[2], b[2]) - max(a[0], b[0]) + 1
    height = min(a[3], b[3]) - max(a[1], b[1]) + 1
    common = max(width, 0) * max(height, 0)
    areas = [(c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b)]
    return float(common / (sum(areas) - common))


def proposals(
    scores: Array, deltas: Array, anchors: Array, info: Array, before: int, after: int, limit: float
) -> list[tuple[float, list[float]]]:
    """(score, box) of one image, place by place and anchor by anchor."""
    found = []
    count = len(anchors)
    for i, j, a in np.ndindex(*scores.shape[1:], count):
        x1, y1, x2, y2 = anchors[a] + np.array([16 * j, 16 * i] * 2)
        width, height = x2 - x1 + 1, y2 - y1 + 1
        dx, dy, dw, dh = deltas[4 * a : 4 * a + 4, i, j]
        cx, cy = x1 + width / 2 + dx * width, y1 + height / 2 + dy * height
        w, h = np.exp(dw) * width, np.exp(dh) * height
        box = np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
        box = np.clip(box, 0, [info[1] - 1, info[0] - 1] * 2)
        if min(box[2] - box[0] + 1, box[3] - box[1] + 1) >= 4 * info[2]:
            found.append((float(scores[count + a, i, j]), box))
    found.sort(key=lambda pair: -pair[0])
    kept: list[Any] = []
    for score, box in found[:before]:
        if all(overlap(box, other) <= limit for _, other in kept) and len(kept) < after:
            kept.append((score, box))
    return kept


@pytest.mark.parametrize(("before", "after"), [(6000, 300), (9, 4)])
def test_proposals_are_those_of_faster_r_cnn(before: int, after: int) -> None:
    params = (
        "proposal_param { base_size: 8 feat_stride: 16 min_size: 4 ratio: 1 ratio: 2 scale: 2 "
        f"scale: 3 pre_nms_topn: {before} post_nms_topn: {after} nms_thresh: 0.4 }}"
    )
    shapes = ((2, 8, 3, 4), (2, 16, 3, 4), (2, 3))
    case = Case("proposal", "Proposal", params, shapes, tops=2, gradients=())
    rng = np.random.default_rng(8)
    scores, deltas = rng.uniform(size=shapes[0]), 0.4 * rng.normal(size=shapes[1])
    info = np.array([[40, 62, 1], [44, 50, 2.5]])
    values = [np.float32(v) for v in (scores, deltas, info)]
    rois, best = Trial(case, NumPyBackend()).forward(values)
    anchors = anchor_boxes(8, (1, 2), (2, 3))
    want = [
        (score, [image, *box])
        for image in range(2)
        for score, box in proposals(
            values[0][image], values[1][image], anchors, info[image], before, after, 0.4
        )
    ]
    assert len(rois) == len(want) > 6
    np.testing.assert_allclose(rois, [row for _, row in want], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(best[:, 0], [score for score, _ in want])


def test_an_image_without_proposals_is_one_itself() -> None:
    shapes = ((1, 2, 2, 2), (1, 4, 2, 2), (1, 3))
    params = "proposal_param { ratio: 1 scale: 1 min_size: 1000 }"
    case = Case("proposal", "Proposal", params, shapes, tops=2, gradients=())
    values = [np.ones(shapes[0]), np.zeros(shapes[1]), np.array([[30, 40, 1]])]
    rois, scores = Trial(case, NumPyBackend()).forward(values)
    assert rois.tolist() == [[0, 0, 0, 39, 29]] and scores.tolist() == [[0]]


def test_the_costliest_regions_are_learned_from() -> None:
    case = Case(
        "ohem", "BoxAnnotatorOHEM", "box_annotator_ohem_param { roi_per_img: 2 ignore_label: -5 }",
        ((6, 5), (6,), (6,), (6, 4)), tops=2, gradients=(),
    )  # fmt: skip
    rois = np.zeros((6, 5))
    rois[:, 0] = [0, 1, 0, 1, 0, 0]
    losses = np.array([0.1, 0.3, 0.9, 0.2, 0.5, 0.4])
    weights = np.arange(24.0).reshape(6, 4)
    labels, kept = Trial(case, NumPyBackend()).forward([rois, losses, np.arange(6), weights])
    assert labels.tolist() == [-5, 1, 2, 3, 4, -5]
    mask = np.array([0, 1, 1, 1, 1, 0])[:, None]
    np.testing.assert_array_equal(kept, weights * mask)


def test_losses_of_single_regions_add_up() -> None:
    text = "loss_param { normalization: NONE ignore_label: 2 }"
    for kind, shapes, last in (
        ("SoftmaxWithLossOHEM", ((5, 4), (5,)), 3),
        ("SmoothL1LossOHEM", ((5, 4, 2, 1),) * 2, 2),
    ):
        fill = ("normal", "labels 4") if last == 3 else ("normal",)
        case = Case("ohem", kind, text, shapes, fill=fill, tops=last)
        tops = Trial(case, NumPyBackend(dtype=np.float64)).forward(case.values())
        assert tops[-1].sum() == pytest.approx(float(tops[0])) and (tops[-1] >= 0).all()
        if last == 3:
            assert (tops[-1][case.values()[1] == 2] == 0).all()


def bilinear(plane: Array, y: float, x: float) -> float:
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    i, j = int(y), int(x)
    k, m = min(i + 1, height - 1), min(j + 1, width - 1)
    top = plane[i, j] * (1 - (x - j)) + plane[i, m] * (x - j)
    bottom = plane[k, j] * (1 - (x - j)) + plane[k, m] * (x - j)
    return float(top * (1 - (y - i)) + bottom * (y - i))


@pytest.mark.parametrize(("ratio", "end"), [(-1, 0), (2, 0), (3, 1)])
def test_roi_align_is_the_definition(ratio: int, end: int) -> None:
    params = (
        f"roi_align_param {{ pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 sampling_ratio: {ratio} "
        f"roi_end_mode: {end} }}"
    )
    rois = np.array([[1, 1, 2, 9, 8], [0, -5, -4, 6, 3.5], [0, 7, 7, 30, 40], [1, 3, 3, 3, 3]])
    case = Case("align", "ROIAlign", params, ((2, 2, 6, 7), rois.shape), gradients=(0,))
    x = case.values()[0]
    (top,) = Trial(case, NumPyBackend(dtype=np.float64)).forward([x, rois])
    for r, (image, x1, y1, x2, y2) in enumerate(rois):
        left, upper, right, lower = x1 / 2, y1 / 2, (x2 + end) / 2, (y2 + end) / 2
        high, wide = max(lower - upper, 1) / 2, max(right - left, 1) / 3
        down, across = (ratio if ratio > 0 else int(np.ceil(s)) for s in (high, wide))
        for c, i, j in np.ndindex(2, 2, 3):
            points = [
                bilinear(
                    x[int(image), c],
                    upper + (i + (p + 0.5) / down) * high,
                    left + (j + (q + 0.5) / across) * wide,
                )
                for p in range(down)
                for q in range(across)
            ]
            assert top[r, c, i, j] == pytest.approx(np.mean(points), abs=1e-9)
