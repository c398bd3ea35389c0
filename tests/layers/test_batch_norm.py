"""BatchNorm's bookkeeping, which later phases and files depend on, over several passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.numpy import NumPyBackend
from tests.layers.case import Array, Case, Trial

TRAIN = Case(
    "train",
    "BatchNorm",
    "batch_norm_param { moving_average_fraction: 0.9 eps: 0.01 }",
    shapes=((4, 3, 2, 5),),
    learned=(),
)
TEST = replace(TRAIN, phase="TEST")


def started(case: Case) -> Trial:
    """A trial whose statistics are as a new layer has them."""
    trial = Trial(case, NumPyBackend(dtype=np.float64))
    trial.weights = [np.zeros(3), np.zeros(3), np.zeros(1)]
    return trial


def test_statistics_are_fading_sums() -> None:
    trial = started(TRAIN)
    means = variances = weight = 0.0
    for seed in range(3):
        (x,) = TRAIN.values(seed)
        trial.forward([x])
        means = 0.9 * means + x.mean((0, 2, 3))
        variances = 0.9 * variances + x.var((0, 2, 3), ddof=1)
        weight = 0.9 * weight + 1
    for got, want in zip(trial.weights, (means, variances, weight), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_test_phase_divides_the_sums_by_their_weight() -> None:
    learner, user = started(TRAIN), started(TEST)
    for seed in range(3):
        learner.forward(TRAIN.values(seed))
    sums = user.weights = learner.weights
    (x,) = TEST.values(7)
    (y,) = user.forward([x])
    mean, variance = (s.reshape(1, 3, 1, 1) / sums[2] for s in sums[:2])
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(variance + 0.01), rtol=1e-6)
    assert all(np.array_equal(a, b) for a, b in zip(user.weights, sums, strict=True))


def test_untrained_statistics_count_as_zero() -> None:
    (x,) = TEST.values()
    np.testing.assert_allclose(started(TEST).forward([x])[0], x / np.sqrt(0.01), rtol=1e-6)


def test_a_single_value_has_no_unbiased_variance() -> None:
    case = replace(TRAIN, shapes=((1, 3, 1, 1),))
    trial = started(case)
    (y,) = trial.forward(case.values())
    assert not y.any()
    np.testing.assert_array_equal(trial.weights[1], np.zeros(3))


def test_statistics_do_not_learn() -> None:
    trial = Trial(TRAIN, NumPyBackend())
    assert [p.lr_mult for p in trial.net.parameters.items] == [0, 0, 0]
    assert [spec.lr_mult for spec in trial.net.to_proto().layer[-1].param] == [0, 0, 0]


@pytest.mark.parametrize(
    ("params", "rates"),
    [
        ("", [1, 1, 0, 0]),
        ("param { lr_mult: 2 }", [2, 1, 0, 0]),
        ("bn_param { frozen: true } param { lr_mult: 2 }", [0, 0, 0, 0]),
        ("bn_param { bn_mode: LEARN } param { lr_mult: 2 }", [2, 1]),
    ],
)
def test_rates_of_bn(params: str, rates: list[float]) -> None:
    trial = Trial(Case("bn", "BN", params), NumPyBackend())
    assert [p.lr_mult for p in trial.net.parameters.items] == rates


def test_bn_averages_move_by_one_minus_momentum() -> None:
    case = Case("bn", "BN", "bn_param { momentum: 0.75 }", shapes=((4, 3, 2, 5),))
    trial = Trial(case, NumPyBackend(dtype=np.float64))
    before = trial.weights
    (x,) = case.values()
    trial.forward([x])
    mean, variance = (w.reshape(-1) for w in trial.weights[2:])
    np.testing.assert_allclose(mean, 0.75 * before[2][0] + 0.25 * x.mean((0, 2, 3)))
    np.testing.assert_allclose(variance, 0.75 * before[3][0] + 0.25 * x.var((0, 2, 3)))


@pytest.mark.parametrize("phase", [schema.TRAIN, schema.TEST])
def test_behind_it_layers_may_run_in_place(phase: int) -> None:
    """The usual trio: BatchNorm, then Scale and ReLU in place on its top."""
    text = """
      force_backward: true
      layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 4 dim: 3 dim: 5 } } }
      layer { name: "bn" type: "BatchNorm" bottom: "in" top: "%s" }
      layer { name: "scale" type: "Scale" bottom: "%s" top: "%s"
              scale_param { bias_term: true filler { value: 2 } bias_filler { value: 0.3 } } }
      layer { name: "relu" type: "ReLU" bottom: "%s" top: "%s" }
    """
    results = []
    apart, together, everything = ("a", "a", "b", "b", "c"), ("a",) * 5, ("in",) * 5
    for names in (apart, together, everything):
        for backend in (NumPyBackend(dtype=np.float64), cpu_backend(1)):
            param = schema.parse_text(text % names, schema.NetParameter())
            results.append(_all_results(Net(param, phase, backend=backend), names[-1]))
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def _all_results(net: Net, top: str) -> list[Array]:
    rng = np.random.default_rng(0)
    for blob, value in zip(net.params["bn"], (0.5, 2.0, 1.5), strict=True):
        blob.data[...] = value
    net.blobs["in"].data[...] = rng.normal(size=net.blobs["in"].shape)
    net.run_forward()
    found = [np.array(net.blobs[top].data)] + [np.array(b.data) for b in net.params["bn"]]
    net.blobs[top].diff[...] = rng.normal(size=net.blobs["in"].shape)
    net.run_backward()
    return found + [np.array(b.diff) for b in (net.blobs["in"], *net.params["scale"])]
