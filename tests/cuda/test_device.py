"""Choosing a device: what is there, why not, and which process takes which."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

import pycaffe_fire as caffe
from pycaffe_fire.backend import choice
from pycaffe_fire.backend.cuda.device import probe
from pycaffe_fire.cli import device_query, fire_train
from pycaffe_fire.errors import BackendError
from pycaffe_fire.pycaffe import settings
from tests.cli.runs import make_run


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    choice._gpu_backend.cache_clear()
    monkeypatch.setattr(settings, "_settings", settings.Settings())
    for name in choice.LOCAL_RANKS:
        monkeypatch.delenv(name, raising=False)
    yield
    choice._gpu_backend.cache_clear()


@pytest.fixture
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # import cupy fails


def fail(*_: Any) -> Any:
    raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")


def test_without_cupy(no_cupy: None, caplog: pytest.LogCaptureFixture) -> None:
    assert "CuPy cannot be imported" in probe().reason
    with pytest.raises(BackendError, match=r"cannot run on GPU 0: CuPy .* pip install"):
        choice.gpu_backend()
    caffe.set_mode_gpu()
    assert "computing on the CPU instead: cannot run on GPU 0" in caplog.text
    assert settings.default_backend().name != "cuda"


@pytest.mark.parametrize(
    ("devices", "reason"),
    [(fail, "no usable CUDA driver or device .*insufficient"), (lambda: 0, "but no device")],
)
def test_without_a_device(
    cupy: Any, devices: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", devices)
    with pytest.raises(BackendError, match=reason):
        choice.choose_backend("0")


def test_a_device_that_cannot_compute(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy, "arange", fail, raising=False)
    with pytest.raises(BackendError, match="a trial kernel failed on device 1"):
        choice.choose_backend("1")


def test_a_number_too_high(cupy: Any) -> None:
    with pytest.raises(BackendError, match="there is no device 7; devices: 0 to 1"):
        choice.choose_backend("7")


def test_auto_says_why_it_is_the_cpu(no_cupy: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pycaffe_fire")
    assert choice.choose_backend("auto").name != "cuda"
    assert [r.getMessage() for r in caplog.records if "Running on the CPU: CuPy" in r.getMessage()]


@pytest.mark.parametrize(
    ("gpu", "rank", "device"),
    [("auto", 0, 0), ("all", 1, 1), ("all", 2, 0), ("1", 0, 1), ("1,0", 1, 0), ("1,0", 0, 1)],
)
def test_each_process_has_its_device(
    cupy: Any, gpu: str, rank: int, device: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_LOCALID", str(rank))
    backend: Any = choice.choose_backend(gpu)
    assert (backend.name, backend.device) == ("cuda", device)


def test_more_processes_than_listed_devices(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI_LOCALRANKID", "2")
    with pytest.raises(BackendError, match=r"names 2 device\(s\), but process 2 of this host"):
        choice.choose_backend("0,1")
    with pytest.raises(BackendError, match='device numbers, "all" or "auto", got "first"'):
        choice.choose_backend("first")


def test_pycaffe_modes(cupy: Any) -> None:
    caffe.set_device(1)
    caffe.set_mode_gpu()
    backend: Any = settings.default_backend()
    assert backend.device == 1 and "Emulated device" in backend.describe()
    assert settings.default_backend() is backend
    caffe.set_mode_cpu()
    assert settings.default_backend().name != "cuda"


def test_device_query(cupy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert device_query.main([]) == 0
    text = capsys.readouterr().out
    assert text.count("Emulated device") == 2
    assert "Trial kernel:              works" in text
    assert device_query.main(["--gpu", "1"]) == 0
    assert capsys.readouterr().out.startswith("Device id:                 1\n")


def test_device_query_without_a_device(no_cupy: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert device_query.main([]) == 1
    assert "CuPy cannot be imported" in capsys.readouterr().err


@pytest.mark.parametrize(("first", "rank", "device"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_process_touches_its_own_device_only(
    cupy: Any, first: int, rank: int, device: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context on another process's device would take some hundred megabytes there."""
    monkeypatch.setattr(cupy.cuda.Device, "used", set())
    monkeypatch.setenv("SLURM_LOCALID", str(rank))
    backend: Any = choice.choose_backend("auto", first=first)
    assert backend.device == device and cupy.cuda.Device.used == {device}


def test_a_solvers_device_id(
    cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = Path("solver.prototxt").read_text().replace("solver_mode: CPU", "")
    Path("solver.prototxt").write_text(f"{text}\nsolver_mode: GPU device_id: 1")
    for flags, device in (([], 1), (["--gpu", "0"], 0)):
        command = ["--solver", "solver.prototxt", "--iterations", "1", *flags]
        assert fire_train.main(command) == 0
        assert f"Use cuda, device {device}: " in capsys.readouterr().err


def test_a_device_id_that_is_not_there(cupy: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert choice.choose_backend("auto", first=5).name != "cuda"
    assert "Running on the CPU: there is no device 5; devices: 0 to 1" in caplog.text
