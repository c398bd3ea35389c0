"""Seconds to sum a gradient over ranks: every communicator and the MPI library's own Allreduce.

python tools/bench/allreduce.py                   2, 4 and 8 ranks on this machine
python tools/bench/allreduce.py --hosts 8         on 8 emulated hosts at 1 Gbit/s (needs root)
mpiexec -n 8 python tools/bench/allreduce.py --only halving ring    or as you start it yourself

The last column is what is wanted; the exit status says whether it was reached.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ranks import run_hosts, run_ranks

from pycaffe_fire.cli.common import without_flags
from pycaffe_fire.errors import FireError, SolverError
from pycaffe_fire.parallel.buckets import BUCKET
from pycaffe_fire.parallel.communicators import COMMUNICATORS, RankCommunicator
from pycaffe_fire.parallel.communicators.wire import WIRES
from pycaffe_fire.parallel.job import ranks_started
from pycaffe_fire.parallel.tree import Node, places, runs

LIBRARY = "Allreduce"
WHOLE, BUCKETS = f"{LIBRARY}, whole", f"{LIBRARY}, buckets"
REFERENCE = "halving"
RANKS = (2, 4, 8)
# How many times the reference's time others should take: on one host, and on eight.
WANTED = {1: {WHOLE: 1.5}, 8: {"server": 5.0, "tree": 2.5, WHOLE: 1.0}}
Floats = NDArray[np.float32]


class Gradient:
    """This rank's share of a made-up gradient: one array per node of the tree that it holds, in
    memory as a communicator likes it."""

    def __init__(self, comm: Any, size: int, communicator: RankCommunicator | None) -> None:
        self.size, ranks = size, comm.Get_size()
        self.leaves = 1 << (ranks - 1).bit_length()
        own = places(runs(range(self.leaves), ranks)[comm.Get_rank()], self.leaves)
        self._pattern = (np.arange(size, dtype=np.float32) % 97) / 97

        def memory() -> Floats:
            if communicator is None:
                return np.empty(size, np.float32)
            found: Floats = communicator.buffer(size)
            return found

        self.nodes = [Node(*place, memory()) for place in own]

    def fill(self) -> None:
        for node in self.nodes:
            np.multiply(self._pattern, node.size, out=node.sum)
            node.sum += sum(range(node.first, node.first + node.size))

    def buckets(self) -> list[list[Node]]:
        """The nodes cut as training cuts them, last slices first."""
        starts = range(0, self.size, BUCKET)
        return [
            [Node(n.first, n.size, n.sum[start : start + BUCKET]) for n in self.nodes]
            for start in reversed(starts)
        ]

    def check(self, who: str) -> None:
        """After a sum, the first node holds the sum over all leaves."""
        want = self._pattern * self.leaves + sum(range(self.leaves))
        if not np.allclose(self.nodes[0].sum, want, rtol=1e-5):
            raise SolverError(f"{who} computes a wrong sum")


@dataclass
class Contender:
    """A way to sum, and the communicator that does it if it is one of ours."""

    run: Callable[[Gradient], None]
    communicator: RankCommunicator | None = None


def contenders(comm: Any, wire: str) -> dict[str, Contender]:
    from mpi4py import MPI

    def whole(gradient: Gradient) -> None:
        total = gradient.nodes[0].sum
        for node in gradient.nodes[1:]:
            total += node.sum
        comm.Allreduce(MPI.IN_PLACE, total, MPI.SUM)

    def in_buckets(gradient: Gradient) -> None:
        for nodes in gradient.buckets():
            for node in nodes[1:]:
                nodes[0].sum[...] += node.sum
            comm.Allreduce(MPI.IN_PLACE, nodes[0].sum, MPI.SUM)

    def bucketed(communicator: RankCommunicator) -> Contender:
        def run(gradient: Gradient) -> None:
            for nodes in gradient.buckets():
                communicator.start(nodes)
            communicator.finish()

        return Contender(run, communicator)

    ours = {name: bucketed(COMMUNICATORS[name](comm.Dup(), wire)) for name in COMMUNICATORS}
    return {**ours, WHOLE: Contender(whole), BUCKETS: Contender(in_buckets)}


def measure(
    comm: Any, sums: dict[str, Contender], size: int, repeat: int
) -> dict[str, list[float]]:
    """Seconds of the slowest rank, contenders taking turns; the first round only warms up."""
    from mpi4py import MPI

    gradients = {name: Gradient(comm, size, sum_.communicator) for name, sum_ in sums.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sums}
    for turn in range(repeat + 1):
        for name, contender in sums.items():
            gradient = gradients[name]
            gradient.fill()
            comm.Barrier()
            began = time.perf_counter()
            contender.run(gradient)
            took = comm.allreduce(time.perf_counter() - began, MPI.MAX)
            if turn == 0:
                gradient.check(name)
            else:
                seconds[name].append(took)
    return seconds


def table(seconds: dict[str, list[float]], wanted: dict[str, float]) -> tuple[list[str], list[str]]:
    """Minima and medians, how often the reference fits into each minimum; and what falls short."""
    lines = [f"{'ms':<20}{'min':>10}{'median':>10}{f'over {REFERENCE}':>16}{'wanted':>10}"]
    short = []
    base = min(seconds.get(REFERENCE, next(iter(seconds.values()))))
    for name, taken in sorted(seconds.items(), key=lambda item: -min(item[1])):
        least, middle = 1e3 * min(taken), 1e3 * statistics.median(taken)
        times = least / base / 1e3
        least_times = wanted.get(name) if REFERENCE in seconds else None
        want = f"{least_times:>9.1f}x" if least_times is not None else ""
        lines.append(f"{name:<20}{least:>10.1f}{middle:>10.1f}{times:>15.2f}x{want}")
        if least_times is not None and times < least_times:
            short.append(f"{name} takes {times:.2f} times as long, wanted {least_times:g}")
    return lines, short


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=53.5, help="default: GoogLeNet's 53.5")
    parser.add_argument("--repeat", type=int, default=5)
    known = [*COMMUNICATORS, LIBRARY]
    parser.add_argument("--only", nargs="+", choices=known, default=known, help="contenders")
    parser.add_argument("--wire", choices=list(WIRES), default="float32")
    parser.add_argument("--hosts", type=int, metavar="N", help="start this on N emulated hosts")
    parser.add_argument("--mbit", type=float, default=1000, help="with --hosts: rate of each link")
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    try:
        if ranks_started() == 1:
            return start(options, given)
        return run(options)
    except (FireError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def start(options: argparse.Namespace, given: Sequence[str]) -> int:
    """Be the ranks' launcher, with the arguments we were given."""
    if options.hosts:
        flags = without_flags(given, ("--hosts", "--mbit"))
        return run_hosts(__file__, options.hosts, options.mbit, flags)
    statuses = [run_ranks(__file__, ranks, given).returncode for ranks in RANKS]
    return max(statuses)


def run(options: argparse.Namespace) -> int:
    """One rank's part."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    try:
        sums = {
            name: contender
            for name, contender in contenders(comm, options.wire).items()
            if name.split(",")[0] in options.only
        }
        seconds = measure(comm, sums, int(options.megabytes * 1e6 / 4), options.repeat)
    except FireError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        comm.Abort(1)
    hosts = set(comm.allgather(socket.gethostname()))
    lines, short = table(seconds, WANTED.get(len(hosts), {}))
    if comm.Get_rank() == 0:
        library = MPI.Get_library_version().splitlines()[0].rstrip("\0")
        print(
            f"{options.megabytes} MB over {comm.Get_size()} ranks on {len(hosts)} host(s), "
            f"{os.cpu_count()} cores here; "
            f"{library}"
        )
        print("\n".join([*lines, *(f"NOT reached: {text}" for text in short)]), flush=True)
    return 1 if comm.bcast(bool(short)) else 0


if __name__ == "__main__":
    sys.exit(main())
