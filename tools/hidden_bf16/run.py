#!/usr/bin/env python3
"""Runs a command on bfloat16 instructions that the processor has and a hypervisor hides.

    python tools/hidden_bf16/run.py python -m pytest tests/backend/test_bfloat16.py
    python tools/hidden_bf16/run.py python tools/bench/train.py models/... --against bfloat16

Virtual machines often show an older processor than they run on. Instructions without a state of
their own work all the same; only CPUID, which libraries ask, leaves them out. For the command it
names AVX512_BF16 again (shown.c), if the instruction gives the right number here (executes.c). AMX
has state that only the hypervisor can allow, so it stays hidden. Needs gcc, Linux and x86.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPILE = {
    "executes": ["gcc", "-O1", "-mavx512f", "-mavx512bf16"],
    "shown": ["gcc", "-O1", "-shared", "-fPIC"],
}


def main(command: list[str]) -> int:
    if not command:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        made = {name: compiled(name, Path(folder)) for name in COMPILE}
        status = subprocess.run([made["executes"]]).returncode
        if status:
            sys.exit("this processor has no AVX512_BF16: its product of pairs did not run")
        environment = {**os.environ, "LD_PRELOAD": made["shown"]}
        return subprocess.run(command, env=environment).returncode


def compiled(name: str, folder: Path) -> str:
    result = str(folder / name)
    done = subprocess.run([*COMPILE[name], str(HERE / f"{name}.c"), "-o", result, "-ldl"])
    if done.returncode:
        sys.exit(f"{name}.c could not be compiled; the message above says why")
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
