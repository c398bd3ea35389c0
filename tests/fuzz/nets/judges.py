"""Child processes that judge cases; one that crashes is a finding, and another takes its place."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .oracle import Verdict

ROOT = Path(__file__).parents[3]
PATIENCE = 120.0  # seconds until a case counts as hanging
# What makes oneDNN and our kernels use an instruction set.
ISAS = {
    isa: {"ONEDNN_MAX_CPU_ISA": theirs, "FIRE_CPU_ISA": isa}
    for isa, theirs in (("baseline", "SSE41"), ("avx2", "AVX2"), ("avx512", "AVX512_CORE"))
}


class Judge:
    """One child process."""

    def __init__(self, guards: bool = False, environment: dict[str, str] | None = None) -> None:
        self._command = [sys.executable, "-m", "tests.fuzz.nets.child"]
        if guards:
            self._command.append("--guards")
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._environment = {
            **os.environ, "OMP_WAIT_POLICY": "passive", "PYTHONPATH": paths, **(environment or {}),
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def judge(self, asked: int | str) -> Verdict:
        """The verdict on a case, given by its number or as text."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._ended()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(PATIENCE):
                process.kill()
                self._ended()
                return Verdict(f"HANGS for more than {PATIENCE:.0f} s")
        line = process.stdout.readline()
        if not line:
            return self._ended()
        answer: dict[str, Any] = json.loads(line)
        return Verdict(answer["finding"], answer["refused"])

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=self._errors,
            )  # fmt: skip
        return self._process

    def _ended(self) -> Verdict:
        assert self._process is not None
        status = self._process.wait()
        self._process = None
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")[-1500:]
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        return Verdict(f"CRASH {name}: {said}")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
