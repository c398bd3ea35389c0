"""Sums of gradients on devices: NCCL, MPI on device memory, host copies; and which is chosen.

mpiexec runs this file as four ranks, once for all tests. The device is a stand-in that does its
work as late as it may, NCCL one that talks MPI: no hardware has run any of this.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pycaffe_fire.errors import SolverError
from pycaffe_fire.parallel import device, waiting
from pycaffe_fire.parallel.communicators import COMMUNICATORS, RankCommunicator
from pycaffe_fire.parallel.communicators.base import segments
from pycaffe_fire.parallel.device import adapted
from pycaffe_fire.parallel.device.direct import Direct, mpi_reads_devices
from pycaffe_fire.parallel.device.nccl import Nccl, NcclCommunicator
from pycaffe_fire.parallel.device.nccl_tree import NcclTree
from pycaffe_fire.parallel.device.staged import Staged
from pycaffe_fire.parallel.launch import find_mpiexec
from pycaffe_fire.parallel.tree import Node
from tests.parallel.communicator_ranks import (
    LEAVES,
    canonical,
    leaf_values,
    nodes_of,
)
from tests.parallel.queued_device import Array, QueuedBackend, empty
from tests.parallel.ranks import run_ranks
from tests.parallel.test_jobs import write

RANKS = (2, 3, 4)
SIZES = (1, 3, 1024, 4097)
WIRES = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
WAYS = (
    "nccl",
    "nccl tree",
    *(f"direct {name}" for name in ("halving", "tree", "server", "ring")),
    "staged",
)


class Case(NamedTuple):
    way: str
    ranks: int
    wire: str


CASES = [Case(*c) for c in itertools.product(WAYS, RANKS, WIRES)]


# What every rank does.


def make(case: Case, comm: Any, backend: QueuedBackend) -> Any:
    from tests.parallel import queued_nccl

    way, _, name = ("tree", "", "") if case.way == "nccl tree" else case.way.partition(" ")
    queued_nccl.calls.clear()
    queued_nccl.comm = comm
    inner = COMMUNICATORS[name or "halving"](comm, case.wire)
    kinds: dict[str, Any] = {"nccl": Nccl, "tree": NcclTree, "direct": Direct, "staged": Staged}
    made: Any = kinds[way](inner, backend)
    if isinstance(made, NcclCommunicator):
        made.join()
    return made


def on_device(nodes: list[Node]) -> list[Node]:
    """Copies that are there when the compute stream has got to them, and not before."""
    made = []
    for node in nodes:
        values = empty(node.sum.size, np.float32)
        values[...] = Array(node.sum)
        made.append(Node(node.first, node.size, values))
    return made


def run_case(case: Case, comm: Any) -> dict[str, Any]:
    from tests.parallel import queued_nccl

    backend = QueuedBackend(comm.rank)
    communicator = make(case, comm, backend)
    own = communicator.own_leaves(LEAVES)
    errors, same = [], True
    for _ in range(2):  # the second time in memory that was used before
        backend.activate()
        buckets = [on_device(nodes_of(own, size)) for size in SIZES]
        before = backend.compute.done
        for nodes in buckets:
            communicator.start(nodes)
        waited = backend.compute.done != before
        communicator.finish()
        backend.activate()
        copies = [empty(size, np.float32) for size in SIZES]
        for copy, nodes in zip(copies, buckets, strict=True):
            copy[...] = nodes[0].sum
        backend.compute.synchronize()
        for copy, size in zip(copies, SIZES, strict=True):
            want, scale = canonical(size)
            errors.append(float(np.max(np.abs(copy.host - want) / scale)))
            same = same and len(set(comm.allgather(copy.host.tobytes()))) == 1
    exact = all(np.array_equal(c.host, canonical(s)[0]) for c, s in zip(copies, SIZES, strict=True))
    calls = [[c.hex() if isinstance(c, bytes) else c for c in call] for call in queued_nccl.calls]
    return {
        "error": np.max(errors), "same": same, "exact": exact, "waited": waited,
        "under way": communicator.under_way, "calls": calls, "text": communicator.describe(),
        "stream": getattr(communicator, "_stream", 0), "compute": backend.compute.ptr,
    }  # fmt: skip


def run_all_cases() -> None:
    from mpi4py import MPI

    sys.modules["cupy.cuda.nccl"] = importlib.import_module("tests.parallel.queued_nccl")
    world = MPI.COMM_WORLD
    comms = {p: world.Split(0 if world.rank < p else MPI.UNDEFINED) for p in RANKS}
    found = [run_case(c, comms[c.ranks]) if world.rank < c.ranks else {} for c in CASES]
    everyone = world.gather(found)
    if everyone:
        print(json.dumps([[r for r in results if r] for results in zip(*everyone, strict=True)]))


# What pytest does.

Results = list[tuple[Case, list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def results() -> Results:
    found = run_ranks("tests.parallel.test_device_sums", max(RANKS))
    return list(zip(CASES, found, strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_sums_are_right_and_the_same_everywhere(results: Results, way: str) -> None:
    for case, ranks in results:
        if case.way == way:
            bound = (max(LEAVES, case.ranks) + 1) * WIRES[case.wire]
            assert all(r["error"] <= bound and r["same"] and not r["under way"] for r in ranks), (
                case
            )


@pytest.mark.parametrize(
    "way", ["nccl tree", "direct halving", "direct tree", "direct server", "staged"]
)
def test_the_tree_has_its_bits_on_devices_too(results: Results, way: str) -> None:
    plain = [ranks for case, ranks in results if case.way == way and case.wire == "float32"]
    assert plain and all(r["exact"] for ranks in plain for r in ranks)


def test_16_bits_really_travel(results: Results) -> None:
    for case, ranks in results:
        if case.wire != "float32":
            assert all(r["error"] > WIRES[case.wire] / 16 for r in ranks), case


def nccl_calls(
    results: Results, wire: str, way: str = "nccl"
) -> Iterator[tuple[Case, int, dict[str, Any]]]:
    for case, ranks in results:
        if (case.way, case.wire) == (way, wire):
            yield from ((case, rank, found) for rank, found in enumerate(ranks))


def test_rank_0_names_the_nccl_group_and_all_join_it(results: Results) -> None:
    for case, ranks in results:
        if case.way.startswith("nccl"):
            first = [[call for call in r["calls"] if call[0] != "init"][0][0] for r in ranks]
            assert (first[0] == "get_unique_id") and "get_unique_id" not in first[1:]
            joined = [next(c for c in r["calls"] if c[0] == "init") for r in ranks]
            assert [(n, rank) for _, n, _, rank in joined] == [
                (case.ranks, rank) for rank in range(case.ranks)
            ]
            assert len({name for _, _, name, _ in joined}) == 1


DATATYPES = [("float32", 7), ("float16", 6), ("bfloat16", 9)]


@pytest.mark.parametrize(("wire", "datatype"), DATATYPES)
def test_nccl_is_asked_for_whole_buckets_on_its_own_stream(
    results: Results, wire: str, datatype: int
) -> None:
    for _, _, found in nccl_calls(results, wire):
        sums = [call for call in found["calls"] if call[0] == "allReduce"]
        assert sums == [["allReduce", size, datatype, found["stream"]] for size in SIZES * 2]
        assert found["stream"] != found["compute"]


@pytest.mark.parametrize(("wire", "datatype"), DATATYPES)
def test_the_tree_sends_as_much_as_a_ring(results: Results, wire: str, datatype: int) -> None:
    """With one node for each rank: of every bucket all pieces but the own one, twice."""
    for case, rank, found in nccl_calls(results, wire, "nccl tree"):
        calls = [c for c in found["calls"] if c[0] not in ("get_unique_id", "init")]
        assert {tuple(c[2:]) for c in calls} == {(datatype, found["stream"])}
        assert {c[0] for c in calls} == {"send", "recv"}
        if case.ranks == 3:
            continue  # one of them has two nodes
        for name in ("send", "recv"):
            elements = sum(c[1] for c in calls if c[0] == name)
            assert elements == 2 * sum(_travels(size, case.ranks, rank, name) for size in SIZES)


def _travels(size: int, ranks: int, rank: int, way: str) -> int:
    """Elements of one bucket: pieces of the nodes (the own one to itself), then of the sum."""
    part = segments(size, ranks)[rank]
    own = part.stop - part.start
    first, second = size, (ranks - 1) * own
    return first + second if way == "send" else ranks * own + size - own


def test_nobody_waits_for_the_device_while_backward_runs(results: Results) -> None:
    """A bucket is handed to NCCL without a look at what computes it."""
    for wire, way in itertools.product(WIRES, ("nccl", "nccl tree")):
        assert not any(found["waited"] for _, _, found in nccl_calls(results, wire, way))


def test_descriptions_say_which_way_gradients_go(results: Results) -> None:
    texts = {(case.way, case.ranks): ranks[0]["text"] for case, ranks in results}
    assert texts["nccl", 3] == "nccl, 3 ranks, bfloat16 on the wire; bits depend on their number"
    assert texts["nccl tree", 4] == "tree over nccl, 4 ranks, bfloat16 on the wire"
    assert texts["direct halving", 2] == "halving, 2 ranks, MPI on device memory"
    assert texts["staged", 4] == "halving, 4 ranks, through host memory"


def test_the_stand_in_takes_what_nccl_takes() -> None:
    from tests.parallel import queued_nccl

    file = Path(__file__).parents[1] / "cuda" / "cupy_api.json"
    signatures = json.loads(file.read_text())["signatures"]
    for name in ("__init__", "allReduce", "allGather", "send", "recv", "check_async_error"):
        path = "cuda.nccl.NcclCommunicator" + ("" if name == "__init__" else f".{name}")
        theirs = re.findall(r"(\w+)(?:=\w+)?(?=[,)])", signatures[path])
        mine = inspect.signature(getattr(queued_nccl.NcclCommunicator, name)).parameters
        assert [p for p in mine if p != "self"] == [p for p in theirs if p != "self"]


# The choice.


class FakeComm:
    """MPI as rank 0 of two sees it; `places` and `failures` are what ranks answer."""

    def __init__(self, places: list[device.Place]) -> None:
        self.places = places
        self.failures = ["", ""]

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 2

    def allgather(self, value: Any) -> list[Any]:
        if isinstance(value, device.Place):
            return self.places
        return [value or text for text in self.failures]

    def bcast(self, value: Any) -> Any:
        return value


def communicator_of(comm: FakeComm, name: str = "halving") -> RankCommunicator:
    """One that asks these answers instead of other ranks."""
    made: Any = COMMUNICATORS[name](comm)
    made.gather = made.gather_now = comm.allgather
    made.broadcast = comm.bcast
    return made


GPU = functools.partial(device.Place, "node", no_nccl="", direct=False)
PAIR = [GPU("a"), GPU("b")]


def choose(
    monkeypatch: pytest.MonkeyPatch, places: list[device.Place], wanted: str = "",
    failures: list[str] | None = None, name: str = "halving",
) -> Any:  # fmt: skip
    from tests.parallel import queued_nccl

    comm = FakeComm(places)
    comm.failures = failures or ["", ""]
    queued_nccl.comm = types.SimpleNamespace(Dup=lambda: None)
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", queued_nccl)
    inner = communicator_of(comm, name)
    inner.wanted = wanted
    return adapted(inner, QueuedBackend())  # type: ignore[arg-type]


def test_nccl_where_every_rank_has_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose(monkeypatch, PAIR), NcclTree)
    assert isinstance(choose(monkeypatch, PAIR, "nccl"), Nccl)


def test_a_name_of_another_communicator_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose(monkeypatch, PAIR, "halving"), Staged)


SHARED = [GPU("a"), GPU("a")]
LACKING = [GPU("a"), device.Place("far", "b", "CuPy finds no NCCL library", False)]
MIXED = [GPU("a"), device.Place("far", "", "it computes on the CPU", False)]


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        (SHARED, "2 ranks share GPU a on node"),
        (LACKING, "rank 1 on far: CuPy finds no NCCL"),
        (MIXED, "rank 1 on far: it computes on the CPU"),
    ],
)
def test_where_nccl_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, places: list[device.Place], reason: str
) -> None:
    assert isinstance(choose(monkeypatch, places), Staged)
    with pytest.raises(SolverError, match=f"--communicator nccl cannot be used: {reason}"):
        choose(monkeypatch, places, "nccl")


def test_nccl_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        failed = choose(monkeypatch, PAIR, failures=["", "rank 1 on far: system error"])
    assert isinstance(failed, Staged)
    assert "NCCL does not start" in caplog.text and "rank 1 on far: system error" in caplog.text
    with pytest.raises(SolverError, match="NCCL does not start; rank 1 on far: system error"):
        choose(monkeypatch, PAIR, "nccl", failures=["", "rank 1 on far: system error"])


def test_a_rank_that_fails_to_join_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait inside NCCL by then, so there is nobody left to agree with."""
    from tests.parallel import queued_nccl

    def refuse(*_: Any) -> None:
        raise RuntimeError("unhandled cuda error")

    monkeypatch.setattr(queued_nccl, "NcclCommunicator", refuse)
    with pytest.raises(SolverError, match=r"rank 0 on .*: unhandled cuda error\. --communicator"):
        choose(monkeypatch, PAIR)


def test_a_rank_that_cannot_even_begin_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.parallel import queued_nccl

    def refuse() -> None:
        raise RuntimeError("no network interface")

    monkeypatch.setattr(queued_nccl, "get_unique_id", refuse)
    queued_nccl.calls.clear()
    assert isinstance(choose(monkeypatch, PAIR), Staged)
    assert not any(call[0] == "init" for call in queued_nccl.calls)


@pytest.mark.parametrize(("name", "kind"), [("tree", Direct), ("mpi", Staged)])
def test_mpi_on_device_memory_where_all_can(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: type
) -> None:
    able = [device.Place("node", "a", "no", True), device.Place("node", "a", "no", True)]
    assert isinstance(choose(monkeypatch, able, name=name), kind)
    assert isinstance(choose(monkeypatch, [able[0], GPU("b")], name, name=name), Staged)


@pytest.mark.parametrize(("value", "able"), [("1", True), ("0", False)])
def test_switches_of_mpi_libraries(monkeypatch: pytest.MonkeyPatch, value: str, able: bool) -> None:
    monkeypatch.setenv("MPICH_GPU_SUPPORT_ENABLED", value)
    assert mpi_reads_devices() is able


def test_the_mpi_library_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpi4py")
    assert mpi_reads_devices() is False  # the wheel's MPICH knows no CUDA
    answers = {"MPIX_Query_cuda_support": lambda: 1}

    class Library:
        __getitem__ = staticmethod(answers.__getitem__)
        MPIX_Query_cuda_support = answers["MPIX_Query_cuda_support"]

    monkeypatch.setattr("ctypes.CDLL", lambda path: Library())
    assert mpi_reads_devices() is True


# A whole job.


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The losses of a small net, trained by two ranks with these flags, and their log."""
    pytest.importorskip("mpi4py")
    if shutil.which("g++") is None:
        pytest.skip("kernels are emulated with g++, which is not there")
    folder = tmp_path_factory.mktemp("gpus")
    write(folder, 4)

    def run(program: str, *flags: str) -> tuple[list[float], str]:
        done = subprocess.run(
            [find_mpiexec(), "-n", "2", sys.executable, *program.split(), "--solver",
             "solver.prototxt", "--threads", "1", *flags],
            cwd=folder, capture_output=True, text=True, timeout=200,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        found = re.findall(r"Iteration \d.*, loss = (\S+)", done.stderr)
        return [float(loss) for loss in found], done.stderr

    return run


@pytest.fixture(scope="module")
def cpu_losses(losses: Any) -> list[float]:
    found: list[float] = losses("-m pycaffe_fire.cli.fire_train")[0]
    return found


GPU_RANK = "-m tests.parallel.gpu_rank"


@pytest.mark.parametrize(
    ("flags", "way"),
    [
        (("--gpu", "all"), "tree over nccl, 2 ranks"),
        (
            ("--gpu", "all", "--communicator", "nccl"),
            "nccl, 2 ranks; bits depend on their number",
        ),
        (("--gpu", "all", "--communicator", "tree"), "tree, 2 ranks, through host memory"),
    ],
)
def test_ranks_on_gpus_train_as_on_cpus(
    losses: Any, cpu_losses: list[float], flags: tuple[str, ...], way: str
) -> None:
    got, log = losses(GPU_RANK, *flags)
    assert f"Communicator: {way}\n" in log, log[-2000:]
    assert len(cpu_losses) == 5 and got == pytest.approx(cpu_losses, rel=1e-3)


def test_nccl_for_cpus_is_one_sentence(losses: Any) -> None:
    _, log = losses("-m pycaffe_fire.cli.fire_train", "--communicator", "nccl")
    assert log.count("nccl cannot be used: rank 0 on") == 1 and "Traceback" not in log


# What goes wrong.


def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = choose(monkeypatch, PAIR, "nccl")
    monkeypatch.setattr("tests.parallel.queued_device.Event.done", False)
    made._backend.activate()
    made.start([Node(0, 1, Array(leaf_values(0, 4).copy()))])
    made.finish()  # of the iteration that is still under way nobody asks
    return made


def test_a_silent_rank_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    made = started(monkeypatch)
    made._inner.waiting.patience = 0.05
    with pytest.raises(waiting.PeerTimeout, match="no answer from the other ranks"):
        made.finish()


def test_an_error_that_nccl_reports_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made = started(monkeypatch)
    made._group.error = "remote process exited"
    with pytest.raises(SolverError, match="NCCL lost another rank: remote process exited"):
        made.finish()


if __name__ == "__main__":
    run_all_cases()
