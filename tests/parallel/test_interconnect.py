"""What a job runs on, and a fast network that is there but not in use."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.parallel import interconnect
from pycaffe_fire.parallel.communicator import SerialCommunicator
from pycaffe_fire.parallel.interconnect import Link, rdma_devices, survey, uses_rdma


def device(root: Path, name: str, state: str) -> None:
    port = root / "class" / "infiniband" / name / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")


def test_devices_whose_port_is_up(tmp_path: Path) -> None:
    assert rdma_devices(tmp_path) == []
    device(tmp_path, "mlx5_1", "1: DOWN")
    device(tmp_path, "mlx5_0", "4: ACTIVE")
    assert rdma_devices(tmp_path) == ["mlx5_0"]


def test_a_library_that_uses_rdma_has_its_file_open(tmp_path: Path) -> None:
    (tmp_path / "3").symlink_to("socket:[123]")
    assert not uses_rdma(tmp_path)
    (tmp_path / "4").symlink_to("/dev/infiniband/uverbs0")
    assert uses_rdma(tmp_path)


class Ranks(SerialCommunicator):
    """Rank 0 of a job whose ranks are on these hosts, all alike otherwise."""

    def __init__(self, *hosts: str) -> None:
        self.hosts, self.size = hosts, len(hosts)

    def gather(self, value: Any) -> list[Any]:
        machine, *rest = value
        return [({**machine, "host": host}, *rest) for host in self.hosts]


@pytest.mark.parametrize(
    ("hosts", "state", "opened", "told"),
    [(("a", "b"), "4: ACTIVE", "socket:[1]", True),
     (("a", "b"), "4: ACTIVE", "/dev/infiniband/uverbs0", False),
     (("a", "b"), "1: DOWN", "socket:[1]", False),
     (("a", "a"), "4: ACTIVE", "socket:[1]", False)],
    ids=["over TCP", "over RDMA", "no port is up", "one host"],
)  # fmt: skip
def test_gradients_over_tcp_although_there_is_rdma(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    hosts: tuple[str, ...], state: str, opened: str, told: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(interconnect, "SYSFS", tmp_path / "sys")
    monkeypatch.setattr(interconnect, "OPEN_FILES", tmp_path / "fd")
    device(tmp_path / "sys", "mlx5_0", state)
    (tmp_path / "fd").mkdir()
    (tmp_path / "fd" / "3").symlink_to(opened)
    with caplog.at_level(logging.WARNING):
        job = survey(Ranks(*hosts), "oneDNN")
    assert [host.name for host in job.hosts] == list(dict.fromkeys(hosts))
    expected = "gradients go over TCP, although host a, like 1 other, has an RDMA device that is up"
    assert (expected in caplog.text) == told
    assert bool(caplog.records) == told


def test_a_process_alone_has_one_host_and_no_links() -> None:
    job = survey(SerialCommunicator(), "oneDNN")
    (host,) = job.hosts
    assert (host.ranks, host.devices, job.links) == (1, ["oneDNN"], [])
    assert host.cores > 0


def test_hosts_with_several_ranks() -> None:
    job = survey(Ranks("a", "a", "b"), "a GPU")
    assert [(host.name, host.ranks, host.devices) for host in job.hosts] == [
        ("a", 2, ["a GPU"]), ("b", 1, ["a GPU"]),
    ]  # fmt: skip


def test_a_link_in_words() -> None:
    link = Link("between hosts", (0, 4), 25e-6, 1.175e9)
    assert str(link) == "between hosts 25 us, 9.4 Gbit/s (ranks 0 and 4)"
