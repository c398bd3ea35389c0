"""Feeding children: every kind in turn, with a deadline for each case; findings are kept."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from .child import Cases

SLOWEST = 20.0  # seconds of a processor that a case may take
PATIENCE = 120.0  # seconds that it may take otherwise: others use the machine, too
BATCH = 200  # cases of one kind before the next has its turn
SAID = "pycaffe_fire: "  # how a process ends that a mapped file has killed


@dataclass
class Tally:
    """What became of one kind."""

    cases: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)


def run_kind(name: str, seed: int, first: int, count: int, tally: Tally, keep: Path) -> None:
    """Load `count` inputs, in as many children as it takes; each finding is a file in `keep`."""
    last = first + count
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        while first < last:
            child = _Child(name, Path(folder) / "work", seed, first, last - first)
            for case, what in child.findings():
                _keep(tally, keep, name, seed, case, what)
            tally.cases += child.cases
            first = child.case + 1
    tally.seconds += time.monotonic() - began


class _Child:
    """One process over a run of cases; `case` is the last that it began."""

    def __init__(self, name: str, folder: Path, seed: int, first: int, count: int) -> None:
        command = [sys.executable, "-m", "tests.fuzz.child", name, str(folder)]
        root = Path(__file__).parents[2]
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "PYTHONPATH": str(root)}
        self._process = subprocess.Popen(
            [*command, str(seed), str(first), str(count)], cwd=root, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stderr is not None
        self._errors = _Collected(self._process.stderr)
        self.case, self._first = first - 1, first

    @property
    def cases(self) -> int:
        return self.case + 1 - self._first

    def findings(self) -> Iterator[tuple[int, str]]:
        done = False
        for line in _lines(self._process):
            said = json.loads(line)
            done = done or "done" in said
            self.case = said.get("case", self.case)
            if "finding" in said:
                yield said["finding"], said["what"]
        hung = self._process.poll() is None
        self._process.kill()
        status = self._process.wait()
        if done:
            return
        self.case = max(self.case, self._first)
        text = self._errors.text()
        if hung:
            yield self.case, f"took more than {SLOWEST:.0f} s"
        elif status != 1 or SAID not in text or "Traceback" in text:
            yield self.case, f"ended with status {status}\n{text[-3000:]}"


def _lines(child: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """The child's lines, until it ends or is silent for too long."""
    found: queue.Queue[bytes] = queue.Queue()

    def read(stream: IO[bytes]) -> None:
        for line in stream:
            found.put(line)
        found.put(b"")

    assert child.stdout is not None
    threading.Thread(target=read, args=(child.stdout,), daemon=True).start()
    used, began = _processor_seconds(child.pid), time.monotonic()
    while True:
        try:
            line = found.get(timeout=1.0)
        except queue.Empty:
            busy = _processor_seconds(child.pid) - used
            if busy > SLOWEST or time.monotonic() - began > PATIENCE:
                return
            continue
        if not line:
            child.wait()
            return
        yield line
        used, began = _processor_seconds(child.pid), time.monotonic()


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Collected:
    """The end of what a stream says."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._parts = [*self._parts[-200:], line]

    def text(self) -> str:
        self._thread.join(5)
        return b"".join(self._parts).decode(errors="replace")


def _keep(tally: Tally, keep: Path, name: str, seed: int, case: int, what: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _, data = Cases(name, Path(folder) / "work", seed).make(case)
    keep.mkdir(parents=True, exist_ok=True)
    path = keep / f"{name}_{seed}_{case}"
    path.write_bytes(data)
    tally.findings.append(f"{path}: {what}")
