"""fire_train on the emulated device: its log, snapshots that any device goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import choice
from pycaffe_fire.cli import fire_train
from pycaffe_fire.schema import read_weights
from tests.cli.runs import make_run


@pytest.fixture
def run(cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    choice._gpu_backend.cache_clear()
    make_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    choice._gpu_backend.cache_clear()


def train(*arguments: str) -> None:
    assert fire_train.main(["--solver", "solver.prototxt", *arguments]) == 0


def weights(path: str) -> list[Any]:
    return [blob for layer in read_weights(path) for blob in layer.blobs]


def test_trains_logs_and_saves(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("--weights", "init.caffemodel", "--gpu", "1")
    log = capsys.readouterr().err
    assert "Use cuda, device 1: Emulated device." in log
    assert "Device memory: " in log and "will not fit" not in log
    assert "Iteration 15 " in log and "Train net output #0" in log
    got = weights("snap_iter_20.caffemodel")
    train("--weights", "init.caffemodel")
    for mine, theirs in zip(got, weights("snap_iter_20.caffemodel"), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)


def test_the_cpu_goes_on_where_the_gpu_stopped(run: Path) -> None:
    (run / "solver.prototxt").open("a").write("\nsnapshot: 10")
    train("--weights", "init.caffemodel", "--gpu", "0")
    whole = weights("snap_iter_20.caffemodel")
    for gpu in ([], ["--gpu", "0"]):
        train("--snapshot", "snap_iter_10.solverstate", *gpu)
        for mine, theirs in zip(whole, weights("snap_iter_20.caffemodel"), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)


def test_debug_info(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "solver.prototxt").open("a").write("\ndebug_info: true")
    train("--gpu", "0", "--iterations", "2")
    log = capsys.readouterr().err
    assert "[Forward] Layer " in log and "[Backward] Layer " in log and "[Update] Layer " in log


def test_blobs_in_16_bits(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The net does not say how it is stored, so the switch does; weights stay near float32's."""
    train("--weights", "init.caffemodel", "--gpu", "0", "--iterations", "5")
    want = weights("snap_iter_5.caffemodel")
    train("--weights", "init.caffemodel", "--gpu", "0", "--iterations", "5",
          "--precision", "float16")  # fmt: skip
    assert "blobs in float16" in capsys.readouterr().err
    got = weights("snap_iter_5.caffemodel")
    assert any(not np.array_equal(mine, theirs) for mine, theirs in zip(got, want, strict=True))
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0.05, atol=2e-3)


def test_16_bits_need_a_gpu(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--solver", "solver.prototxt", "--precision", "float16"]
    assert fire_train.main(command) == 1
    assert "--precision float16 needs a GPU" in capsys.readouterr().err
