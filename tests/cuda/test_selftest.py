"""The self-test for machines with a GPU, on the emulated one."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.backend import choice

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

    def checks(gpu: Any, cudnn: Any) -> Any:
        assert cudnn is None
        yield "layer", lambda: selftest.reference_case(few[0], gpu)
        yield "rounded", lambda: selftest.reference_case(few[0], gpu, "float16")
        yield "update", lambda: selftest.update_rule("adamw", gpu)
        yield "data", lambda: selftest.training_from_data(gpu)
        yield "broken", lambda: selftest.close_to_float32([1.0], [2.0], "one is not two")
        yield "far", lambda: selftest.near([1.0], [2.0], "nor here", 0.03125)

    monkeypatch.setattr(selftest, "checks", checks)
    monkeypatch.setattr(selftest, "checks_of_ranks", lambda gpu: [])
    monkeypatch.setattr(selftest, "timings", lambda gpu, cudnn: [("LeNet", {"images/s": 7})])
    path = tmp_path / "report.json"
    monkeypatch.setattr("sys.argv", ["gpu_selftest.py", "--report", str(path)])
    assert selftest.main() == 1
    report = json.loads(path.read_text())
    assert (report["passed"], report["failed"]) == (4, 2)
    errors = [check["error"] for check in report["checks"] if "error" in check]
    assert "one is not two" in errors[0]
    assert "nor here: off by 5.00e-01, more than 3.12e-02" in errors[1]
    assert "cuDNN is left out" in report["about"]["engine"]
    assert "Emulated device" in report["about"]["device"]
    assert report["about"]["properties"]["name"] == "Emulated device"
    assert report["timings"] == {"LeNet": {"images/s": 7}}
    choice._gpu_backend.cache_clear()


def test_without_a_gpu(selftest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    choice._gpu_backend.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    monkeypatch.setattr("sys.argv", ["gpu_selftest.py"])
    with pytest.raises(SystemExit, match="gpu_selftest: cannot run on GPU 0: CuPy"):
        selftest.main()


def test_what_is_checked(selftest: Any) -> None:
    names = [name for name, _ in selftest.checks(object(), object())]
    assert len(names) == len(set(names)) > 200
    for part in (
        "bfloat16",
        "CUDA graph, bit",
        "cuDNN, layer conv_group2",
        "loss scale",
        "adam",
        "LMDB",
    ):
        assert any(part in name for name in names), part
    assert not any("cuDNN" in name for name, _ in selftest.checks(object(), None))


def test_a_speed(selftest: Any, cuda: Any) -> None:
    figures = selftest.timing(cuda, "lenet", 2, "float32", False)
    assert set(figures) >= {"images/s", "images/s at best", "TFLOP/s"} and figures["images/s"] > 0


def test_two_ranks_are_tried_where_there_are_two_devices(selftest: Any, cuda: Any) -> None:
    names = [name for name, _ in selftest.checks_of_ranks(cuda)]
    assert names == ["two ranks, tree over NCCL, bit for bit", "two ranks, NCCL's own sum"]
