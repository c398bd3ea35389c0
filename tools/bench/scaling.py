"""The cost model against real messages: predicted and measured iterations on emulated hosts.

python tools/bench/scaling.py                     on 8 emulated hosts at 1 Gbit/s (needs root)
python tools/bench/scaling.py --hosts 32          links of 12.5 Mbit/s: two cores drive no more
python tools/bench/scaling.py --hosts 16 --per-host 2
mpiexec -n 2 python tools/bench/scaling.py --compute 0.5    or as you start it yourself

The hosts share this machine's cores, so compute is slept, not done: what is checked is the model of
the network, of the algorithms and of the overlap. Messages, buckets and sums are those of training.

A rank that waits looks for its messages now and then. Looks of many ranks would fill the cores that
all hosts share here, which no real host does to another; so ranks nap longer the more of them share
a core, and the prediction counts half a nap for each message.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
from ranks import run_hosts

from pycaffe_fire.backend import available_cores
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.cli.common import without_flags
from pycaffe_fire.parallel import waiting
from pycaffe_fire.parallel.buckets import Bucket, Exchange
from pycaffe_fire.parallel.communicators import COMMUNICATORS
from pycaffe_fire.parallel.cost import ALGORITHMS, Profile, iteration
from pycaffe_fire.parallel.job import ranks_started
from pycaffe_fire.parallel.measure import measure_network, measure_sums
from pycaffe_fire.parallel.tree import Node
from pycaffe_fire.report.scaling import describe_network

TOLERANCE = 0.15
FEW_HOSTS, FAST = 8, 1000.0  # so many links of so many Mbit/s can two cores drive
NAP = 1.25e-4  # seconds, for each rank that shares a core


class Iterations:
    """A training loop of one algorithm in which layers take their time by sleeping."""

    def __init__(self, comm: Any, algorithm: str, profile: Profile) -> None:
        self._comm, self._profile = comm, profile
        self._communicator = COMMUNICATORS[algorithm](comm.Dup())
        sizes = [int(part.bytes / 4) for part in profile.buckets()]
        self._gradient = np.ones(sum(sizes), np.float32)
        ends = np.cumsum([0, *sizes])
        self._buckets = [
            Bucket(slice(int(a), int(b)), i)
            for i, (a, b) in enumerate(zip(ends, ends[1:], strict=False))
        ]
        merge = NumPyBackend().accumulate
        self._exchange = Exchange(self._buckets, 1, comm.size, self._communicator, merge)

    def run(self, overlap: bool) -> float:
        """Seconds of one iteration on the slowest rank."""
        from mpi4py import MPI

        compute = self._profile.compute(1)
        backward = compute * self._profile.backward_share
        self._gradient[:] = 1.0
        self._exchange.begin([[Node(self._comm.rank, 1, self._gradient)]])
        self._comm.Barrier()
        began = time.perf_counter()
        start = began + compute - backward
        for part, bucket in zip(self._profile.buckets(), self._buckets, strict=True):
            _sleep_until(start + backward * (part.ready if overlap else 1.0))
            self._exchange.submit(bucket)
        self._exchange.finish()
        return float(self._comm.allreduce(time.perf_counter() - began, MPI.MAX))

    def close(self) -> None:
        self._exchange.close()


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.perf_counter()))


def check(comm: Any, profile: Profile, repeat: int, per_host: int) -> bool:
    """Print the table on rank 0; true if every prediction is within the tolerance."""
    nap = nap_longer(comm.size)
    network = replace(measure_network(comm, per_host), per_message=nap / 2)
    loops = {name: Iterations(comm, name, profile) for name in ALGORITHMS}
    cases = [(name, overlap) for overlap in (False, True) for name in ALGORITHMS]
    seconds: dict[tuple[str, bool], list[float]] = {case: [] for case in cases}
    for turn in range(repeat + 1):  # the first one warms up
        for name, overlap in cases:
            took = loops[name].run(overlap)
            if turn:
                seconds[name, overlap].append(took)
    for loop in loops.values():
        loop.close()
    lines = [
        f"{comm.size} ranks, {profile.gradient_bytes / 1e6:g} MB of gradients, "
        f"{profile.compute(1):g} s of compute; {describe_network(network)}"
        + (f"; within a host {describe_network(network.inner)}" if network.inner else "")
        + f"; naps of {1e3 * nap:.2g} ms",
        f"{'iteration, s':<24}{'predicted':>10}{'measured':>10}{'off by':>8}",
    ]
    worst = 0.0
    for name, overlap in cases:
        predicted = iteration(profile, network, name, comm.size, 1, overlap).total
        measured = statistics.median(seconds[name, overlap])  # what is predicted is the usual
        off = predicted / measured - 1
        worst = max(worst, abs(off))
        how = "overlapped" if overlap else "afterwards"
        lines.append(f"{f'{name}, {how}':<24}{predicted:>10.2f}{measured:>10.2f}{off:>+8.1%}")
    verdict = "within" if worst <= TOLERANCE else "NOT within"
    lines.append(f"{verdict} {TOLERANCE:.0%}: at most {worst:.1%} off")
    if comm.rank == 0:
        print("\n".join(lines), flush=True)
    return worst <= TOLERANCE


def link_rate(hosts: int) -> float:
    """Mbit/s: more hosts share the cores, and each of them has more messages."""
    return FAST if hosts <= FEW_HOSTS else 12_800 / hosts**2


def nap_longer(ranks: int) -> float:
    """Seconds of the longest nap of a rank that waits, from now on."""
    waiting.LONGEST_NAP = max(waiting.LONGEST_NAP, NAP * ranks / available_cores())
    return waiting.LONGEST_NAP


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--megabytes", type=float, help="default: GoogLeNet's 53.5 at 1 Gbit/s, in proportion"
    )
    parser.add_argument("--compute", type=float, default=1.0, metavar="S", help="per iteration")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=8, metavar="N", help="emulated ones")
    parser.add_argument(
        "--mbit", type=float, help="rate of each host's link (default: what the cores can drive)"
    )
    parser.add_argument("--per-host", type=int, default=1, metavar="G", help="ranks on each")
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    mbit = options.mbit or link_rate(options.hosts)
    megabytes = options.megabytes or 53.5 * mbit / 1000
    if ranks_started() == 1:
        flags = [*without_flags(given, ("--mbit",)), "--mbit", f"{mbit:g}"]
        return run_hosts(__file__, options.hosts, mbit, flags, options.per_host)
    from mpi4py import MPI

    sums = max(MPI.COMM_WORLD.allgather(measure_sums()))
    profile = Profile("made up", megabytes * 1e6, options.compute, sum_rate=sums)
    return 0 if check(MPI.COMM_WORLD, profile, options.repeat, options.per_host) else 1


if __name__ == "__main__":
    sys.exit(main())
