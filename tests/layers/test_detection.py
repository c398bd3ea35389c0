"""Detection layers against plain loops and worked examples."""

from __future__ import annotations

from math import ceil, floor, log, sqrt
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.backend import compiled, cpu_backend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.layers import Context, boxes
from tests.layers.case import Array, Case, Trial

F = np.float32


def trial(kind: str, params: str, *values: Array, tops: int = 1) -> tuple[Trial, list[Array]]:
    """The layer on these bottoms, in double precision, and its tops."""
    case = Case(kind, kind, params, tuple(v.shape for v in values), tops=tops, gradients=(0,))
    made = Trial(case, NumPyBackend(dtype=np.float64))
    return made, made.forward(values)


def random_regions(count: int, images: int, size: float) -> Array:
    rng = np.random.default_rng(1)
    image = rng.integers(0, images, count)
    low, high = rng.uniform(-5, size, (2, count, 2))
    return np.concatenate([image[:, None], low, high], axis=1)


# Regions.


def half_away(value: float) -> float:
    return float(np.sign(value) * floor(abs(float(value)) + 0.5))


def roi_window(roi: Array, i: int, j: int, size: int, scale: float, shape: Any) -> Any:
    """The pixels of one bin, as Fast R-CNN defines them."""
    edges = []
    for bin_, low, high, limit in ((i, roi[2], roi[4], shape[2]), (j, roi[1], roi[3], shape[3])):
        start, end = half_away(F(low) * F(scale)), half_away(F(high) * F(scale))
        width = F(max(end - start + 1, 1)) / F(size)
        first = floor(F(bin_) * width) + start
        last = ceil(F(bin_ + 1) * width) + start
        edges.append(slice(int(min(max(first, 0), limit)), int(min(max(last, 0), limit))))
    return edges


def test_roi_pooling_is_the_maximum_of_each_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 9, 11))
    rois = random_regions(12, 2, 40)
    params = "roi_pooling_param { pooled_h: 3 pooled_w: 3 spatial_scale: 0.25 }"
    made, (y,) = trial("ROIPooling", params, x, rois)
    want: Array = np.zeros_like(y)
    want_dx: Array = np.zeros_like(x)
    dy = np.asarray(np.random.default_rng(2).normal(size=y.shape))
    for r, c, i, j in np.ndindex(y.shape):
        rows, columns = roi_window(rois[r], i, j, 3, 0.25, x.shape)
        window = x[int(rois[r, 0]), c, rows, columns]
        if window.size:
            want[r, c, i, j] = window.max()
            h, w = np.unravel_index(window.argmax(), window.shape)
            want_dx[int(rois[r, 0]), c, rows.start + h, columns.start + w] += dy[r, c, i, j]
    np.testing.assert_array_equal(y, want)
    assert (want == 0).any(), "some bins are empty"
    np.testing.assert_allclose(made.backward([dy])[0], want_dx, atol=1e-12)
    monkeypatch.setattr(compiled, "available", lambda: False)
    plain, (same,) = trial("ROIPooling", params, x, rois)
    np.testing.assert_array_equal(same, want)
    np.testing.assert_allclose(plain.backward([dy])[0], want_dx, atol=1e-12)


def test_psroi_pooling_is_the_mean_of_each_bin_in_its_own_channel() -> None:
    x = np.random.default_rng(0).normal(size=(2, 18, 9, 11))
    rois = random_regions(12, 2, 40)
    params = "psroi_pooling_param { output_dim: 2 group_size: 3 spatial_scale: 0.25 }"
    _, (y,) = trial("PSROIPooling", params, x, rois)
    want = np.zeros_like(y)
    for r, c, i, j in np.ndindex(y.shape):
        edges = []
        for k, low, high, limit in (
            (i, rois[r, 2], rois[r, 4], 9),
            (j, rois[r, 1], rois[r, 3], 11),
        ):
            start, end = F(half_away(low)) * F(0.25), (F(half_away(high)) + F(1)) * F(0.25)
            width = max(end - start, F(0.1)) / F(3)
            first, last = floor(F(k) * width + start), ceil(F(k + 1) * width + start)
            edges.append(slice(min(max(first, 0), limit), min(max(last, 0), limit)))
        window = x[int(rois[r, 0]), (c * 3 + i) * 3 + j, edges[0], edges[1]]
        want[r, c, i, j] = window.mean() if window.size else 0
    np.testing.assert_allclose(y, want, atol=1e-12)
    assert (want == 0).any(), "some bins are empty"


# Boxes.


def test_overlaps() -> None:
    a = np.array([[0.0, 0, 2, 2], [0, 0, 1, 1], [3, 3, 2, 2]])  # the last is inside out
    b = np.array([[1.0, 1, 3, 3], [0, 0, 2, 2], [2, 0, 4, 2]])
    want: list[Any] = [[1 / 7, 1, 0], [0, 0.25, 0], [0, 0, 0]]
    np.testing.assert_allclose(boxes.overlaps(np, a, b), want)


@pytest.mark.parametrize("code", [boxes.CORNER, boxes.CENTER_SIZE, boxes.CORNER_SIZE])
def test_coding_and_its_inverse(code: int) -> None:
    rng = np.random.default_rng(0)
    prior, box = (
        np.concatenate([low, low + rng.uniform(0.1, 0.5, (5, 2))], axis=1)
        for low in rng.uniform(0, 0.5, (2, 5, 2))
    )
    variance = rng.uniform(0.1, 0.3, (5, 4))
    codes = boxes.encode(np, code, prior, variance, box)
    np.testing.assert_allclose(boxes.decode(np, code, prior, variance, codes), box)


def test_codes_of_one_box() -> None:
    prior, box = np.array([[0.2, 0.2, 0.4, 0.6]]), np.array([[0.3, 0.2, 0.7, 1.0]])
    ones = np.full((1, 4), 0.5)
    want = {
        boxes.CORNER: [0.1, 0, 0.3, 0.4],
        boxes.CORNER_SIZE: [0.5, 0, 1.5, 1],
        boxes.CENTER_SIZE: [0.2 / 0.2, 0.2 / 0.4, log(2), log(2)],
    }
    for code, raw in want.items():
        got = boxes.encode(np, code, prior, ones, box)
        np.testing.assert_allclose(got[0], np.array(raw) / 0.5, atol=1e-12)


def test_matching_serves_every_object_first() -> None:
    overlap = np.array([[0.9, 0.8], [0.7, 0.6], [0.1, 0.0], [0.0, 0.55]])
    nobody = np.zeros(4, bool)
    index, best = boxes.match(np, overlap, None, nobody)
    assert index.tolist() == [0, 1, -1, -1]
    np.testing.assert_allclose(best, [0.9, 0.6, 0.1, 0.55])
    index, _ = boxes.match(np, overlap, 0.5, nobody)
    assert index.tolist() == [0, 1, -1, 1]
    index, best = boxes.match(np, overlap, 0.5, np.array([True, False, False, False]))
    assert index.tolist() == [-2, 0, -1, 1]
    assert best[0] == 0


@pytest.mark.parametrize("compiles", [True, False])
def test_suppression_and_its_falling_threshold(
    monkeypatch: pytest.MonkeyPatch, compiles: bool
) -> None:
    if not compiles:
        monkeypatch.setattr(compiled, "available", lambda: False)
    row = np.array([[x, 0.0, x + 1.0, 1.0] for x in (0.0, 0.1, 0.25, 0.6)])
    assert boxes.suppress(np, row, 0.5).tolist() == [0, 3]
    assert boxes.suppress(np, row, 0.65).tolist() == [0, 2, 3]
    # Box 2 overlaps box 0 by 0.6: fine for 0.65, too much for 0.65 * 0.9.
    assert boxes.suppress(np, row, 0.65, eta=0.9).tolist() == [0, 3]
    assert boxes.suppress(np, row[:0], 0.5).tolist() == []


# SSD.


def test_prior_boxes_of_ssd() -> None:
    """The first and the last of SSD300's conv4_3: step 8, sizes 30 and 60, aspect ratio 2."""
    params = (
        "prior_box_param { min_size: 30 max_size: 60 aspect_ratio: 2 flip: true clip: false "
        "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 step: 8 }"
    )
    _, (top,) = trial("PriorBox", params, np.zeros((1, 1, 38, 38)), np.zeros((1, 3, 300, 300)))
    assert top.shape == (1, 2, 38 * 38 * 4 * 4)
    found, variances = top[0].reshape(2, 38, 38, 4, 4)
    sides = [
        (30, 30),
        (sqrt(1800),) * 2,
        (30 * sqrt(2), 30 / sqrt(2)),
        (30 / sqrt(2), 30 * sqrt(2)),
    ]
    for y, x in ((0, 0), (37, 37), (3, 30)):
        for box, (w, h) in zip(found[y, x], sides, strict=True):
            cx, cy = 8 * x + 4, 8 * y + 4
            want = np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]) / 300
            np.testing.assert_allclose(box, want, rtol=1e-6)
    assert (variances == np.array([0.1, 0.1, 0.2, 0.2], F)).all()


UNIT = np.array([[0.1, 0.1, 0.3, 0.3], [0.12, 0.1, 0.32, 0.3], [0.5, 0.5, 0.9, 0.9], [0, 0, 1, 1]])


def detect(conf: Array, extra: str = "", loc: Array | None = None, num: int = 1) -> Array:
    """Rows of DetectionOutput for the priors UNIT, two classes and the background."""
    priors = np.stack([UNIT.reshape(-1), np.full(16, 0.1)])[None]
    params = f"detection_output_param {{ num_classes: 3 {extra} }}"
    loc = np.zeros((num, 16)) if loc is None else loc
    return trial("DetectionOutput", params, loc, conf.reshape(num, 12), priors)[1][0][0, 0]


CONF = np.array([[0.1, 0.8, 0.1], [0.1, 0.7, 0.2], [0.6, 0.1, 0.3], [0.0, 0.05, 0.95]])
STRICT = "nms_param { nms_threshold: 0.4 } confidence_threshold: 0.15"


def test_detections_of_one_image() -> None:
    rows = detect(CONF, STRICT)
    want = [
        [0, 1, 0.8, *UNIT[0]],
        [0, 2, 0.95, *UNIT[3]],
        [0, 2, 0.3, *UNIT[2]],
        [0, 2, 0.2, *UNIT[1]],
    ]
    np.testing.assert_allclose(rows, want, rtol=1e-6)


def test_the_best_of_a_class_and_of_an_image() -> None:
    per_class = detect(CONF, STRICT.replace("0.4 }", "0.4 top_k: 2 }"))
    assert per_class[:, 1].tolist() == [1, 2, 2]
    per_image = detect(CONF, STRICT + " keep_top_k: 2")
    np.testing.assert_allclose(per_image[:, 1:3], [[1, 0.8], [2, 0.95]])


def test_no_detections_leave_a_row_per_image() -> None:
    conf = np.zeros((2, 4, 3))
    rows = detect(conf, STRICT, num=2)
    assert rows.tolist() == [[0] + [-1] * 6, [1] + [-1] * 6]


def test_without_a_threshold_every_prior_is_a_candidate() -> None:
    rows = detect(np.full((4, 3), -5.0), "nms_param { nms_threshold: 1 }")
    assert len(rows) == 8


def test_locations_move_the_priors() -> None:
    loc = np.zeros((1, 4, 4))
    loc[0, 0] = [1, 0, 1, -2]
    rows = detect(CONF, STRICT + " code_type: CORNER keep_top_k: 2", loc.reshape(1, 16))
    np.testing.assert_allclose(rows[0, 3:], UNIT[0] + np.array([0.1, 0, 0.1, -0.2]), rtol=1e-6)
    unscaled = "variance_encoded_in_target: true keep_top_k: 2"
    rows = detect(CONF, f"{STRICT} {unscaled}", loc.reshape(1, 16))
    np.testing.assert_allclose(rows[0, 3:], UNIT[0] + loc[0, 0], rtol=1e-6)


def iou(a: Array, b: Array) -> float:
    sides = [max(0.0, min(a[k + 2], b[k + 2]) - max(a[k], b[k])) for k in (0, 1)]
    shared = sides[0] * sides[1]
    return shared / (sum((r[2] - r[0]) * (r[3] - r[1]) for r in (a, b)) - shared)


def some_boxes(rng: np.random.Generator, count: int) -> Array:
    low = rng.uniform(0, 0.6, (count, 2))
    return np.concatenate([low, low + rng.uniform(0.1, 0.4, (count, 2))], axis=1)


def test_multibox_loss_without_any_object() -> None:
    prior = np.stack([UNIT.reshape(-1), np.full(16, 0.1)])[None]
    truth = np.full((1, 1, 1, 8), -1.0)
    params = "multibox_loss_param { num_classes: 3 }"
    made, (top,) = trial("MultiBoxLoss", params, np.ones((2, 16)), np.ones((2, 12)), prior, truth)
    assert float(top) == 0
    assert not made.backward([np.ones(())])[0].any()


def test_propagate_down_leaves_out_a_part_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    prior = np.stack([UNIT.reshape(-1), np.full(16, 0.1)])[None]
    truth = np.array([[[[0, 1, 0, 0.1, 0.1, 0.4, 0.4, 0]]]])
    bottoms = (rng.normal(size=(1, 16)), rng.normal(size=(1, 12)), prior, truth)
    losses = {}
    for flags in ("true true", "true false", "false true"):
        down = "".join(f"propagate_down: {flag} " for flag in (*flags.split(), "false", "false"))
        params = f"{down} multibox_loss_param {{ num_classes: 3 }}"
        losses[flags] = float(trial("MultiBoxLoss", params, *bottoms)[1][0])
    assert losses["true true"] == pytest.approx(losses["true false"] + losses["false true"])
    assert 0 < losses["false true"] < losses["true true"]


SMALL_SSD = """
layer { name: "data" type: "Input" top: "data"
        input_param { shape { dim: 2 dim: 1 dim: 16 dim: 16 } } }
layer { name: "label" type: "Input" top: "label"
        input_param { shape { dim: 1 dim: 1 dim: 2 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 8 kernel_size: 4 stride: 4
                            weight_filler { type: "xavier" } } }
layer { name: "loc" type: "Convolution" bottom: "conv" top: "loc"
        convolution_param { num_output: 8 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "loc_p" type: "Permute" bottom: "loc" top: "loc_p"
        permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "loc_f" type: "Flatten" bottom: "loc_p" top: "loc_f" }
layer { name: "conf" type: "Convolution" bottom: "conv" top: "conf"
        convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "conf_p" type: "Permute" bottom: "conf" top: "conf_p"
        permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "conf_f" type: "Flatten" bottom: "conf_p" top: "conf_f" }
layer { name: "prior" type: "PriorBox" bottom: "conv" bottom: "data" top: "prior"
        prior_box_param { min_size: 4 max_size: 8 } }
layer { name: "loss" type: "MultiBoxLoss" bottom: "loc_f" bottom: "conf_f" bottom: "prior"
        bottom: "label" top: "loss"
        multibox_loss_param { num_classes: 2 code_type: CENTER_SIZE overlap_threshold: 0.4 } }
"""


def test_a_small_ssd_learns() -> None:
    """Also without propagate_down, which SSD's own prototxts give: priors pass no gradient on."""
    net = Net(
        schema.parse_text(SMALL_SSD, schema.NetParameter()),
        schema.TRAIN,
        backend=cpu_backend(1),
        context=Context(3),
    )
    rng = np.random.default_rng(0)
    net.blobs["data"].data[...] = rng.normal(size=(2, 1, 16, 16))
    net.blobs["label"].data[...] = [
        [[[0, 1, 0, 0.1, 0.1, 0.4, 0.4, 0], [1, 1, 0, 0.5, 0.4, 0.9, 0.8, 0]]]
    ]
    losses = []
    for _ in range(30):
        net.clear_param_diffs()
        losses.append(net.forward_backward())
        for blobs in net.params.values():
            for blob in blobs:
                blob.data[...] -= 0.05 * blob.diff
    assert losses[-1] < 0.3 * losses[0]


def test_boxes_may_be_cut_at_the_border() -> None:
    all_boxes = "nms_param { nms_threshold: 1 } confidence_threshold: 0.15"
    outward = np.tile([-5.0, -5, 5, 5], 4)[None]
    whole = detect(CONF, all_boxes, outward)
    cut = detect(CONF, f"{all_boxes} clip: true", outward)
    assert whole[:, 3:].min() < 0 and whole[:, 3:].max() > 1
    np.testing.assert_array_equal(cut[:, 3:], np.clip(whole[:, 3:], 0, 1))


@pytest.mark.parametrize("code", ["CORNER", "CENTER_SIZE", "CORNER_SIZE"])
def test_variances_in_the_target(code: str) -> None:
    """Predictions that leave the variances to the loss cost what divided ones do."""
    rng = np.random.default_rng(8)
    variance = np.tile([0.1, 0.1, 0.2, 0.2], 30)
    prior = np.stack([some_boxes(rng, 30).reshape(-1), variance])[None]
    truth = np.zeros((1, 1, 4, 8))
    truth[0, 0, :, 1] = rng.integers(1, 4, 4)
    truth[0, 0, :, 3:7] = some_boxes(rng, 4)
    loc, conf = rng.normal(size=(1, 120)), rng.normal(size=(1, 120))
    params = f"multibox_loss_param {{ num_classes: 4 code_type: {code} %s }}"
    _, (usual,) = trial("MultiBoxLoss", params % "", loc, conf, prior, truth)
    given = params % "encode_variance_in_target: true"
    _, (other,) = trial("MultiBoxLoss", given, loc * variance, conf, prior, truth)
    np.testing.assert_allclose(usual, other, rtol=1e-4)
