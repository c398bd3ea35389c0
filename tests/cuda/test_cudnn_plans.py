"""The real cuDNN, asked for plans on devices that are not there (tools/gpu_plans.py)."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEVICES = ("A100", "H100", "RTX4090", "T4")


def plans(*flags: str) -> list[str]:
    """The tool's lines, in a process of its own: it loads stand-ins for drivers."""
    if importlib.util.find_spec("cudnn") is None or importlib.util.find_spec("nvidia") is None:
        pytest.skip("nvidia-cudnn-frontend or nvidia-cudnn-cu13 is not installed")
    if shutil.which("cc") is None:
        pytest.skip("stand-ins for the driver are compiled by cc, which is missing")
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "gpu_plans.py", *flags],
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    if "cuDNN cannot be loaded" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout.splitlines()


def test_every_convolution_has_plans_on_four_devices() -> None:
    """Of some models; `python tools/gpu_plans.py` asks for all of them, which takes minutes."""
    some = ("lenet", "nin", "mobilenet_v1")
    lines = plans("--models", ",".join(some), "--batch", "32")
    planned = [line for line in lines if " products planned" in line]
    assert len(planned) == len(some) * len(DEVICES)
    assert not [line for line in planned if "TENSOR_CORE" in line or "NONDETERMINISTIC" in line]
    assert lines[-1] == "cuDNN has a plan for every product"


def test_tensor_cores_where_they_are_allowed() -> None:
    flags = ("--models", "nin", "--devices", "A100", "--batch", "32")
    for more in (("--math", "tf32"), ("--precision", "float16"), ("--precision", "bfloat16")):
        (line,) = [line for line in plans(*flags, *more) if " products planned" in line]
        assert "TENSOR_CORE" in line and "NONDETERMINISTIC" not in line, line


def test_every_plan_is_shown() -> None:
    lines = plans("--models", "lenet", "--devices", "T4", "--batch", "32", "--all")
    assert any("weight gradient, 32x20x12x12 50x20x5x5: eng" in line for line in lines), lines
