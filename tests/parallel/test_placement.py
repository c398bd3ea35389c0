"""Which host runs which ranks, and how either mpiexec is told."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.errors import SolverError
from pycaffe_fire.parallel.hosts import order_by_host, own_addresses
from pycaffe_fire.parallel.launch import Ended, find_mpiexec, host_arguments, left_after
from pycaffe_fire.parallel.monitor import Failure, Sign
from pycaffe_fire.parallel.placement import Host, Layout, blocks, parse_hosts, read_hostfile


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
        ("a:2,b:3", "6 ranks do not fit into the 5 slots of the hosts; say -n 5"),
        ("fe80::1", 'IPv4 address for each host, got "fe80::1"'),
    ],
)
def test_hosts_that_make_no_sense_are_refused(hosts: str, message: str) -> None:
    with pytest.raises(SolverError, match=message):
        blocks(6, parse_hosts(hosts))


def test_a_hostfile_may_be_of_either_mpi(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ours\na slots=4\n10.0.0.2:2   # the small one\n\nc  slots = 1\n")
    assert read_hostfile(str(path)) == [Host("a", 4), Host("10.0.0.2", 2), Host("c", 1)]
    path.write_text("a\nb\n")
    assert blocks(4, read_hostfile(str(path))) == [Host("a", 2), Host("b", 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a slots=x", r'hosts:1 wants NAME or NAME:SLOTS.*"a:x"'),
        ("\na b", r'hosts:2 wants .*"a b"'),
        ("a\na", "hosts names a twice"),
        ("# nobody", "hosts: the hostfile names no host"),
    ],
)
def test_hostfiles_that_make_no_sense_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(SolverError, match=message):
        read_hostfile(str(path))
    with pytest.raises(SolverError, match="absent: the hostfile cannot be read: No such file"):
        read_hostfile(str(tmp_path / "absent"))


def test_ranks_of_a_host_become_neighbours_however_they_were_placed() -> None:
    assert order_by_host("aabbcc") == [0, 1, 2, 3, 4, 5]
    assert order_by_host("abcabc") == [0, 3, 1, 4, 2, 5]
    assert order_by_host("baab") == [0, 3, 1, 2]  # rank 0 stays the first
    assert all(len(address.split(".")) == 4 for address in own_addresses())


def after(
    hosts: str, ranks: int, lost: int | None, *, silent: Sequence[int] = (), **more: Any
) -> Any:
    """(ranks, placed) after a failure; `down` are hosts that cannot be reached."""
    failure = (
        Failure(Sign(lost, "not what --hosts says", "", 0.0), "died") if lost is not None else None
    )
    layout = Layout.of(ranks, parse_hosts(hosts))
    down = more.get("down", ())
    left = left_after(
        Ended(1, failure, silent), layout, lambda names: [n for n in names if n in down], print
    )
    return left.ranks, [(host.name, host.slots) for host in left.placed]


@pytest.mark.parametrize(
    ("case", "left"),
    [
        (after("a,b,c", 6, 4, silent=[4, 5]), (4, [("a", 2), ("b", 2)])),
        (after("10.0.0.1,10.0.0.2,10.0.0.3", 6, 0, down=["10.0.0.1"]),
         (4, [("10.0.0.2", 2), ("10.0.0.3", 2)])),
        (after("a,b,c", 6, None, down=["b"]), (4, [("a", 2), ("c", 2)])),
        (after("a,b,c", 8, 0, down=["a", "c"]), (3, [("b", 3)])),
        (after("a,b", 2, 0, down=["a", "b"]), (0, [])),
        (after("a,b,c", 6, 3), (5, [("a", 2), ("b", 1), ("c", 2)])),
        (after("a,b,c", 6, 3, silent=[3]), (5, [("a", 2), ("b", 1), ("c", 2)])),
        (after("a,b", 2, 1), (1, [("a", 1)])),
        (after("a:4,b:4,c:4", 6, 0, down=["a"]), (6, [("b", 4), ("c", 2)])),
        (after("a,b,c", 2, 0, down=["a"]), (2, [("b", 1), ("c", 1)])),
        (after("", 4, 2), (3, [])),
        (after("", 1, 0), (1, [])),
        (after("a", 1, 0), (1, [("a", 1)])),
    ],
    ids=["silent host", "host by address", "host without a word", "two hosts", "all hosts",
         "dead rank", "hanging rank", "only rank of a host", "slots to spare", "hosts to spare",
         "this machine", "alone", "alone on a host"],
)  # fmt: skip
def test_a_lost_host_takes_all_its_ranks_and_a_lost_rank_itself(case: Any, left: Any) -> None:
    assert case == left


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
