"""The self-test for machines with a GPU, on the emulated one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.backend import choice
from pycaffe_fire.backend.cuda import cudnn as cudnn_library

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
        yield "broken", lambda: selftest.close_to_float32([1.0], [2.0], "one is not two")
        yield "far", lambda: selftest.near([1.0], [2.0], "nor here", 0.03125)

    monkeypatch.setattr(selftest, "checks", checks)
    monkeypatch.setattr(cudnn_library, "NAMES", ("libcudnn_that_is_not_there.so",))
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    monkeypatch.setattr(selftest, "timings", lambda gpu: ["timed"])
    report = tmp_path / "report.txt"
    monkeypatch.setattr("sys.argv", ["gpu_selftest.py", "--report", str(report)])
    assert selftest.main() == 1
    text = report.read_text()
    assert "3 checks passed, 2 failed" in text and "one is not two" in text
    assert "nor here: off by 5.00e-01, more than 3.12e-02" in text
    assert "Blobs stored as: float32, float16, bfloat16" in text
    assert "not cuDNN: --cudnn: cannot load libcudnn" in text
    assert "Emulated device" in text and "timed" in text
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
    for part in ("bfloat16", "CUDA graph, bit", "cuDNN, layer conv_group2", "loss scale", "adam"):
        assert any(part in name for name in names), part
    assert not any("cuDNN" in name for name, _ in selftest.checks(object(), None))
