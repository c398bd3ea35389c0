"""Caffe's own runs: every solver type and setting ends at Caffe's weights, also when resumed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe

GOLDEN = Path(__file__).parents[1] / "golden" / "solver"
CASES = sorted(folder.name for folder in GOLDEN.iterdir())


@pytest.fixture(params=CASES)
def case(request: Any, tmp_path: Path, monkeypatch: Any) -> Any:
    shutil.copytree(GOLDEN / request.param, tmp_path / "case")
    monkeypatch.chdir(tmp_path / "case")
    return np.load("final.npz")


def at_final_weights(solver: Any, final: Any) -> None:
    for name, blobs in solver.net.params.items():
        for i, blob in enumerate(blobs):
            np.testing.assert_allclose(
                blob.data, final[f"{name}_{i}"], rtol=2e-3, atol=2e-4, err_msg=f"{name}_{i}"
            )


def test_there_are_cases() -> None:
    assert len(CASES) == 11


def test_training_and_resuming(case: Any) -> None:
    solver = caffe.get_solver("solver.prototxt")
    solver.net.copy_from("init.caffemodel")
    losses = []
    for _ in range(int(case["iters"])):
        solver.step(1)
        losses.append(float(solver.net.blobs["loss"].data))
    np.testing.assert_allclose(losses, case["losses"], rtol=2e-3, atol=2e-4)
    at_final_weights(solver, case)
    solver.close()
    half = int(case["half"])
    states = sorted(Path().glob(f"*_iter_{half}.solverstate*"))
    assert states
    for state in states:
        resumed = caffe.get_solver("solver.prototxt")
        resumed.restore(str(state))
        assert resumed.iter == half
        resumed.step(int(case["iters"]) - half)
        at_final_weights(resumed, case)
        resumed.close()
