"""What the ranks of one host read of a database: no record twice, from memory that they share.

mpiexec runs this file as two ranks.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.data.db import LmdbDatabase, open_database
from pycaffe_fire.parallel.communicators import COMMUNICATORS
from tests.parallel.ranks import run_ranks
from tests.solver.solver_cases import SGD, body, make, records_layer, write_records

RANKS, BATCH, STEPS = 2, 8, 6
RECORDS = 2 * BATCH * STEPS  # half an epoch is trained, so that nothing comes twice
PIXELS = 2 * 7 * 7  # of one record


# What every rank does.


class CountedDatabase(LmdbDatabase):
    reads: list[int] = []

    def record(self, index: int) -> memoryview:
        self.reads.append(index)
        return super().record(index)


def train(path: str, comm: Any) -> dict[str, Any]:
    net = records_layer(path, BATCH) + body()
    solver = make(net, SGD, communicator=COMMUNICATORS["halving"](comm), leaves=RANKS)
    solver.step(STEPS)
    reads = list(CountedDatabase.reads)
    database = open_database(path)
    for record in range(RECORDS):
        bytes(database.record(record))
    comm.Barrier()  # now both have touched all pages
    found = {"reads": reads, **mapped_kilobytes("data.mdb")}
    comm.Barrier()
    solver.close()
    return found


def mapped_kilobytes(name: str) -> dict[str, int]:
    """What of a mapped file is in memory (Rss), and this process's share of it (Pss)."""
    maps = Path("/proc/self/smaps").read_text()
    found = re.search(rf"/{re.escape(name)}\n(?:\w+: .*\n)*", maps)
    assert found, f"{name} is not mapped"
    sizes = {what: int(size) for what, size in re.findall(r"(\w+): +(\d+) kB", found[0])}
    return {"resident": sizes["Rss"], "share": sizes["Pss"]}


def run() -> None:
    from mpi4py import MPI

    from pycaffe_fire.data import db

    db.LmdbDatabase = CountedDatabase  # type: ignore[misc]
    world = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory() as mine:
        if world.rank == 0:
            write_records(Path(mine), RECORDS)
        everyone = world.gather(train(world.bcast(mine) + "/records_lmdb", world))
    if everyone:
        print(json.dumps(everyone))


# What pytest does.


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    if not Path("/proc/self/smaps").exists():
        pytest.skip("only Linux says which memory processes share")
    answer: list[dict[str, Any]] = run_ranks("tests.parallel.test_host_reads", RANKS)
    return answer


def test_a_record_is_read_by_one_rank_and_once(ranks: list[dict[str, Any]]) -> None:
    reads = [record for rank in ranks for record in rank["reads"]]
    for _ in ranks:
        reads.remove(0)  # each of them took the shape from the first record
    assert len(reads) == len(set(reads))
    assert set(range(BATCH * STEPS)) <= set(reads)


def test_pages_of_a_database_are_in_memory_once(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["resident"] >= RECORDS * PIXELS / 1024
        assert rank["share"] <= 0.6 * rank["resident"]


if __name__ == "__main__":
    run()
