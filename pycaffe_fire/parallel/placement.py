"""Which host runs which ranks: neighbours together, so that large exchanges stay in its memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import SolverError


@dataclass(frozen=True)
class Host:
    """A host by name or address, and how many ranks it has room for, if somebody said so."""

    name: str
    slots: int | None = None


def parse_hosts(text: str) -> list[Host]:
    """What --hosts says: names or IPv4 addresses, each with :SLOTS if not all are alike."""
    parts = filter(None, (part.strip() for part in text.split(",")))
    return _checked([_host(part, "--hosts") for part in parts], "--hosts")


def read_hostfile(path: str) -> list[Host]:
    """A host per line, as MPICH (NAME:SLOTS) or Open MPI (NAME slots=SLOTS) has it; # comments."""
    try:
        with open(path) as file:
            lines = [line.partition("#")[0].strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "") or error
        raise SolverError(f"{path}: the hostfile cannot be read: {reason}") from error
    hosts = []
    for number, line in enumerate(lines, 1):
        if line:
            where = f"{path}:{number}"
            hosts.append(_host(re.sub(r"\s+slots\s*=\s*", ":", line), where))
    if not hosts:
        raise SolverError(f"{path}: the hostfile names no host")
    return _checked(hosts, path)


def _host(text: str, where: str) -> Host:
    name, colon, slots = text.partition(":")
    if not name or any(c.isspace() for c in name) or (colon and not _positive(slots)):
        raise SolverError(
            f'{where} wants NAME or NAME:SLOTS, a name or IPv4 address for each host, got "{text}"'
        )
    return Host(name, int(slots) if colon else None)


def _positive(text: str) -> bool:
    return text.isdecimal() and int(text) > 0


def _checked(hosts: list[Host], where: str) -> list[Host]:
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise SolverError(f"{where} names {name} twice; say {name}:SLOTS for more ranks on it")
    if len({host.slots is None for host in hosts}) > 1:
        raise SolverError(f"{where} wants slots with every host or with none")
    return hosts


def room(hosts: Sequence[Host]) -> int:
    """How many ranks fit into the slots of these hosts."""
    return sum(host.slots or 0 for host in hosts)


def blocks(ranks: int, hosts: Sequence[Host]) -> list[Host]:
    """Each host that gets ranks, with how many: the first ones to the first host, and so on.

    Without slots all hosts get as many, or one more; with slots each is filled before the next.
    """
    shares = []
    left = ranks
    for host in with_slots(ranks, hosts):
        shares.append(Host(host.name, min(left, host.slots or 0)))
        left -= shares[-1].slots or 0
    if hosts and left:
        raise SolverError(
            f"{ranks} ranks do not fit into the {ranks - left} slots of the hosts; say -n "
            f"{ranks - left}, or more slots"
        )
    return [share for share in shares if share.slots]


def with_slots(ranks: int, hosts: Sequence[Host]) -> list[Host]:
    """The hosts with slots: where nobody said how many, with what each gets of so many ranks."""
    if any(host.slots is not None for host in hosts):
        return list(hosts)
    shares = [ranks // len(hosts) + (i < ranks % len(hosts)) for i in range(len(hosts))]
    return [Host(host.name, share or 1) for host, share in zip(hosts, shares, strict=True)]


@dataclass(frozen=True)
class Layout:
    """How many ranks a job has, on which hosts (none: all on this one), as losses leave it."""

    ranks: int
    hosts: tuple[Host, ...] = ()

    @classmethod
    def of(cls, ranks: int, hosts: Sequence[Host]) -> Layout:
        """The first layout; refused where the ranks do not fit."""
        blocks(ranks, hosts)
        return cls(ranks, tuple(with_slots(ranks, hosts)))

    @property
    def placed(self) -> list[Host]:
        return blocks(self.ranks, self.hosts)

    def host_of(self, rank: int) -> str:
        """Where a rank was placed; empty where nobody said."""
        first = 0
        for host in self.placed:
            first += host.slots or 0
            if rank < first:
                return host.name
        return ""

    def ranks_on(self, name: str) -> list[int]:
        return [rank for rank in range(self.ranks) if self.host_of(rank) == name]

    def without_host(self, name: str) -> Layout:
        """A lost host takes all its ranks; other hosts with free slots take them over."""
        return self._within([host for host in self.hosts if host.name != name])

    def without_rank(self, rank: int) -> Layout:
        """A lost rank takes only its own place; other hosts with free slots take it over."""
        lost = self.host_of(rank)
        if not lost:
            return Layout(self.ranks - 1)
        left = len(self.ranks_on(lost)) - 1
        changed = [Host(lost, left) if host.name == lost else host for host in self.hosts]
        return self._within([host for host in changed if host.slots])

    def _within(self, hosts: Sequence[Host]) -> Layout:
        return Layout(min(self.ranks, room(hosts)), tuple(hosts))
