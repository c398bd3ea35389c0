"""Milliseconds to sum a gradient over emulated hosts: every communicator, either way of placing.

python tools/netlab/sums.py                                  8 ranks on 4 hosts at 200 Mbit/s
python tools/netlab/sums.py --hosts 16 --ranks 32 --mbit 50 --megabytes 1.5
                                                             what two cores can drive
python tools/netlab/sums.py --json found.json                and as numbers

Needs root (see README.md). Ranks are numbered by host, so either placement should take as long:
the exit status says whether all are within 10 %, and whether all sums have the right bits. The
prediction is for the network as these ranks measure it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import netlab
import numpy as np

from pycaffe_fire.parallel.buckets import BUCKET
from pycaffe_fire.parallel.communicators import COMMUNICATORS, RankCommunicator
from pycaffe_fire.parallel.cost import ALGORITHMS, Network, Profile, iteration
from pycaffe_fire.parallel.hosts import numbered_by_host, place
from pycaffe_fire.parallel.job import ranks_started, world
from pycaffe_fire.parallel.measure import measure_network, measure_sums
from pycaffe_fire.parallel.tree import Node, PartialSums

TOLERANCE = 0.10  # between placements
ROUNDS = 2  # of jobs, placements taking turns: the best counts, as others may use the machine
FOUND = "PYCAFFE_FIRE_SUMS "  # begins rank 0's line


# One rank.


def values(leaf: int, size: int) -> Any:
    return np.random.default_rng(leaf).standard_normal(size).astype(np.float32)


def canonical(leaves: int, size: int) -> str:
    """The digest of the sum along the tree, computed without any communicator."""
    sums = PartialSums(leaves, lambda a, b: np.add(a, b, out=a), lambda _: None)
    sums.extend(Node(leaf, 1, values(leaf, size)) for leaf in range(leaves))
    return hashlib.sha256(sums.nodes[0].sum).hexdigest()


def one_sum(comm: Any, communicator: RankCommunicator, buffer: Any) -> float:
    """Seconds of the slowest rank for a gradient in buckets, one leaf on each rank."""
    buffer[...] = values(comm.rank, buffer.size)
    comm.Barrier()
    began = time.perf_counter()
    for start in reversed(range(0, buffer.size, BUCKET)):
        communicator.start([Node(comm.rank, 1, buffer[start : start + BUCKET])])
    communicator.finish()
    return float(max(comm.allgather(time.perf_counter() - began)))


def be_rank(megabytes: float, repeat: int) -> None:
    comm = numbered_by_host(world())
    size = int(megabytes * 1e6 / 4)
    right = canonical(comm.size, size) if comm.rank == 0 else ""
    found: dict[str, Any] = {}
    for name in COMMUNICATORS:
        communicator = COMMUNICATORS[name](comm.Dup())
        buffer = communicator.buffer(size)
        seconds = [one_sum(comm, communicator, buffer) for _ in range(repeat + 1)][1:]
        digests = set(comm.allgather(hashlib.sha256(buffer).hexdigest()))
        found[name] = {"seconds": min(seconds), "alike": len(digests) == 1}
        if communicator.canonical:
            found[name]["right"] = digests == {right}
    network = _measured(comm)
    if network is not None:
        profile = Profile("", 4.0 * size, 0.0, sum_rate=measure_sums())
        for name in ALGORITHMS:
            predicted = iteration(profile, network, name, comm.size, 0, overlap=False)
            found[name]["predicted"] = predicted.communication
        print(FOUND + json.dumps(found), flush=True)


def _measured(comm: Any) -> Network | None:
    """On rank 0 the network between hosts and that between ranks of one, as they find it."""
    places = comm.allgather(place())
    near = places.count(places[comm.rank])
    inside = comm.Split(places.index(places[comm.rank]), comm.rank)
    across = comm.Split(inside.rank, comm.rank)
    inner = measure_network(inside) if near > 1 else None
    if inside.rank:  # one rank of each host has its link to itself
        return None
    between = measure_network(across)
    if comm.rank:
        return None
    return replace(between, per_host=near, inner=inner)


# The table.


def table(found: dict[str, list[dict[str, Any]]]) -> tuple[list[str], bool]:
    """A line for each communicator, and whether all of it is as it should be."""
    lines = [
        f"{'ms':<10}" + "".join(f"{name:>14}" for name in found)
        + f"{'apart':>8}{'predicted':>12}{'off by':>8}  bits"
    ]  # fmt: skip
    good = True
    for name in COMMUNICATORS:
        jobs = {how: [job[name] for job in done] for how, done in found.items()}
        best = [min(job["seconds"] for job in done) for done in jobs.values()]
        apart = max(best) / min(best) - 1
        everything = [job for done in jobs.values() for job in done]
        predicted = everything[0].get("predicted")
        bits = "alike on all ranks" if all(job["alike"] for job in everything) else "DIFFERENT"
        if "right" in everything[0]:
            bits = "the tree's" if all(job["right"] for job in everything) else "WRONG"
        good &= apart <= TOLERANCE and not bits.isupper()
        guess = f"{1e3 * predicted:>12.0f}{predicted / min(best) - 1:>+8.0%}" if predicted else ""
        columns = "".join(f"{1e3 * seconds:>14.0f}" for seconds in best)
        lines.append(f"{name:<10}{columns}{apart:>8.0%}{guess:<20}  {bits}")
    return lines, good


def measure(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """What rank 0 of every job found, by placement; placements take turns."""
    script = [sys.executable, str(Path(__file__).resolve()), "--be-rank"]
    script += ["--megabytes", str(options.megabytes), "--repeat", str(options.repeat)]
    found: dict[str, list[dict[str, Any]]] = {how: [] for how in netlab.PLACES}
    netlab.up(options.hosts, options.mbit)
    try:
        for _ in range(options.rounds):
            for how, jobs in found.items():
                said = netlab.job_output(script, options.ranks, how)
                (line,) = (line for line in said.splitlines() if line.startswith(FOUND))
                jobs.append(json.loads(line.removeprefix(FOUND)))
    finally:
        netlab.down()
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=4, metavar="N")
    parser.add_argument("--ranks", type=int, default=8, metavar="P", help="on all hosts together")
    parser.add_argument("--mbit", type=float, default=200, help="rate of each host's link")
    parser.add_argument("--megabytes", type=float, default=6.0, help="of the gradient")
    parser.add_argument("--repeat", type=int, default=2, help="sums in each job; the best counts")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="jobs of each placement")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--be-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.be_rank and ranks_started() > 1:
        be_rank(options.megabytes, options.repeat)
        return 0
    try:
        found = measure(options)
    except netlab.LabError as error:
        print(f"sums: {error}", file=sys.stderr)
        return 1
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2))
    lines, good = table(found)
    print(
        f"{options.megabytes:g} MB over {options.ranks} ranks on {options.hosts} hosts at "
        f"{options.mbit:g} Mbit/s"
    )
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
