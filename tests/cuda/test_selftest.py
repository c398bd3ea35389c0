"""The self-test for machines with a GPU, on the emulated one."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import choice
from pycaffe_fire.backend.cuda import CudaBackend, jpeg
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.parallel.launch import find_mpiexec
from tests.cuda import fake_nvimgcodec
from tests.cuda.fake_nvimgcodec import FakeNvimgcodec

TOOL = Path(__file__).parents[2] / "tools" / "gpu_selftest.py"


@pytest.fixture
def selftest() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_selftest", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_report(
    selftest: Any, cupy: Any, cuda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice._gpu_backend.cache_clear()
    few = sorted(selftest.GOLDEN.glob("conv_g*.npz"))
    assert few

    def checks(engines: Any) -> Any:
        gpu = engines.ours
        assert engines.cudnn is None and engines.jpeg is None
        yield "layer", lambda: selftest.reference_case(few[0], gpu)
        yield "rounded", lambda: selftest.reference_case(few[0], gpu, "float16")
        yield "update", lambda: selftest.update_rule("adamw", gpu)
        yield "data", lambda: selftest.training_from_data(gpu)
        yield "broken", lambda: selftest.close_to_float32([1.0], [2.0], "one is not two")
        yield "far", lambda: selftest.near([1.0], [2.0], "nor here", 0.03125)

    monkeypatch.setattr(selftest, "checks", checks)
    monkeypatch.setattr(selftest, "checks_of_ranks", lambda gpu: [])
    timings = {"LeNet": lambda: {"images/s": 7}, "slow": lambda: 1 / 0}
    monkeypatch.setattr(selftest, "timings", lambda engines, quick: timings.items())
    path = tmp_path / "report.json"
    monkeypatch.setattr("sys.argv", ["gpu_selftest.py", "--report", str(path)])
    assert selftest.main() == 1
    report = json.loads(path.read_text())
    assert (report["passed"], report["failed"]) == (4, 2)
    errors = [check["error"] for check in report["checks"] if "error" in check]
    assert "one is not two" in errors[0]
    assert "nor here: off by 5.00e-01, more than 3.12e-02" in errors[1]
    cudnn, jpeg = report["about"]["missing"]
    assert "cuDNN is left out" in cudnn and "--jpeg gpu: nvImageCodec" in jpeg
    assert "Emulated device" in report["about"]["device"]
    assert report["about"]["properties"]["name"] == "Emulated device"
    failed = {"not measured": "ZeroDivisionError: division by zero"}
    assert report["timings"] == {"LeNet": {"images/s": 7}, "slow": failed}
    monkeypatch.setattr("sys.argv", ["gpu_selftest.py", "--report", str(path), "--only", "far"])
    assert selftest.main() == 1
    report = json.loads(path.read_text())
    assert [check["name"] for check in report["checks"]] == ["far"] and report["timings"] == {}
    choice._gpu_backend.cache_clear()


def test_without_a_gpu(selftest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    choice._gpu_backend.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr("sys.argv", ["gpu_selftest.py"])
    with pytest.raises(SystemExit, match="gpu_selftest: cannot run on GPU 0: CuPy"):
        selftest.main()


def test_what_is_checked(selftest: Any) -> None:
    every = selftest.Engines(*[object()] * 5)
    names = [name for name, _ in selftest.checks(every)]
    assert len(names) == len(set(names)) > 200
    for part in (
        "bfloat16",
        "CUDA graph, bit",
        "cuDNN, layer conv_group2",
        "loss scale",
        "adam",
        "LMDB",
        "20 iterations, TF32",
        "JPEGs decoded",
        "googlenet, one iteration, our kernels",
        "resnet50, one iteration, cuDNN",
    ):
        assert any(part in name for name in names), part
    few = [name for name, _ in selftest.checks(selftest.Engines(object(), object()))]
    assert not [name for name in few if "cuDNN" in name or "JPEG" in name]
    timed = [name for name, _ in selftest.timings(every, False)]
    for model in ("lenet, batch 256", "googlenet, batch 32", "resnet50, batch 32"):
        for engine in (
            "our kernels, float32",
            "cuDNN, float16, CUDA graph",
            "cuDNN, TF32, float32",
        ):
            assert f"{model}, {engine}" in timed


def test_speeds(selftest: Any, cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "BATCHES", {"lenet": 2})
    found = dict(selftest.timings(selftest.Engines(cuda), True))
    assert len(found) == 6
    for name in ("float32", "bfloat16, CUDA graph"):
        figures = found[f"lenet, batch 1, our kernels, {name}"]()
        assert figures["images/s"] > 0 and figures["images/s at best"] > 0, figures
        assert figures["bound by"] in ("arithmetic", "memory")


def test_roofline(selftest: Any) -> None:
    """Of an A100, as its maker gives it: 19.5 TFLOP/s, 156 with TF32, 312 in 16 bits, 1555 GB/s."""
    about = {
        "major": 8, "minor": 0, "multiProcessorCount": 108, "clockRate": 1410000,
        "memoryClockRate": 1215000, "memoryBusWidth": 5120,
    }  # fmt: skip
    runtime = types.SimpleNamespace(getDeviceProperties=lambda device: about)
    xp = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))
    gpu = types.SimpleNamespace(xp=xp, device=0)
    for units, peak in {"float32": 19.5e12, "tf32": 156e12, "float16": 312e12}.items():
        assert selftest.peak(gpu, units) == pytest.approx(peak, rel=0.01)
    assert selftest.bandwidth(gpu) == pytest.approx(1555e9, rel=0.01)
    found = selftest.roofline(gpu, "float32", 10, 1e11, 1e6)
    assert found == {"images/s at best": pytest.approx(1950, rel=0.01), "bound by": "arithmetic"}
    assert selftest.roofline(gpu, "bfloat16", 10, 1e11, 1.555e10)["bound by"] == "memory"
    about["memoryClockRate"] = 0  # as some devices say
    assert selftest.roofline(gpu, "float32", 10, 1e11, 1e6) == {}


def test_jpegs_near_the_cpus(selftest: Any, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jpeg, "load", lambda: FakeNvimgcodec(cupy))  # one level off
    device = CudaBackend(0, jpeg=True)
    selftest.decoded_jpegs(device)
    black = np.zeros((32, 32, 3), np.uint8)
    monkeypatch.setattr(fake_nvimgcodec, "pixels_of", lambda data, channels: black)
    with pytest.raises(AssertionError, match="levels in the mean"):
        selftest.decoded_jpegs(device)


def test_one_iteration_of_a_model(
    selftest: Any, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a small one here; GoogLeNet and ResNet-50 take minutes on the emulator."""
    monkeypatch.setattr(selftest, "synthetic", lambda model, batch: selftest.lenet(batch))
    selftest.one_iteration(cuda, "lenet")
    monkeypatch.setattr(cuda, "relu", lambda x, y, slope: NumPyBackend.relu(cuda, x, y, 0.5))
    with pytest.raises(AssertionError, match="off by"):
        selftest.one_iteration(cuda, "lenet")


def test_two_ranks(selftest: Any, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes on stand-ins for CuPy and NCCL: the tree's bits are those of one process."""
    mpiexec = find_mpiexec()
    monkeypatch.setattr(
        selftest,
        "fire_train",
        lambda ranks: [mpiexec, "-n", str(ranks), sys.executable, "-m", "tests.parallel.gpu_rank"],
    )
    selftest.two_ranks([], 0.0)


def test_two_ranks_are_tried_where_there_are_two_devices(selftest: Any, cuda: Any) -> None:
    names = [name for name, _ in selftest.checks_of_ranks(cuda)]
    assert names == ["two ranks, tree over NCCL, bit for bit", "two ranks, NCCL's own sum"]
