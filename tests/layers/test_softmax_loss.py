"""SoftmaxWithLoss with smoothed labels, against its definition written out."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_fire.backend.numpy import NumPyBackend
from tests.layers.case import Case, Trial

IGNORED = 2


@pytest.mark.parametrize(
    ("mode", "divisor"), [("FULL", 12), ("VALID", 9), ("BATCH_SIZE", 2), ("NONE", 1)]
)
def test_smoothed_labels_of_pixels(mode: str, divisor: int) -> None:
    smoothing, classes = 0.25, 5
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(2, classes, 2, 3))
    labels = np.array([[[0, 1, IGNORED], [3, 4, 0]], [[IGNORED, 1, 1], [4, IGNORED, 3]]])
    loss, gradient = 0.0, np.zeros_like(scores)
    for n, h, w in np.ndindex(labels.shape):
        if labels[n, h, w] == IGNORED:
            continue
        wanted = np.full(classes, smoothing / classes)
        wanted[labels[n, h, w]] += 1 - smoothing
        x = scores[n, :, h, w]
        loss -= (wanted * (x - np.log(np.exp(x).sum()))).sum() / divisor
        gradient[n, :, h, w] = (np.exp(x) / np.exp(x).sum() - wanted) / divisor
    params = (
        f"loss_param {{ ignore_label: {IGNORED} normalization: {mode} "
        f"label_smoothing: {smoothing} }}"
    )
    shapes = ((2, classes, 2, 3), (2, 1, 2, 3))
    case = Case("smoothed", "SoftmaxWithLoss", params, shapes=shapes, gradients=(0,))
    trial = Trial(case, NumPyBackend(dtype=np.float64))
    (got,) = trial.forward((scores, labels.reshape(shapes[1])))
    assert float(got) == pytest.approx(loss, rel=1e-9)
    np.testing.assert_allclose(trial.backward([np.ones(())])[0], gradient, atol=1e-12)


def test_a_sure_prediction_costs_more_with_smoothing() -> None:
    """The smallest smoothed loss is the entropy of the smoothed label, not 0."""
    scores, labels = np.array([[60.0, 0, 0]]), np.zeros(1)
    losses = []
    for smoothing in (0, 0.1):
        params = f"loss_param {{ label_smoothing: {smoothing} }}"
        case = Case("sure", "SoftmaxWithLoss", params, shapes=((1, 3), (1,)), gradients=(0,))
        (got,) = Trial(case, NumPyBackend(dtype=np.float64)).forward((scores, labels))
        losses.append(float(got))
    assert losses == pytest.approx([0, 0.1 * 2 / 3 * 60], abs=1e-6)
