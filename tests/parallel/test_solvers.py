"""Every solver on any number of ranks: the same weights, the same tests, and resuming on another.

mpiexec runs this file as three ranks, once for all tests; ranks 0 .. p-1 train together.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pycaffe_fire.parallel.communicators import COMMUNICATORS
from pycaffe_fire.solver import Solver
from tests.parallel.ranks import run_ranks
from tests.parallel.test_leaves import BATCH_NORM
from tests.solver.solver_cases import DROPOUT, body, make, records_layer, weights, write_records

RANKS, LEAVES, STEPS = (1, 2, 3), 8, 4
RULES = {
    "SGD": "momentum: 0.9", "Nesterov": "momentum: 0.9", "AdaGrad": "", "AdaDelta": "momentum: 0.9",
    "RMSProp": "rms_decay: 0.9", "Adam": "momentum: 0.9",
}  # fmt: skip
CLIPPING = ("", "clip_gradients: 0.01")


class Case(NamedTuple):
    rule: str
    clipping: str
    ranks: int


CASES = [Case(*c) for c in itertools.product(RULES, CLIPPING, RANKS)]


# What every rank does.


def solver_of(case: Case, comm: Any, folder: str) -> Solver:
    net = records_layer(f"{folder}/records_lmdb", 8, "") + body(between=BATCH_NORM + DROPOUT)
    net += (
        'layer { name: "right" type: "Accuracy" bottom: "ip" bottom: "label" top: "right" '
        "include { phase: TEST } }"
    )
    settings = (
        f'type: "{case.rule}" {RULES[case.rule]} base_lr: 0.01 lr_policy: "fixed" random_seed: 5 '
        f"weight_decay: 0.01 {case.clipping} test_iter: 7 test_interval: 1000 "
        f'test_initialization: false snapshot_prefix: "{folder}/{case.rule}"'
    )
    return make(net, settings, communicator=COMMUNICATORS["halving"](comm), leaves=LEAVES)


def digest(solver: Solver) -> str:
    return hashlib.sha256(b"".join(v.tobytes() for v in weights(solver).values())).hexdigest()


def run_case(case: Case, comm: Any, folder: str) -> dict[str, Any]:
    solver = solver_of(case, comm, folder)
    solver.step(STEPS)
    outputs = [(output.name, output.value.hex()) for output in solver.test(0)]
    found = {"weights": digest(solver), "test": outputs}
    solver.close()
    return found


def resume(rule: str, comms: dict[int, Any], rank: int, folder: str) -> list[str]:
    """What ranks of one number have after going on where others of another stopped."""
    found = []
    for before, after in ((1, 3), (3, 2), (2, 3)):
        if rank < before:
            solver = solver_of(Case(rule, CLIPPING[1], before), comms[before], folder)
            solver.step(STEPS // 2)
            solver.snapshot()
            solver.close()
        comms[max(RANKS)].Barrier()
        if rank < after:
            solver = solver_of(Case(rule, CLIPPING[1], after), comms[after], folder)
            solver.restore(f"{folder}/{rule}_iter_{STEPS // 2}.solverstate")
            solver.step(STEPS - STEPS // 2)
            found.append(digest(solver))
            solver.close()
        comms[max(RANKS)].Barrier()
    return found


def run_all_cases() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    comms = {p: world.Split(0 if world.rank < p else MPI.UNDEFINED) for p in RANKS}
    with tempfile.TemporaryDirectory() as mine:
        if world.rank == 0:
            write_records(Path(mine))
        folder = world.bcast(mine)
        cases = [run_case(c, comms[c.ranks], folder) if world.rank < c.ranks else {} for c in CASES]
        resumed = {rule: resume(rule, comms, world.rank, folder) for rule in RULES}
        everyone = world.gather((cases, resumed))
    if everyone:
        print(json.dumps(everyone))


# What pytest does.


@pytest.fixture(scope="module")
def results() -> list[Any]:
    """(cases, resumed) of every rank."""
    answer: list[Any] = run_ranks("tests.parallel.test_solvers", max(RANKS))
    return answer


def found_by(results: list[Any], rule: str, clipping: str, what: str) -> set[str]:
    """Different answers over all ranks of all sizes."""
    return {
        str(found[what])
        for cases, _ in results
        for case, found in zip(CASES, cases, strict=True)
        if found and (case.rule, case.clipping) == (rule, clipping)
    }


@pytest.mark.parametrize("clipping", CLIPPING, ids=["plain", "clipped"])
@pytest.mark.parametrize("rule", RULES)
def test_weights_have_the_same_bits(results: list[Any], rule: str, clipping: str) -> None:
    assert len(found_by(results, rule, clipping, "weights")) == 1


def test_clipping_and_rules_make_a_difference(results: list[Any]) -> None:
    """Else the test above would show nothing."""
    found = [found_by(results, r, c, "weights").pop() for r in RULES for c in CLIPPING]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("rule", RULES)
def test_tests_shared_among_ranks_have_the_same_bits(results: list[Any], rule: str) -> None:
    """Seven passes over two and three ranks, added up in order of passes."""
    (outputs,) = found_by(results, rule, "", "test")
    assert "right" in outputs and "loss" in outputs


@pytest.mark.parametrize("rule", RULES)
def test_resuming_on_another_number_of_ranks(results: list[Any], rule: str) -> None:
    straight = found_by(results, rule, CLIPPING[1], "weights")
    assert {digest for _, resumed in results for digest in resumed[rule]} == straight


if __name__ == "__main__":
    run_all_cases()
