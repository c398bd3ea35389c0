"""Losses beyond their rows: values by hand, normalisation, the infogain file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import LayerError
from tests.layers.case import Case, Trial

Array = np.ndarray[Any, Any]


def run(case: Case, *values: Array) -> tuple[float, list[Array]]:
    """The loss and the gradients that loss_weight 1 gives."""
    trial = Trial(case, NumPyBackend(dtype=np.float64))
    (loss,) = trial.forward(values)
    return float(loss), trial.backward([np.ones(())])


def test_contrastive_loss_pushes_by_what_the_margin_lacks() -> None:
    case = Case(
        "pair",
        "ContrastiveLoss",
        "contrastive_loss_param { margin: 2 }",
        shapes=((2, 2), (2, 2), (2,)),
        gradients=(0, 1),
    )
    a, b = np.array([[0.6, 0.8], [3.0, 4.0]]), np.zeros((2, 2))
    loss, (da, db) = run(case, a, b, np.zeros(2))
    assert loss == pytest.approx((2 - 1) ** 2 / 4)  # the second pair is beyond the margin
    push = (2 - 1) / (1 + 1e-4) / 2
    np.testing.assert_allclose(da, -push * np.array([[0.6, 0.8], [0, 0]]))
    np.testing.assert_allclose(db, -da)


def test_coinciding_pairs_have_a_finite_gradient() -> None:
    case = Case("pair", "ContrastiveLoss", shapes=((1, 2), (1, 2), (1,)), gradients=(0, 1))
    loss, gradients = run(case, np.ones((1, 2)), np.ones((1, 2)), np.zeros(1))
    assert loss == pytest.approx(0.5)
    assert all((g == 0).all() for g in gradients)


def sigmoid_case(params: str) -> Case:
    shapes = ((2, 3), (2, 3))
    return Case("sigmoid", "SigmoidCrossEntropyLoss", params, shapes=shapes, gradients=(0,))


@pytest.mark.parametrize(
    ("params", "divisor"),
    [
        ("loss_param { ignore_label: -1 }", 2),
        ("loss_param { ignore_label: -1 normalization: FULL }", 6),
        ("loss_param { ignore_label: -1 normalization: VALID }", 4),
        ("loss_param { ignore_label: -1 normalize: true }", 4),
        ("loss_param { ignore_label: -1 normalize: false }", 2),
        ("loss_param { ignore_label: -1 normalization: BATCH_SIZE }", 2),
        ("loss_param { ignore_label: -1 normalization: NONE }", 1),
    ],
)
def test_sigmoid_cross_entropy_normalisation(params: str, divisor: int) -> None:
    targets = np.array([[1.0, -1, 0], [1, 1, -1]])
    loss, (gradient,) = run(sigmoid_case(params), np.zeros((2, 3)), targets)
    assert loss == pytest.approx(4 * np.log(2) / divisor)
    np.testing.assert_allclose(
        gradient, np.where(targets == -1, 0, 0.5 - targets) / divisor, atol=1e-12
    )


def test_a_batch_of_ignored_targets_costs_nothing() -> None:
    params = "loss_param { ignore_label: 1 normalization: VALID }"
    loss, (gradient,) = run(sigmoid_case(params), np.ones((2, 3)), np.ones((2, 3)))
    assert loss == 0
    assert not gradient.any()


def test_infogain_matrix_from_a_file(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).normal(size=(4, 3))
    labels = np.array([0.0, 2, 1, 2])
    matrix = np.random.default_rng(1).uniform(size=(3, 3)).astype(np.float32)
    schema.write_blob(tmp_path / "h.binaryproto", matrix.reshape(1, 1, 3, 3))
    source = f'infogain_loss_param {{ source: "{tmp_path / "h.binaryproto"}" }}'
    shapes = ((4, 3), (4,))
    from_file = Case("file", "InfogainLoss", source, shapes=shapes, gradients=(0,))
    from_bottom = Case("bottom", "InfogainLoss", shapes=(*shapes, (3, 3)), gradients=(0,))
    loss, (gradient,) = run(from_file, scores, labels)
    other_loss, (other_gradient,) = run(from_bottom, scores, labels, matrix)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    assert loss == pytest.approx(-(matrix[labels.astype(int)] * logs).sum() / 4)
    assert loss == pytest.approx(other_loss)
    np.testing.assert_allclose(gradient, other_gradient)
    wrong = Case("wrong", "InfogainLoss", source, shapes=((4, 5), (4,)))
    with pytest.raises(LayerError, match="must be 5 x 5, got 9 numbers"):
        Trial(wrong, NumPyBackend())


def test_smooth_l1_inside_and_outside_weights() -> None:
    case = Case(
        "boxes",
        "SmoothL1Loss",
        "smooth_l1_loss_param { sigma: 2 }",
        shapes=((2, 2),) * 4,
        gradients=(0, 1),
    )
    gap = np.array([[0.1, 1.0], [-3.0, 5.0]])
    inside, outside = np.array([[1.0, 0.5], [1, 0]]), np.array([[2.0, 1], [0.5, 1]])
    loss, (da, db) = run(case, gap, np.zeros((2, 2)), inside, outside)
    # |d| < 1/4: 2 d^2; else |d| - 1/8
    assert loss == pytest.approx((2 * 2 * 0.01 + (0.5 - 0.125) + 0.5 * (3 - 0.125)) / 2)
    np.testing.assert_allclose(da, [[2 * 4 * 0.1 / 2, 0.5 / 2], [-0.5 / 2, 0]])
    np.testing.assert_allclose(db, -da)


def test_losses_without_softmax_read_all_axes_as_classes() -> None:
    p = np.full((2, 2, 3), 0.1)
    p[1, 1, 2] = 0.5  # class 5 of 6
    case = Case("flat", "MultinomialLogisticLoss", shapes=((2, 2, 3), (2,)), gradients=(0,))
    loss, _ = run(case, p, np.array([0.0, 5]))
    assert loss == pytest.approx(-(np.log(0.1) + np.log(0.5)) / 2)


def test_the_top_of_a_loss_may_be_left_out() -> None:
    text = (
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 } } }'
        'layer { name: "t" type: "Input" top: "t" input_param { shape { dim: 2 } } }'
        'layer { name: "loss" type: "EuclideanLoss" bottom: "x" bottom: "t" }'
    )
    net = Net(schema.parse_text(text, schema.NetParameter()), schema.TRAIN)
    net.blobs["x"].data[...] = [1, 3]
    assert net.run_forward() == pytest.approx((1 + 9) / 4)


def test_centres_move_to_the_mean_of_their_samples() -> None:
    """By the sum of (centre - x) over the batch's samples of a class, divided by 1 + how many."""
    case = Case(
        "center",
        "CenterLoss",
        "center_loss_param { num_output: 3 axis: 1 center_filler { value: 0.5 } }",
        shapes=((4, 2), (4,)),
        fill=("normal", "labels 3"),
        weights=1,
        weight_fill=("positive",),
    )
    trial = Trial(case, NumPyBackend(dtype=np.float64))
    x, labels = case.values()[0], np.array([0, 2, 2, 2])
    (centres,) = trial.weights
    (loss,) = trial.forward([x, labels])
    assert loss == pytest.approx(((x - centres[labels]) ** 2).sum() / 8)
    dx, dc = trial.backward([np.ones(())])
    np.testing.assert_allclose(dx, (x - centres[labels]) / 4)
    np.testing.assert_allclose(dc[0], (centres[0] - x[0]) / 2)
    np.testing.assert_allclose(dc[1], 0)
    np.testing.assert_allclose(dc[2], (3 * centres[2] - x[1:].sum(axis=0)) / 4)


def flownet(a: Array, b: Array, places: bool, mean: bool, entries: bool, plateau: float) -> float:
    """L1Loss with loops over places and channels."""
    total, counted = 0.0, 0
    for n, h, w in np.ndindex(a.shape[0], *a.shape[2:]):
        gaps = [float(d) for d in a[n, :, h, w] - b[n, :, h, w]]
        counted += sum(not np.isnan(d) for d in gaps)
        gaps = [0.0 if np.isnan(d) else d for d in gaps]
        if places:
            squares = sum(d * d for d in gaps) / (len(gaps) if mean else 1)
            total += (squares * (squares >= plateau**2) + 0.01) ** 0.5
        else:
            total += sum(abs(d) for d in gaps if abs(d) >= plateau)
    return total / (counted / a.shape[1] if entries else len(a))


@pytest.mark.parametrize("plateau", [0.0, 0.8])
@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize(("places", "mean"), [(False, False), (True, False), (True, True)])
def test_l1_loss_is_what_flownet_defines(
    places: bool, mean: bool, entries: bool, plateau: float
) -> None:
    params = (
        f"l1_loss_param {{ l2_per_location: {str(places).lower()} "
        f"l2_prescale_by_channels: {str(mean).lower()} epsilon: 0.01 "
        f"normalize_by_num_entries: {str(entries).lower()} plateau: {plateau} }}"
    )
    case = Case("l1", "L1Loss", params, shapes=((2, 3, 4, 5),) * 2)
    a, b = case.values()
    b[0, 1, 2, 3] = b[1, :, 0, 0] = np.nan  # where nothing is known
    loss, (da, _) = run(case, a, b)
    assert loss == pytest.approx(flownet(a, b, places, mean, entries, plateau))
    assert np.isfinite(da).all() and not da[1, :, 0, 0].any()


def yolo_energy(x: Array, objects: Array, anchors: Array, match: bool) -> float:
    """What RegionLoss goes down along, with loops: a box, its object, and all that is none."""
    num, (height, width), anchor_count = x.shape[0], x.shape[2:], len(anchors)
    x = x.reshape(num, anchor_count, -1, height, width)

    def sig(v: float) -> float:
        return 1 / (1 + np.exp(-v))

    def overlap(a: list[float], b: list[float]) -> float:
        sides = [
            min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2)
            - max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2)
            for i in (0, 1)
        ]
        common = max(sides[0], 0) * max(sides[1], 0)
        return common / (a[2] * a[3] + b[2] * b[3] - common)

    def box(v: Array, a: Array, i: int, j: int) -> list[float]:
        sizes = np.exp(v[2:4]) * a / (width, height)
        return [(j + sig(v[0])) / width, (i + sig(v[1])) / height, *sizes]

    energy = 0.0
    for n in range(num):
        rows = [row for row in objects[n] if row[3] > 0]
        taken: dict[tuple[int, int, int], Any] = {}
        for row in rows:
            i, j = int(row[2] * height), int(row[1] * width)
            sizes = [
                a / (width, height) * (1 if match else np.exp(x[n, k, 2:4, i, j]))
                for k, a in enumerate(anchors)
            ]
            fits = [overlap([0, 0, *s], [0, 0, *row[3:]]) for s in sizes]
            taken[int(np.argmax(fits)), i, j] = row
        for k, i, j in np.ndindex(anchor_count, height, width):
            v = x[n, k, :, i, j]
            if (k, i, j) in taken:
                label, cx, cy, w, h = taken[k, i, j]
                energy += 2 / 2 * ((sig(v[0]) - cx * width + j) ** 2)
                energy += 2 / 2 * ((sig(v[1]) - cy * height + i) ** 2)
                energy += 2 / 2 * ((v[2] - np.log(w * width / anchors[k][0])) ** 2)
                energy += 2 / 2 * ((v[3] - np.log(h * height / anchors[k][1])) ** 2)
                energy += 5 / 2 * (1 - sig(v[4])) ** 2
                energy -= 3 * np.log(np.exp(v[5 + int(label)]) / np.exp(v[5:]).sum())
            elif max([0, *(overlap(box(v, anchors[k], i, j), list(r[1:])) for r in rows)]) <= 0.3:
                energy += 0.5 / 2 * sig(v[4]) ** 2
    return energy / num


@pytest.mark.parametrize("match", [True, False])
def test_region_loss_is_what_yolo_defines(match: bool) -> None:
    anchors = np.array([[0.8, 1.1], [2, 1.5]])
    params = (
        "region_loss_param { num_class: 2 coords: 4 num: 2 biases: 0.8 biases: 1.1 biases: 2 "
        "biases: 1.5 thresh: 0.3 object_scale: 5 noobject_scale: 0.5 class_scale: 3 "
        f"coord_scale: 2 bias_match: {int(match)} }}"
    )
    case = Case(
        "region", "RegionLoss", params, shapes=((2, 14, 3, 4), (2, 4, 5)), gradients=(0,),
        phase="TEST",
    )  # fmt: skip
    objects = np.zeros((2, 4, 5))
    objects[0, 0], objects[0, 1] = [1, 0.3, 0.4, 0.2, 0.3], [0, 0.7, 0.6, 0.5, 0.3]
    objects[1, 0] = objects[1, 1] = [0, 0.1, 0.9, 0.3, 0.6]
    objects[1, 1, 0] = 1  # the later one of two in the same place is learned
    x = case.values()[0]
    loss, (gradient,) = run(case, x, objects)
    assert loss == pytest.approx(2 * (gradient**2).sum())  # num times: deltas are not divided
    want = np.empty_like(x)
    for place in np.ndindex(*x.shape):
        ends = []
        for step in (1e-6, -1e-6):
            moved = x.copy()
            moved[place] += step
            ends.append(yolo_energy(moved, objects, anchors, match))
        want[place] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(gradient, want, rtol=1e-5, atol=1e-7)


def test_all_boxes_are_drawn_to_their_anchors_at_first() -> None:
    params = "region_loss_param { num_class: 2 num: 1 biases: 1 biases: 2 }"
    case = Case("region", "RegionLoss", params, shapes=((2, 7, 3, 4), (2, 1, 5)), gradients=(0,))
    x, nothing = case.values()[0], np.zeros((2, 1, 5))
    trial = Trial(case, NumPyBackend(dtype=np.float64))
    for step, drawn in ((0, True), (6399, True), (6400, False)):
        trial.net.context.step = step
        trial.forward([x, nothing])
        (dx,) = trial.backward([np.ones(())])
        assert dx[:, :4].any() == drawn
        if drawn:
            np.testing.assert_allclose(dx[:, 2:4], 0.01 * x[:, 2:4] / 2, rtol=1e-6)
