"""Are six ranks faster than four? Seconds per iteration where leaves take their time by sleeping.

python tools/bench/division.py                    4 and 6 ranks on this machine, 12 and 64 leaves
python tools/bench/division.py --ranks 3 5 --leaves 60

All runs with as many leaves give the same sum, bit for bit, which is checked; leaves are divided
and summed as in training. Each sample sleeps, so the machine's cores do not matter.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import time

import numpy as np
from ranks import run_ranks

from pycaffe_fire.parallel.communicator import Communicator
from pycaffe_fire.parallel.job import join, ranks_started
from pycaffe_fire.parallel.tree import Node, PartialSums

LEAST = 1.4  # times as fast: six ranks against four


def iteration(communicator: Communicator, leaves: int, seconds: float) -> str:
    """One batch that takes one rank so many seconds; the digest of its sum."""
    sums = PartialSums(leaves, lambda a, b: np.add(a, b, out=a), lambda _: None)
    for leaf in communicator.own_leaves(leaves):
        time.sleep(seconds / leaves)
        values = np.random.default_rng(leaf).standard_normal(10_000).astype(np.float32)
        sums.add(Node(leaf, 1, values))
    total = communicator.all_sum(sums.nodes)
    return hashlib.sha256(total).hexdigest()


def be_rank(leaves: int, seconds: float, repeat: int) -> None:
    communicator = join()
    times = []
    for _ in range(repeat + 1):  # the first one warms up
        communicator.gather(None)
        began = time.perf_counter()
        digest = iteration(communicator, leaves, seconds)
        times.append(max(communicator.gather(time.perf_counter() - began)))
    if communicator.rank == 0:
        print(json.dumps({"seconds": statistics.median(times[1:]), "digest": digest}))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs=2, default=[4, 6])
    parser.add_argument("--leaves", type=int, nargs="+", default=[12, 64])
    parser.add_argument("--seconds", type=float, default=4.0, help="one rank's time for a batch")
    parser.add_argument("--repeat", type=int, default=3)
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    if ranks_started() > 1:
        be_rank(options.leaves[0], options.seconds, options.repeat)
        return 0
    few, many = options.ranks
    reached = True
    print(f"{'leaves':>6}{f'{few} ranks, s':>14}{f'{many} ranks, s':>14}{'faster':>9}  bits")
    for leaves in options.leaves:
        flags = ["--leaves", str(leaves), "--seconds", str(options.seconds)]
        flags += ["--repeat", str(options.repeat)]
        found = []
        for ranks in options.ranks:
            done = run_ranks(__file__, ranks, flags, capture=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
        first, second = (each["seconds"] for each in found)
        same = found[0]["digest"] == found[1]["digest"]
        print(
            f"{leaves:>6}{first:>14.3f}{second:>14.3f}{first / second:>8.2f}x  "
            f"{'the same' if same else 'DIFFERENT'}"
        )
        reached &= same and (options.ranks != [4, 6] or first / second >= LEAST)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
