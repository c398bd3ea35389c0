"""Whole nets trained on the emulated device: the CPU's losses and weights, and no waiting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import LayerError
from pycaffe_fire.pycaffe import solvers as solver_module
from tests.cuda.cuda_emulator import Module
from tests.cuda.cuda_nets import inception, lenet, solver_of, train
from tests.solver.test_solver_golden import case as case
from tests.solver.test_solver_golden import test_training_and_resuming as test_caffes_own_runs

__all__ = ["case", "test_caffes_own_runs"]


@pytest.fixture(autouse=True)
def _solvers_use_the_device(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the tests of Caffe's own runs, which this module has taken over."""
    monkeypatch.setattr(solver_module, "default_backend", lambda: cuda)


@pytest.mark.parametrize("order", [0, 1, 2], ids=["forward", "reverse", "shuffled"])
@pytest.mark.parametrize("make", [lenet, inception])
def test_ends_where_the_cpu_ends(
    make: Callable[[Path], Any], order: int, cuda: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    net = make(tmp_path)
    want = train(net, NumPyBackend(), 3)
    monkeypatch.setattr(Module, "order", order)
    got = train(net, cuda, 3)
    assert got.keys() == want.keys()
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-3, atol=1e-5, err_msg=name)


def test_thread_order_changes_no_bit(
    cuda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = inception(tmp_path)
    found = []
    for order in (0, 1, 2):
        monkeypatch.setattr(Module, "order", order)
        found.append(train(net, cuda, 3))
    for other in found[1:]:
        assert all(np.array_equal(found[0][name], other[name]) for name in found[0])


def test_leaves(cuda: Any, tmp_path: Path) -> None:
    net = inception(tmp_path)
    want = train(net, NumPyBackend(), 3, leaves=2)
    got = train(net, cuda, 3, leaves=2)
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("make", [lenet, inception])
def test_a_training_loop_waits_for_copies_only(
    make: Callable[[Path], Any], cuda: Any, cupy: Any, tmp_path: Path
) -> None:
    """One wait per iteration: before the loader refills a batch whose copy may not have left."""
    solver = solver_of(make(tmp_path), cuda)
    solver.step(2)
    cupy.cuda.waits.clear()
    solver.step(5)
    places = {wait.rpartition("/")[2].partition(":")[0] for wait in cupy.cuda.waits}
    assert places == {"uploads.py"}
    assert len(cupy.cuda.waits) == 5
    solver.close()


def test_a_shown_loss_is_read_once(cuda: Any, cupy: Any, tmp_path: Path) -> None:
    events: list[Any] = []
    solver = solver_of(inception(tmp_path), cuda, observers=[events.append])
    solver.step(3)
    cupy.cuda.waits.clear()
    texts = [f"{event.loss:.6g}" for event in events] + [f"{event.loss:g}" for event in events]
    assert len(cupy.cuda.waits) == 4  # one of them for the checks of labels
    assert texts[:3] == texts[3:] and all(float(text) > 0 for text in texts)
    solver.close()


def test_bad_labels_are_reported_when_somebody_looks(cuda: Any, tmp_path: Path) -> None:
    solver = solver_of(inception(tmp_path, classes=90), cuda)
    solver.step(2)
    with pytest.raises(LayerError, match=r'label \d+ of sample \d in blob "label" is not a class'):
        solver.net.blobs["loss"].data  # noqa: B018
    solver.close()
