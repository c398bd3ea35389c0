"""tools/hidden_bf16: the library sees the instructions, or it is said that there are none."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backend.op_cases import onednn

ROOT = Path(__file__).parents[2]
ASK = """
from pycaffe_fire.backend.onednn import library
print("multiplies bfloat16:", library().multiplies_bf16)
"""
WHY_NOT = "this processor has no AVX512_BF16", "this kernel or processor cannot make CPUID fault"


@pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux" or shutil.which("gcc") is None,
    reason="needs gcc, Linux and x86",
)
def test_the_library_sees_what_the_processor_has() -> None:
    onednn(1)
    run = [sys.executable, str(ROOT / "tools" / "hidden_bf16" / "run.py")]
    done = subprocess.run(
        [*run, sys.executable, "-X", "faulthandler", "-c", ASK],
        capture_output=True, text=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    if done.returncode == 0:
        assert done.stdout == "multiplies bfloat16: True\n"
    else:
        assert any(reason in done.stderr for reason in WHY_NOT), done.stderr
