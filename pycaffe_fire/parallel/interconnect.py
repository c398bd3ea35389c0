"""What a job runs on: its hosts and devices, what connects them, measured when it starts, and a
warning where a fast network is there but not in use."""  # fmt: skip

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..backend.hardware import hardware
from .communicator import Communicator
from .measure import quick_link

log = logging.getLogger("pycaffe_fire")

SYSFS = Path("/sys")
OPEN_FILES = Path("/proc/self/fd")
RDMA_FILES = ("/dev/infiniband/", "/dev/hfi1", "/dev/ipath")  # what a library that uses RDMA opens
WITHIN, BETWEEN = "within a host", "between hosts"


@dataclass(frozen=True)
class Link:
    """A connection of two ranks: seconds for a small message, bytes per second for large ones."""

    where: str
    ranks: tuple[int, int]
    latency: float
    bandwidth: float

    def __str__(self) -> str:
        first, second = self.ranks
        return (
            f"{self.where} {speed_text(self.latency, self.bandwidth)} (ranks {first} and {second})"
        )


def speed_text(latency: float, bandwidth: float) -> str:
    """`25 us, 9.4 Gbit/s`"""
    microseconds = 1e6 * latency
    shown = f"{microseconds:.3g}" if microseconds < 100 else f"{microseconds:,.0f}"
    return f"{shown} us, {8e-9 * bandwidth:.3g} Gbit/s"


@dataclass(frozen=True)
class JobHost:
    """A host: how many ranks it has, on what, and its processor, cores and memory."""

    name: str
    ranks: int
    devices: list[str]
    processor: str
    cores: int
    memory_bytes: int


@dataclass(frozen=True)
class Job:
    """All hosts, in order of ranks, and the links that were measured."""

    hosts: list[JobHost] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


def survey(ranks: Communicator, device: str) -> Job:
    """What this job runs on; all ranks call it, each with the device that it computes on."""
    everyone = ranks.gather((hardware(), device, rdma_devices(), uses_rdma()))
    names = [str(machine["host"]) for machine, *_ in everyone]
    hosts = []
    for name in dict.fromkeys(names):
        own = [each for each in everyone if each[0]["host"] == name]
        machine, devices = own[0][0], list(dict.fromkeys(each[1] for each in own))
        hosts.append(
            JobHost(
                name, len(own), devices, machine["processor"], machine["cores"],
                machine["memory_bytes"],
            )
        )  # fmt: skip
    links = _measured(ranks, names)
    if ranks.rank == 0 and len(hosts) > 1 and (warning := unused_rdma(names, everyone)):
        log.warning("%s", warning)
    return Job(hosts, links)


def _measured(ranks: Communicator, names: Sequence[str]) -> list[Link]:
    """A pair of ranks on one host, and a pair on two, as far as there are such."""
    comm = getattr(ranks, "comm", None)
    if comm is None:
        return []
    pairs = {
        WITHIN: (0, next((r for r, name in enumerate(names) if r and name == names[0]), 0)),
        BETWEEN: (0, next((r for r, name in enumerate(names) if name != names[0]), 0)),
    }
    return [Link(where, pair, *quick_link(comm, *pair)) for where, pair in pairs.items() if pair[1]]


# RDMA.


def rdma_devices(root: Path | None = None) -> list[str]:
    """The devices with a port that works, as the kernel lists them below `root`."""
    found = []
    for device in sorted((root or SYSFS).glob("class/infiniband/*")):
        states = (_read(port) for port in device.glob("ports/*/state"))
        if any("ACTIVE" in state for state in states):
            found.append(device.name)
    return found


def uses_rdma(files: Path | None = None) -> bool:
    """Has a library of this process opened such a device?"""
    for entry in (files or OPEN_FILES).glob("*"):
        with suppress(OSError):
            if os.readlink(entry).startswith(RDMA_FILES):
                return True
    return False


def unused_rdma(names: Sequence[str], everyone: Sequence[Any]) -> str:
    """What to say where messages between hosts do not use the RDMA devices that are there."""
    idle = {
        name: devices
        for name, (_, _, devices, used) in zip(names, everyone, strict=True)
        if devices and not used
    }
    if not idle:
        return ""
    host, devices = next(iter(idle.items()))
    others = f", like {len(idle) - 1} other," if len(idle) > 1 else ""
    return (
        f"gradients go over TCP, although host {host}{others} has an RDMA device that is up "
        f"({', '.join(devices)}): set FI_PROVIDER=verbs (MPICH) or UCX_TLS=all (UCX), or use your "
        f"site's MPI"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
