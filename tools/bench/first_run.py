"""Time a net's first training run on a machine against the next: what compiling kernels adds.

    python tools/bench/first_run.py
    python tools/bench/first_run.py models/nin/solver.prototxt --repeat 3
    python tools/bench/first_run.py models/cifar10_quick/solver.prototxt=3,32,32

A net that does not crop needs the shape of its images.

Each solver trains two iterations on synthetic data with an empty kernel cache, and again with what
the first run left there. Wall seconds from the first import to the end, the shortest of all
repetitions, and the processor seconds of the shortest. Ends with status 1 where a first run takes
6 s longer or more.

What a run needs of memory it has touched before the clock starts, and keeps. A virtual machine's
host may take memory back that has been free for a few seconds, and give it out again at 0.3 GB/s:
then a first run, which needs it later, takes seconds longer without compiling anything.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
NETS = {"googlenet": "", "caffenet": "", "resnet50": "", "lenet": "=1,28,28"}
LIMIT = 6.0  # seconds that a first run may take longer
MEMORY = 3 << 30  # bytes that a run has touched before it starts
KEEPING = {  # glibc's malloc: one heap, which keeps what is freed
    "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
}  # fmt: skip
TRAIN = f"""
import os, sys
import numpy as np
np.empty({MEMORY}, np.uint8).fill(1)
print(*os.times()[:2], flush=True)
from pycaffe_fire.cli.fire_train import main
sys.exit(main())
"""


class Run(NamedTuple):
    """Seconds of a process."""

    wall: float
    processor: float


def small_batches(solver: Path, batch: int, folder: Path) -> Path:
    """A copy of a solver and its net, with this batch size and without tests."""
    text = re.sub(r"(?m)^test_.*$", "", solver.read_text())
    net = re.search(r'^net: "(.*)"', text, re.MULTILINE)
    if net is None:
        sys.exit(f"{solver}: names no net")
    layers = (solver.parent / Path(net[1]).name).read_text()
    target = folder / "net.prototxt"
    target.write_text(re.sub(r"batch_size: \d+", f"batch_size: {batch}", layers))
    copy = folder / "solver.prototxt"
    copy.write_text(text.replace(net[0], f'net: "{target.as_posix()}"'))
    return copy


def run(solver: str, batch: int, cache: str) -> Run:
    """Train with this folder for kernels; processes that it starts count, too."""
    path, _, shape = solver.partition("=")
    with tempfile.TemporaryDirectory() as folder:
        copy = small_batches(Path(path), batch, Path(folder))
        command = [
            sys.executable, "-c", TRAIN, "--solver", str(copy), "--iterations", "2",
            "--synthetic", *filter(None, [shape]),
        ]  # fmt: skip
        before = os.times()
        with subprocess.Popen(
            command, cwd=folder, env={**os.environ, **KEEPING, "NUMBA_CACHE_DIR": cache},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            ready, begin = process.stdout.readline(), time.perf_counter()
            output = process.stdout.read()
        wall, after = time.perf_counter() - begin, os.times()
    if process.returncode:
        sys.exit(f"{solver}: {ready}{output.strip()}")
    spent = after.children_user + after.children_system - before.children_user
    return Run(wall, spent - before.children_system - sum(map(float, ready.split())))


def measure(solver: str, batch: int, repeat: int) -> tuple[Run, Run, int]:
    """The first run, the next, and how many kernels were compiled."""
    first, following, kernels = [], [], 0
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as cache:
            first.append(run(solver, batch, cache))
            kernels = len(list(Path(cache).glob("*.nbi")))
            following.append(run(solver, batch, cache))
    return min(first), min(following), kernels


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    models = [f"{ROOT}/models/{net}/solver.prototxt{shape}" for net, shape in NETS.items()]
    parser.add_argument("solvers", nargs="*", default=models, metavar="SOLVER[=SHAPE]")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=1, help="take the shortest of so many")
    given = parser.parse_args()
    print("net             first, s   next, s   more, s  cpu more, s  kernels")
    slow = False
    for solver in given.solvers:
        first, following, kernels = measure(solver, given.batch, given.repeat)
        more = first.wall - following.wall
        slow = slow or more > LIMIT
        print(
            f"{Path(solver).parent.name:16}{first.wall:10.1f}{following.wall:10.1f}{more:10.1f}"
            f"{first.processor - following.processor:13.1f}{kernels:9}", flush=True,
        )  # fmt: skip
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
