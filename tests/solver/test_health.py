"""NaN and infinity in a run: who is named, and what stop, skip and rollback leave behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver import Solver, SolverOptions
from pycaffe_fire.solver.events import NotFinite
from pycaffe_fire.solver.health import MOST_SKIPS
from tests.solver.solver_cases import SGD, body, rows_layer, same_bits, weights

PACKAGE = Path(__file__).parents[2]
NORM = 'layer { name: "bn" type: "BatchNorm" bottom: "pool" top: "pool" }\n'
ROOT = (
    'layer { name: "root" type: "Power" bottom: "pool" top: "root" power_param { power: 0.5 } }\n'
)
# What NumPy has to say about NaN on the threads of leaves, where no errstate reaches.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
BACKENDS = [cpu_backend, NumPyBackend]


def write_data(folder: Path, bad: dict[int, float] | None = None) -> str:
    """24 images, some with one bad value; batches of 8 are iterations 0, 1, 2, 0, ..."""
    rng = np.random.default_rng(3)
    data = rng.normal(size=(24, 2, 7, 7)).astype(np.float32)
    for row, value in (bad or {}).items():
        data[row, 0, 3, 3] = value
    with h5py.File(folder / "rows.h5", "w") as out:
        out["data"] = data
        out["label"] = rng.integers(0, 4, 24).astype(np.float32)
    (folder / "rows.txt").write_text(f"{folder / 'rows.h5'}\n")
    return str(folder / "rows.txt")


def make(net: str, backend: Any, on_nan: str, settings: str = "", **options: Any) -> Solver:
    param = schema.parse_text(SGD + settings, schema.SolverParameter())
    param.net_param.CopyFrom(schema.parse_text(net, schema.NetParameter()))
    return Solver(param, SolverOptions(backend(2), param.random_seed, on_nan=on_nan, **options))


@pytest.fixture(params=BACKENDS, ids=["cpu", "numpy"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("leaves", [1, 4])
@pytest.mark.parametrize("iter_size", [1, 2])
def test_stop_names_the_layer_and_leaves_the_weights_alone(
    tmp_path: Path, backend: Any, leaves: int, iter_size: int
) -> None:
    net = rows_layer(write_data(tmp_path, {17: np.nan}), 8 // iter_size) + body()
    solver = make(net, backend, "stop", f"iter_size: {iter_size}", leaves=leaves)
    solver.step(2)
    before = weights(solver)
    with pytest.raises(SolverError) as told:
        solver.step(1)
    # Only on some backends the loss: oneDNN's ReLU loses the NaN on its way up.
    where = 'first seen in layer "data" (HDF5Data), top blob "data"'
    bad = "(gradients are not finite|the loss is nan)"
    assert re.match(f"iteration 2: {bad}, {re.escape(where)}", str(told.value))
    if leaves > 1:
        assert ", leaf 0" in str(told.value) or ", leaf 1" in str(told.value)
    assert same_bits(weights(solver), before)
    solver.close()


def test_a_layer_in_the_middle_is_named(tmp_path: Path, backend: Any) -> None:
    between = ROOT.replace("power: 0.5", "power: 0.5 shift: -1")
    net = rows_layer(write_data(tmp_path), 8) + body(between).replace(
        'bottom: "pool" top: "ip"', 'bottom: "root" top: "ip"'
    )
    with pytest.raises(SolverError, match='"root" .Power., top blob'):
        make(net, backend, "stop").step(1)


def test_a_gradient_may_be_bad_where_the_loss_is_not(tmp_path: Path, backend: Any) -> None:
    """The square root of 0 has an infinite slope; ReLU and pooling let some 0 through."""
    net = rows_layer(write_data(tmp_path), 8) + body(ROOT).replace(
        'bottom: "pool" top: "ip"', 'bottom: "root" top: "ip"'
    )
    net = net.replace('bottom: "data" top: "conv"', 'bottom: "data" top: "conv" propagate_down: 0')
    solver = make(net, backend, "stop")
    solver.net.params["conv"][1].data[...] = -2
    message = 'gradients are not finite, first seen in layer "root" .Power., gradient of bottom'
    with pytest.raises(SolverError, match=message):
        solver.step(1)


@pytest.mark.parametrize("leaves", [1, 4])
def test_skip_is_as_if_the_iteration_had_not_been(
    tmp_path: Path, backend: Any, leaves: int
) -> None:
    seen: list[Any] = []
    net = rows_layer(write_data(tmp_path, {9: np.inf}), 8) + body(NORM)
    solver = make(net, backend, "skip", "average_loss: 3", leaves=leaves, observers=[seen.append])
    solver.step(1)
    before, history = weights(solver), [np.array(slot) for slot in solver.history]
    solver.step(1)
    assert solver.iter == 2
    assert same_bits(weights(solver), before)
    assert all((a == b).all() for a, b in zip(history, solver.history, strict=True))
    solver.step(4)
    found = [event for event in seen if isinstance(event, NotFinite)]
    assert [event.iteration for event in found] == [1, 4]
    assert 'layer "data"' in found[0].what and "skipped" in found[0].done
    assert all(np.isfinite(w).all() for w in weights(solver).values())
    assert not same_bits(weights(solver), before)
    solver.close()


def test_skipping_gives_up(tmp_path: Path) -> None:
    everywhere = dict.fromkeys(range(24), float("nan"))
    solver = make(rows_layer(write_data(tmp_path, everywhere), 8) + body(), cpu_backend, "skip")
    with pytest.raises(SolverError, match=f"{MOST_SKIPS} iterations in a row"):
        solver.step(100)
    assert solver.iter == MOST_SKIPS - 1


def fail_once(solver: Solver, iteration: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of one iteration is NaN, the first time."""
    failed: list[int] = []
    real = solver.leaves.run

    def run(at: int, collect: bool = False) -> Any:
        loss, outputs = real(at, collect)
        if at == iteration and not failed:
            failed.append(at)
            return float("nan"), outputs
        return loss, outputs

    monkeypatch.setattr(solver.leaves, "run", run)


@pytest.mark.parametrize("leaves", [1, 4])
def test_rollback_goes_on_from_the_snapshot_with_half_the_rate(
    tmp_path: Path, backend: Any, leaves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = rows_layer(write_data(tmp_path), 8) + body(NORM)
    settings = f'max_iter: 8 snapshot: 3 snapshot_prefix: "{tmp_path}/run"'
    seen: list[Any] = []
    solver = make(net, backend, "rollback", settings, leaves=leaves, observers=[seen.append])
    fail_once(solver, 5, monkeypatch)
    solver.solve()
    found = [event for event in seen if isinstance(event, NotFinite)]
    assert [event.iteration for event in found] == [5]
    assert f"rolled back to {tmp_path}/run_iter_3.solverstate" in found[0].done
    assert solver.iter == 8 and solver.lr == pytest.approx(0.025)

    again = make(net, backend, "stop", settings, leaves=leaves)
    again.restore(str(tmp_path / "run_iter_3.solverstate"))
    again.health.rate = 0.5
    again.step(5)
    assert same_bits(weights(solver), weights(again))


def test_a_lowered_rate_survives_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = rows_layer(write_data(tmp_path), 8) + body()
    settings = f'max_iter: 6 snapshot: 3 snapshot_prefix: "{tmp_path}/run"'
    solver = make(net, cpu_backend, "rollback", settings)
    fail_once(solver, 4, monkeypatch)
    solver.solve()
    resumed = make(net, cpu_backend, "stop", settings)
    resumed.restore(str(tmp_path / "run_iter_6.solverstate"))
    resumed.step(1)
    assert resumed.lr == pytest.approx(0.025)


def test_rollback_gives_up_and_wants_a_snapshot(tmp_path: Path) -> None:
    net = rows_layer(write_data(tmp_path, {9: np.nan}), 8) + body()
    with pytest.raises(SolverError, match="no snapshot to roll back to: set snapshot"):
        make(net, cpu_backend, "rollback").step(3)
    settings = f'max_iter: 5 snapshot: 1 snapshot_prefix: "{tmp_path}/run"'
    solver = make(net, cpu_backend, "rollback", settings)
    with pytest.raises(SolverError, match=r"rolled back to .*run_iter_1\.solverstate 3 times"):
        solver.solve()
    assert not (tmp_path / "run_iter_2.solverstate").exists()


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_broken_weights_are_not_saved(tmp_path: Path, policy: str) -> None:
    settings = f'max_iter: 5 snapshot_prefix: "{tmp_path}/run"'
    solver = make(rows_layer(write_data(tmp_path), 8) + body(), cpu_backend, policy, settings)
    solver.step(1)
    solver.net.params["ip"][0].data[1, 1] = np.inf
    with pytest.raises(SolverError, match="iteration 1: the weights are not finite"):
        solver.snapshot()
    assert not list(tmp_path.glob("run_*"))


def test_unknown_policy(tmp_path: Path) -> None:
    with pytest.raises(SolverError, match='stop, skip, rollback, got "ignore"'):
        make(rows_layer(write_data(tmp_path), 8) + body(), cpu_backend, "ignore")


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_ranks_decide_alike_and_name_the_rank(tmp_path: Path, policy: str) -> None:
    """Row 14 belongs to the second half of iteration 1's batch, which rank 1 computes."""
    pytest.importorskip("mpi4py", reason="several ranks need mpi4py")
    (tmp_path / "net.prototxt").write_text(
        rows_layer(write_data(tmp_path, {14: np.nan}), 8) + body(NORM)
    )
    (tmp_path / "solver.prototxt").write_text(
        f'{SGD} net: "net.prototxt" max_iter: 5 snapshot_prefix: "run" solver_mode: CPU display: 1'
    )
    flags = ["--solver", "solver.prototxt", "--on-nan", policy, "--threads", "1", "-n", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "pycaffe_fire.cli.fire_train", *flags], cwd=tmp_path, timeout=240,
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "OMP_WAIT_POLICY": "passive"},
        capture_output=True, text=True,
    )  # fmt: skip
    where = 'first seen in layer "data" (HDF5Data), top blob "data", leaf 1 on rank 1'
    assert where in done.stderr
    if policy == "stop":
        assert done.returncode == 1
        assert not (tmp_path / "run_iter_5.caffemodel").exists()
        return
    assert done.returncode == 0
    alone = make((tmp_path / "net.prototxt").read_text(), cpu_backend, policy, leaves=2)
    alone.step(5)
    together = {
        f"{layer.name}_{i}": blob
        for layer in schema.read_weights(str(tmp_path / "run_iter_5.caffemodel"))
        for i, blob in enumerate(layer.blobs)
    }
    assert same_bits(weights(alone), together)
