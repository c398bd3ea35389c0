"""What the tests of fire_train share: a small net with real data in a folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
PACKAGE = Path(__file__).parents[2]
PATIENCE = 240  # seconds; machines may be busy, and kernels have to be compiled once
SOLVER = """
net: "net.prototxt" type: "SGD" base_lr: 0.05 momentum: 0.9 lr_policy: "step" gamma: 0.3
stepsize: 6 max_iter: 20 display: 5 test_iter: 2 test_interval: 10 snapshot_prefix: "snap"
solver_mode: CPU
"""


def make_run(folder: Path) -> None:
    """The reference net with its data and first weights, and a solver as in Caffe's log."""
    for name in ("net.prototxt", "data.txt", "data.h5", "init.caffemodel"):
        shutil.copy(GOLDEN / "solver" / "sgd_step" / name, folder / name)
    write_solver(folder, "random_seed: 5")


def write_solver(folder: Path, *extra: str, name: str = "solver.prototxt", **changed: str) -> None:
    """A solver; `changed` fields get other values, `extra` is appended."""
    text = SOLVER
    for field, value in changed.items():
        text = re.sub(rf"\b{field}: \S+", f"{field}: {value}", text)
    (folder / name).write_text(text + "\n".join(extra))


def add_dropout(folder: Path) -> None:
    """Dropout before the loss, so that a run draws random numbers."""
    text = (folder / "net.prototxt").read_text()
    drop = 'layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" }\n'
    (folder / "net.prototxt").write_text(
        text.replace('layer { name: "ip"', f'{drop}layer {{ name: "ip"')
    )


class Command:
    """fire_train in a process of its own, its log collected in a file."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / "log.txt"
        # Threads that wait without spinning: tests share their machine.
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "OMP_WAIT_POLICY": "passive"}
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pycaffe_fire.cli.fire_train", *arguments],
                cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=file, text=True,
            )  # fmt: skip

    def wait_for(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.log.read_text().count(text) < times:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"{text!r} is not in the log:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self) -> tuple[int, str, str]:
        """Exit status, standard output and the log."""
        try:
            out, _ = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, out, self.log.read_text()
