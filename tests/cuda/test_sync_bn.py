"""Statistics of the whole batch where leaves and ranks compute on the emulated device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import SolverError
from pycaffe_fire.parallel.launch import find_mpiexec
from tests.cuda.cuda_nets import images_layer, solver_of, train, write_images
from tests.parallel.ranks import PATIENT, ROOT
from tests.parallel.test_jobs import run_here, write


def normalised(folder: Path, settings: str) -> Any:
    source = write_images(folder, (3, 6, 6), 4)
    text = images_layer(source, 8) + (
        'layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { '
        'num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }\n'
        'layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" '
        f"batch_norm_param {{ {settings} }} }}\n"
        'layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }\n'
        'layer { name: "scores" type: "InnerProduct" bottom: "conv" top: "scores" '
        'inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }\n'
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "label" '
        'top: "loss" }\n'
    )
    return schema.parse_text(text, schema.NetParameter())


@pytest.mark.parametrize("settings", ["", "scale_bias: true"], ids=["plain", "own scale"])
@pytest.mark.parametrize("leaves", [1, 2, 4])
def test_statistics_are_those_of_the_whole_batch(
    cuda: Any, tmp_path: Path, settings: str, leaves: int
) -> None:
    whole = train(normalised(tmp_path, settings), NumPyBackend(), 3)
    synced = normalised(tmp_path, settings + " sync: true")
    found = train(synced, cuda, 3, leaves=leaves)
    for name, values in whole.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-3, atol=1e-5, err_msg=name)


def test_blobs_in_16_bits(cuda: Any, tmp_path: Path) -> None:
    """A leaf is in the middle of a layer while others run: what it views stays its own."""
    narrow = type(cuda)(precision="float16")
    synced = normalised(tmp_path, "scale_bias: true sync: true")
    whole, found = train(synced, narrow, 3), train(synced, narrow, 3, leaves=4)
    for name, values in whole.items():
        np.testing.assert_allclose(found[name], values, rtol=0.02, atol=2e-3, err_msg=name)


def test_a_leaf_that_fails_keeps_none_waiting(
    cuda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = normalised(tmp_path, "sync: true")
    net.layer[1].convolution_param.num_output = 2
    solver = solver_of(net, cuda, leaves=4)
    convolution = solver.leaves.nets[2].layers[1]
    forward = convolution.forward

    def fail(*blobs: Any) -> None:
        forward(*blobs)
        raise SolverError("the third leaf fails")

    monkeypatch.setattr(convolution, "forward", fail)
    with pytest.raises(SolverError, match="the third leaf fails"):
        solver.step(1)
    solver.close()


def test_ranks_do_not_change_bits(cuda: Any, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="several ranks need mpi4py")
    write(tmp_path, 3)
    flags = ("--gpu", "all", "--leaves", "4", "--sync-bn")
    run_here(tmp_path, *flags)
    alone = (tmp_path / "snap_iter_3.caffemodel").read_bytes()
    done = subprocess.run(
        [find_mpiexec(), "-n", "2", sys.executable, "-m", "tests.parallel.gpu_rank",
         "--solver", "solver.prototxt", *flags],
        cwd=tmp_path, capture_output=True, text=True, timeout=200,
        env={**os.environ, **PATIENT, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "2 ranks" in done.stderr
    assert (tmp_path / "snap_iter_3.caffemodel").read_bytes() == alone
