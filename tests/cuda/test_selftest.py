"""The self-test for machines with a GPU, on the emulated one."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.backend import choice
from pycaffe_fire.parallel.launch import find_mpiexec

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
    monkeypatch.setattr(selftest, "timings", lambda gpu, cudnn, quick: [("LeNet", {"images/s": 7})])
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
    monkeypatch.setitem(sys.modules, "cupy", None)
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


def test_speeds(selftest: Any, cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "BATCHES", {"lenet": 2})
    found = dict(selftest.timings(cuda, None, True))
    assert len(found) == 6 and "lenet, batch 1, our kernels, bfloat16, CUDA graph" in found
    for figures in found.values():
        assert figures["images/s"] > 0 and figures["images/s at best"] > 0, figures
        assert figures["bound by"] in ("arithmetic", "memory")


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
