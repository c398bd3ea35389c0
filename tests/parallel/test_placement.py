"""Which host runs which ranks, and how either mpiexec is told."""

from __future__ import annotations

import socket
import subprocess

import pytest

from pycaffe_fire.errors import SolverError
from pycaffe_fire.parallel.launch import find_mpiexec, host_arguments
from pycaffe_fire.parallel.placement import Host, blocks, parse_hosts


@pytest.mark.parametrize(
    ("hosts", "ranks", "placed"),
    [
        ("a,b", 8, [("a", 4), ("b", 4)]),
        ("a,b,c", 8, [("a", 3), ("b", 3), ("c", 2)]),
        ("a,b,c", 2, [("a", 1), ("b", 1)]),
        ("10.0.0.1, 10.0.0.2", 2, [("10.0.0.1", 1), ("10.0.0.2", 1)]),
        ("a:4,b:2", 6, [("a", 4), ("b", 2)]),
        ("a:4,b:2", 3, [("a", 3)]),
        ("", 4, []),
    ],
)
def test_ranks_are_placed_in_blocks(hosts: str, ranks: int, placed: list[tuple[str, int]]) -> None:
    assert blocks(ranks, parse_hosts(hosts)) == [Host(*each) for each in placed]


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ("a:,b:2", 'NAME:SLOTS.*"a:"'),
        ("a:0", '"a:0"'),
        ("a,b,a", "names a twice"),
        ("a:2,b", "with every host or with none"),
        ("a:2,b:3", "6 ranks do not fit into the 5 slots of --hosts; say -n 5"),
    ],
)
def test_hosts_that_make_no_sense_are_refused(hosts: str, message: str) -> None:
    with pytest.raises(SolverError, match=message):
        blocks(6, parse_hosts(hosts))


def test_either_mpiexec_is_told_in_its_own_words() -> None:
    placed = blocks(6, parse_hosts("a,b"))
    assert host_arguments(placed, open_mpi=False) == ["-hosts", "a:3,b:3"]
    assert host_arguments(placed, open_mpi=True) == ["--host", "a:3,b:3", "--map-by", "slot"]
    assert host_arguments([], open_mpi=True) == []


def test_neighbours_share_a_host_under_a_real_mpiexec() -> None:
    """MPICH takes two names of this machine for two hosts."""
    try:
        mpiexec = find_mpiexec()
    except SolverError as error:
        pytest.skip(str(error))
    if "HYDRA" not in subprocess.run([mpiexec, "--version"], capture_output=True, text=True).stdout:
        pytest.skip("reads what MPICH's mpiexec tells ranks")
    placed = blocks(4, parse_hosts(f"localhost,{socket.gethostname()}"))
    show = ["sh", "-c", "echo $PMI_RANK is $MPI_LOCALRANKID of $MPI_LOCALNRANKS"]
    done = subprocess.run(
        [mpiexec, "-n", "4", *host_arguments(placed, open_mpi=False), *show],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == [
        "0 is 0 of 2", "1 is 1 of 2", "2 is 0 of 2", "3 is 1 of 2"
    ], done.stderr  # fmt: skip
