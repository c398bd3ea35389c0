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
