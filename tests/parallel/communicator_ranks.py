"""What five ranks do for test_communicators.py; without pytest, which would start five times."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pycaffe_fire.parallel import job
from pycaffe_fire.parallel.communicators import COMMUNICATORS
from pycaffe_fire.parallel.tree import Node, PartialSums

RANKS = (1, 2, 3, 4, 5)  # tools/netlab/sums.py tries more
LEAVES = 8
SIZES = (1, 3, 1024, 100_003)  # one element, fewer than ranks, even pieces, uneven pieces
WIRES = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # relative rounding
CANONICAL = {name for name in COMMUNICATORS if COMMUNICATORS[name].canonical}
LENT = (60_003, 100_003)  # on four ranks quarters of the first are sent, of the second lent
IN_FLIGHT = 20  # sums started before the first is waited for

Floats = NDArray[np.float32]


class Case(NamedTuple):
    name: str
    ranks: int
    wire: str
    size: int
    leaves: int = LEAVES


NARROW = sorted(set(WIRES) - {"float32"})
CASES = [Case(*c) for c in itertools.product(COMMUNICATORS, RANKS, ["float32"], SIZES)]
CASES += [Case(*c) for c in itertools.product(COMMUNICATORS, (2, 5), NARROW, SIZES[1::2])]
CASES += [
    Case(name, ranks, "float32", 1024, leaves)
    for name, ranks, leaves in itertools.product(COMMUNICATORS, (3, 5), (11, 12, 24))
]


@functools.cache
def leaf_values(leaf: int, size: int) -> Floats:
    return np.random.default_rng([leaf, size]).standard_normal(size).astype(np.float32)


def nodes_of(own: range, size: int, leaves: int = LEAVES) -> list[Node]:
    sums = PartialSums(leaves, lambda a, b: np.add(a, b, out=a), lambda _: None)
    sums.extend(Node(leaf, 1, leaf_values(leaf, size).copy()) for leaf in own)
    return sums.nodes


@functools.cache
def canonical(size: int, leaves: int = LEAVES) -> tuple[Floats, Floats]:
    """The sum over all leaves, and that of absolute values, which errors are relative to."""
    absolute = sum(np.abs(leaf_values(leaf, size)) for leaf in range(leaves))
    return nodes_of(range(leaves), size, leaves)[0].sum, np.asarray(absolute)


def run_case(case: Case, comm: Any) -> dict[str, Any]:
    communicator = COMMUNICATORS[case.name](comm, case.wire)
    own = communicator.own_leaves(case.leaves)
    got = communicator.all_sum(nodes_of(own, case.size, case.leaves))
    want, scale = canonical(case.size, case.leaves)
    return {
        "same": len(set(comm.allgather(hashlib.sha256(got).hexdigest()))) == 1,
        "canonical": bool(np.array_equal(got, want)),
        "error": float(np.max(np.abs(got - want) / scale)),
    }


def run_many(name: str, comm: Any) -> bool:
    """Are sums right that are under way at the same time and of unlike sizes?"""
    communicator = COMMUNICATORS[name](comm)
    own = communicator.own_leaves(LEAVES)
    sizes = [1 + 997 * i for i in range(IN_FLIGHT)]
    started = [nodes_of(own, size) for size in sizes]
    for nodes in started:
        communicator.start(nodes)
    communicator.finish()
    return not communicator.under_way and all(
        np.allclose(nodes[0].sum, canonical(size)[0], atol=1e-5)
        for nodes, size in zip(started, sizes, strict=True)
    )


def run_lent(comm: Any, size: int) -> dict[str, bool]:
    """Sums of gradients that neighbours read where they lie, changed as soon as a sum is done."""
    communicator = COMMUNICATORS["halving"](comm)
    (mine,) = nodes_of(communicator.own_leaves(LEAVES), size)
    buffer, right = communicator.buffer(2 * size), True
    met = len(communicator.neighbours._views) if communicator.neighbours is not None else 0
    for factor in (1, 2, 4, 8, 16, 32):
        halves = [buffer[:size], buffer[size:]]
        for i, half in enumerate(halves):
            np.multiply(mine.sum, factor << i, out=half)
            communicator.start([Node(mine.first, mine.size, half)])
        communicator.finish()
        right &= all(
            np.array_equal(half, canonical(size)[0] * (factor << i))
            for i, half in enumerate(halves)
        )
        buffer[...] = np.nan
    lent = communicator.neighbours is not None and len(communicator.neighbours._views) > met
    return {"lent": lent, "right": right}


def run_all_cases() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    results, many = [], {}
    comms = {p: world.Split(0 if world.rank < p else MPI.UNDEFINED) for p in RANKS}
    for case in CASES:
        if world.rank < case.ranks:
            results.append(run_case(case, comms[case.ranks]))
        else:
            results.append({})
    for name in COMMUNICATORS:
        right = all([run_many(name, comms[p]) for p in (4, 5) if world.rank < p])
        many[name] = all(world.allgather(right))
    lent = [run_lent(comms[p], n) for p in (2, 4) for n in LENT if world.rank < p]
    lent = [row for rows in world.allgather(lent) for row in rows]
    job.TRIAL_ELEMENTS = 1000
    own = [job._trials(comms[p], "float32") if world.rank < p else {} for p in RANKS]
    trials = [[t for t in each if t] for each in zip(*world.allgather(own), strict=True)]
    if world.rank == 0:
        print(json.dumps({"cases": results, "many": many, "trials": trials, "lent": lent}))


if __name__ == "__main__":
    run_all_cases()
