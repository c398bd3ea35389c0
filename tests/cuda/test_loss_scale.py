"""Loss scaling for gradients in 16 bits: what vanished survives, what overflows is skipped."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import SolverError
from tests.cuda.cuda_nets import SOLVER, inception, solver_of, train
from tests.cuda.test_storage import ROUNDING, distance, stored_as

SMALL = """
layer { name: "in" type: "DummyData" top: "in" top: "want" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 }
  data_filler { type: "uniform" } data_filler { value: 1 } } }
layer { name: "a" type: "InnerProduct" bottom: "in" top: "a"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "b" bottom: "want" top: "loss"
  loss_weight: WEIGHT }
"""


def small(weight: float, settings: str = "") -> Any:
    text = f"{settings}\n{SMALL.replace('WEIGHT', str(weight))}"
    return stored_as(schema.parse_text(text, schema.NetParameter()), "float16")


def first_weights(solver: Any) -> Any:
    return np.array(solver.net.params["a"][0].data)


def test_small_gradients_survive(cuda: Any) -> None:
    found: dict[str, Any] = {}
    for name, backend, settings in (
        ("float32", NumPyBackend(), ""),
        ("vanished", cuda, ""),
        ("scaled", cuda, "global_grad_scale: 65536"),
    ):
        solver = solver_of(small(1e-8, settings), backend)
        solver.compute_gradients(False)
        gradients = solver.leaves.gradients
        found[name] = gradients.get() if backend is cuda else gradients
        solver.close()
    assert np.abs(found["float32"]).max() > 0
    assert not found["vanished"].any()
    assert distance(found["scaled"], found["float32"]) <= 4 * ROUNDING["float16"]


def test_a_static_scale_changes_nothing_else(cuda: Any, tmp_path: Path) -> None:
    want = train(inception(tmp_path), NumPyBackend(), 3)
    net = stored_as(inception(tmp_path), "float16")
    net.global_grad_scale = 512
    got = train(net, cuda, 3)
    for name, values in want.items():
        assert distance(got[name], values) <= 16 * ROUNDING["float16"], name


def test_an_overflow_is_skipped_and_the_scale_halved(cuda: Any, cupy: Any) -> None:
    adaptive = "global_grad_scale: 4194304 global_grad_scale_adaptive: true"
    solver = solver_of(small(1.0, adaptive), cuda)
    before = first_weights(solver)
    cupy.cuda.waits.clear()
    solver.step(1)
    assert not cupy.cuda.waits
    np.testing.assert_array_equal(first_weights(solver), before)
    assert not solver.history[0].get().any()  # weight decay was skipped as well
    assert solver.loss_scale.state() == [2.0**21, 0, 1]
    solver.loss_scale.patience = 3
    for _ in range(12):
        solver.step(1)
        scale, good, skipped = solver.loss_scale.state()
        assert np.isfinite(first_weights(solver)).all()
    assert skipped > 2 and good < 3
    assert not np.array_equal(first_weights(solver), before)
    solver.close()


def test_the_scale_grows_again(cuda: Any) -> None:
    solver = solver_of(small(1.0, "global_grad_scale: 8 global_grad_scale_adaptive: true"), cuda)
    solver.loss_scale.patience = 2
    solver.step(5)
    assert solver.loss_scale.state() == [32.0, 1, 0]
    solver.close()


def test_an_adaptive_run_learns_as_float32_does(cuda: Any) -> None:
    solvers = [
        solver_of(small(1.0), NumPyBackend()),
        solver_of(small(1.0, "global_grad_scale: 8 global_grad_scale_adaptive: true"), cuda),
    ]
    for solver in solvers:
        solver.step(6)
    want, got = (first_weights(solver) for solver in solvers)
    assert distance(got, want) <= 4 * ROUNDING["float16"]


def test_what_no_scale_can_help_is_passed_on(cuda: Any) -> None:
    """At a scale of 1 infinite gradients are an error of the run, as without scaling."""
    solver = solver_of(
        small(1e6, "global_grad_scale: 1 global_grad_scale_adaptive: true"), cuda,
        SOLVER.replace("display: 0", "display: 1"),
    )  # fmt: skip
    with pytest.raises(SolverError, match="gradients are not finite"):
        solver.step(1)
    solver.close()


def test_snapshots_take_the_scale_along(
    cuda: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pycaffe_fire")
    adaptive = "global_grad_scale: 4194304 global_grad_scale_adaptive: true"
    settings = f'{SOLVER} snapshot_prefix: "{tmp_path}/snap"'.replace("display: 0", "display: 1")
    solver = solver_of(small(1.0, adaptive), cuda, settings)
    solver.step(2)
    assert "Loss scale 1.04858e+06, 2 updates skipped so far" in caplog.text
    solver.snapshot()
    state = solver.loss_scale.state()
    other = solver_of(small(1.0, adaptive), cuda, settings)
    other.restore(f"{tmp_path}/snap_iter_2.solverstate")
    assert other.loss_scale.state() == state == [2.0**20, 0, 2]
    for each in (solver, other):
        each.step(8)
    np.testing.assert_array_equal(first_weights(other), first_weights(solver))
    for each in (solver, other):
        each.close()


def test_a_scale_below_zero_is_refused(cuda: Any) -> None:
    with pytest.raises(SolverError, match="global_grad_scale must be above 0, got -2"):
        solver_of(small(1.0, "global_grad_scale: -2"), cuda)


def test_float32_needs_no_scale() -> None:
    solver = solver_of(small(1.0, "global_grad_scale: 65536"), NumPyBackend())
    assert solver.loss_scale is None
    solver.close()
