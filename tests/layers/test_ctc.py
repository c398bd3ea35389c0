"""Connectionist temporal classification: PyTorch's numbers, all alignments by hand, decoding."""

from __future__ import annotations

from itertools import groupby, product
from pathlib import Path

import numpy as np
import pytest

from pycaffe_fire.backend.numpy import NumPyBackend
from tests.layers.case import Array, Case, Trial

REFERENCE = np.load(Path(__file__).parents[1] / "golden" / "ctc" / "torch_ctc_loss.npz")
NAMES = [key.removesuffix("_scores") for key in REFERENCE.files if key.endswith("_scores")]


def run(case: Case, *values: Array) -> tuple[float, Array]:
    """The loss times the batch, and the gradient of the scores."""
    trial = Trial(case, NumPyBackend(dtype=np.float64))
    (loss,) = trial.forward(values)
    (gradient,) = trial.backward([np.ones(())])
    num = values[0].shape[1]
    return float(loss) * num, gradient * num


def warp(scores: Array, labels: Array, blank: int) -> tuple[float, Array]:
    params = f"warp_ctc_param {{ blank_label: {blank} }}"
    shapes = (scores.shape, labels.shape)
    return run(Case("ctc", "WarpCTC", params, shapes, gradients=(0,)), scores, labels)


def full(scores: Array, labels: Array, lengths: Array, blank: int) -> tuple[float, Array]:
    """By four bottoms: scores, lengths, counts and labels (labels x batch)."""
    counts = (labels >= 0).sum(axis=1)
    case = Case(
        "ctc", "CTCLoss", f"ctc_loss_param {{ blank_index: {blank} }}",
        (scores.shape, lengths.shape, counts.shape, labels.T.shape), gradients=(0,),
    )  # fmt: skip
    return run(case, scores, lengths, counts, labels.T)


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_pytorch(name: str) -> None:
    """Losses and gradients of torch.nn.functional.ctc_loss with zero_infinity, stored."""
    scores, labels, lengths, blank, losses, want = (
        REFERENCE[f"{name}_{part}"]
        for part in ("scores", "labels", "inputs", "blank", "losses", "gradient")
    )
    loss, gradient = full(scores, labels, lengths, int(blank))
    assert loss == pytest.approx(losses.sum())
    np.testing.assert_allclose(gradient, want, atol=1e-9)
    if (lengths == len(scores)).all():
        loss, gradient = warp(scores, labels, int(blank))
        assert loss == pytest.approx(losses.sum())
        np.testing.assert_allclose(gradient, want, atol=1e-9)


def read(path: tuple[int, ...], blank: int) -> list[int]:
    """What an alignment says."""
    return [label for label, _ in groupby(path) if label != blank]


@pytest.mark.parametrize("labels", [[], [1], [1, 1], [2, 1], [1, 2, 1], [1, 1, 1]])
def test_all_alignments_by_hand(labels: list[int]) -> None:
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(4, 1, 3))
    probs = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
    total = sum(
        np.prod([probs[t, 0, c] for t, c in enumerate(path)])
        for path in product(range(3), repeat=4)
        if read(path, 0) == labels
    )
    padded = np.array([labels + [-1] * (3 - len(labels))])
    loss, gradient = warp(scores, padded, 0)
    if total == 0:  # three equal labels need two blanks between them
        assert loss == 0 and not gradient.any()
    else:
        assert loss == pytest.approx(-np.log(total))


def test_labels_in_time_and_indicators() -> None:
    rng = np.random.default_rng(4)
    scores, labels = rng.normal(size=(6, 2, 4)), np.array([[1, 2], [0, -1]])
    begins = np.ones((6, 2))
    begins[0], begins[4, 1] = 0, 0  # the second sequence is four moments long
    shapes = (scores.shape, begins.shape, (2, 2))
    case = Case("ctc", "WarpCTCLoss", "", shapes, gradients=(0,))  # the last class is the blank
    loss, gradient = run(case, scores, begins, labels.T)
    want, want_gradient = full(scores, labels, np.array([6, 4]), 3)
    assert loss == pytest.approx(want)
    np.testing.assert_allclose(gradient, want_gradient)
    assert not gradient[4:, 1].any() and gradient[4:, 0].all()


def test_repetitions_may_be_collapsed_before() -> None:
    scores = np.random.default_rng(4).normal(size=(5, 1, 3))
    text = "ctc_loss_param { preprocess_collapse_repeated: true blank_label: 0 time_step: 5 }"
    case = Case("ctc", "CtcLoss", text, (scores.shape, (1, 4)), gradients=(0,))
    loss, _ = run(case, scores, np.array([[1, 1, 2, 2]]))
    assert loss == pytest.approx(warp(scores, np.array([[1, 2]]), 0)[0])


def decoder(best: Array, params: str = "", *more: Array, tops: int = 1) -> list[Array]:
    scores = np.eye(4)[best]
    case = Case("read", "CTCGreedyDecoder", params, (scores.shape, *(m.shape for m in more)),
                tops=tops, gradients=())  # fmt: skip
    return Trial(case, NumPyBackend()).forward([scores, *more])


def test_greedy_decoding() -> None:
    best = np.array([[0, 0, 3, 0, 1], [3, 3, 2, 2, 2], [1, 3, 1, 3, 1]]).T
    (top,) = decoder(best)  # 3 is the blank
    assert top.T.tolist() == [[0, 0, 1, -1, -1], [2, -1, -1, -1, -1], [1, 1, 1, -1, -1]]
    text = "ctc_decoder_param { ctc_merge_repeated: false blank_index: 0 }"
    (top,) = decoder(best, text)
    assert top.T.tolist() == [[3, 1, -1, -1, -1], [3, 3, 2, 2, 2], [1, 3, 1, 3, 1]]
    begins = np.ones((5, 3))
    begins[0] = begins[3, 1] = 0
    (top,) = decoder(best, "", begins)
    assert top.T.tolist()[1] == [2, -1, -1, -1, -1] and top.T.tolist()[0][:3] == [0, 0, 1]


def test_accuracy_is_1_minus_the_edit_distance() -> None:
    best = np.array([[0, 3, 1, 3, 2], [0, 3, 1, 3, 2], [3, 3, 3, 3, 3]]).T
    begins = np.ones((5, 3))
    begins[0] = 0
    labels = np.array([[0, 1, 2, -1], [1, 1, 2, 0], [-1, -1, -1, -1]]).T  # the second: 2 of 4
    _, accuracy = decoder(best, "", begins, labels, tops=2)
    assert accuracy == pytest.approx(1 - (0 + 2 / 4 + 0) / 3)
