"""The self-test for machines with a GPU, on the emulated one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire import defaults

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
    defaults._gpu_backend.cache_clear()
    few = sorted(selftest.GOLDEN.glob("conv_g*.npz"))
    assert few

    def checks(gpu: Any) -> Any:
        yield "layer", lambda: selftest.reference_case(few[0], gpu)
        yield "update", lambda: selftest.update_rule("adam", gpu)
        yield "broken", lambda: selftest.close([1.0], [2.0], "one is not two")

    monkeypatch.setattr(selftest, "checks", checks)
    monkeypatch.setattr(selftest, "timings", lambda gpu: ["timed"])
    report = tmp_path / "report.txt"
    monkeypatch.setattr("sys.argv", ["gpu_selftest.py", "--report", str(report)])
    assert selftest.main() == 1
    text = report.read_text()
    assert "2 checks passed, 1 failed" in text and "one is not two" in text
    assert "Emulated device" in text and "timed" in text
    defaults._gpu_backend.cache_clear()


def test_without_a_gpu(selftest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults._gpu_backend.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    monkeypatch.setattr("sys.argv", ["gpu_selftest.py"])
    with pytest.raises(SystemExit, match="gpu_selftest: cannot run on GPU 0: CuPy"):
        selftest.main()
