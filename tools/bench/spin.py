"""Time training and inference by how long waiting OpenMP threads spin, beside 0, 1 and 2 loops.

    python tools/bench/spin.py
    python tools/bench/spin.py --repeat 15 --only googlenet

Each setting of libgomp is a process of its own, and they take turns sample by sample: first on the
quiet machine, then beside one busy loop and beside two. A sample is a step, or as many as fill
0.4 s on a quiet machine. libgomp's own default is 300000.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from synthetic import synthetic_net
from timing import (
    BenchError,
    Sample,
    Worker,
    environment,
    interleave,
    least_disturbed,
    wait_for_quiet,
)
from train import SGD

from pycaffe_fire import schema
from pycaffe_fire.backend import available_cores, cpu_backend
from pycaffe_fire.backend.openmp import SPIN_COUNT, WAIT_POLICY
from pycaffe_fire.errors import FireError
from pycaffe_fire.layers import Context
from pycaffe_fire.net.net import Net

HERE = Path(__file__).parent
MODELS = HERE.parents[1] / "models"
COUNTS = (1_000, 3_000, 5_000, 10_000, 30_000, 100_000, 300_000)
SETTINGS = {str(count): {SPIN_COUNT: str(count)} for count in COUNTS} | {
    "passive": {WAIT_POLICY: "passive"}
}
LOOPS = (1, 2)  # busy processes beside the one that is timed
LOOPS_START = 0.1  # seconds until the loops run
TOLERANCE = 0.06  # the share of all cores that others may use during a clean sample
PATIENCE = 10.0  # seconds to wait for a quiet machine before a process or the loops start
SEED = 1


@dataclass(frozen=True)
class Work:
    """A net to time: training steps on random data, or forwards of its deploy net on one image."""

    title: str
    trains: bool
    batch: int
    shape: tuple[int, ...] | None = None  # of an image, for a net that does not crop


WORK = {
    "lenet": Work("LeNet, training, batch 64", True, 64, (1, 28, 28)),
    "mobilenet_v1": Work("MobileNet v1, training, batch 8", True, 8),
    "googlenet": Work("GoogLeNet, inference, batch 1", False, 1),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=7, help="samples of each setting and load")
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument(
        "--limit", type=float, default=120, help="seconds after which disturbed samples count too"
    )
    parser.add_argument("--only", choices=WORK, help="one net instead of all")
    options = parser.parse_args(arguments)
    try:
        for net in [options.only] if options.only else WORK:
            with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
                workers = [
                    _start(net, setting, options.threads, Path(folder), stack)
                    for setting in SETTINGS
                ]
                samples = _samples(workers, options.repeat, options.limit)
            _print_table(WORK[net].title, samples)
    except (BenchError, FireError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


# Workers.


def _start(net: str, setting: str, threads: int, folder: Path, stack: ExitStack) -> Worker:
    """A process that is ready to time `net` with one of the settings."""
    wait_for_quiet(TOLERANCE, until=time.monotonic() + PATIENCE)  # it tries plans as it warms up
    script = HERE / ("fire_net.py" if WORK[net].trains else "runtimes.py")
    worker = Worker(setting, str(script), environment(threads, SETTINGS[setting]))
    stack.enter_context(worker)
    if WORK[net].trains:
        file = folder / "net"
        if not file.exists():
            path = MODELS / net / "train_val.prototxt"
            param = synthetic_net(str(path), WORK[net].batch, WORK[net].shape)
            file.write_bytes(param.SerializeToString())
        worker.ask("build", net=str(file), threads=threads, sgd=SGD)
    else:
        if not (folder / "input.npy").exists():
            _write_deploy_net(MODELS / net / "deploy.prototxt", WORK[net].batch, folder)
        worker.ask("first", runtime="pycaffe_fire", folder=str(folder), threads=threads)
    worker.ask("warm")
    return worker


def _write_deploy_net(path: Path, batch: int, folder: Path) -> None:
    """Write net.prototxt, net.caffemodel and input.npy, which runtimes.py reads."""
    param = schema.read_net(str(path))
    (given,) = (layer for layer in param.layer if layer.type == "Input")
    given.input_param.shape[0].dim[0] = batch
    (folder / "net.prototxt").write_text(str(param))
    param.state.phase = schema.TEST
    net = Net(param, cpu_backend(), Context(seed=SEED), source=str(path))
    net.save(str(folder / "net.caffemodel"))
    shape = net.blobs[net.inputs[0]].shape
    np.save(folder / "input.npy", np.random.default_rng(SEED).standard_normal(shape, np.float32))


# Samples.


def _samples(workers: list[Worker], repeat: int, limit: float) -> dict[str, list[list[Sample]]]:
    """Samples of every setting, taken in turns: quiet, beside one loop and beside two."""
    quiet = interleave(workers, repeat, TOLERANCE, limit)
    samples = {
        name: [least_disturbed(taken, repeat, TOLERANCE), *([] for _ in LOOPS)]
        for name, taken in quiet.items()
    }
    for _ in range(repeat):
        for column, loops in enumerate(LOOPS, start=1):
            for worker in workers:
                wait_for_quiet(TOLERANCE, until=time.monotonic() + PATIENCE)
                with _busy_loops(loops):
                    samples[worker.name][column].append(Sample(**worker.ask("sample")))
    return samples


@contextmanager
def _busy_loops(count: int) -> Iterator[None]:
    """Context manager: run `count` processes that never wait."""
    command = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command) for _ in range(count)]
    try:
        time.sleep(LOOPS_START)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _print_table(title: str, samples: dict[str, list[list[Sample]]]) -> None:
    """Print median, minimum and maximum milliseconds of a step for every setting."""
    print(f"\n{title}: ms a step, median (minimum to maximum)")
    heads = ("spin count", "quiet", *(f"beside {loops} busy" for loops in LOOPS))
    print(f"{heads[0]:<12}" + "".join(f"{head:>28}" for head in heads[1:]))
    for setting, columns in samples.items():
        cells = [[sample.of("step") * 1e3 for sample in taken] for taken in columns]
        texts = [f"{statistics.median(ms):.1f} ({min(ms):.1f} to {max(ms):.1f})" for ms in cells]
        print(f"{setting:<12}" + "".join(f"{text:>28}" for text in texts), flush=True)
    quiet = [sample for columns in samples.values() for sample in columns[0]]
    clean = sum(sample.foreign < TOLERANCE for sample in quiet)
    print(f"{clean} of the {len(quiet)} quiet samples are clean")


if __name__ == "__main__":
    sys.exit(main())
