"""Which host runs which ranks: neighbours together, so that large exchanges stay in its memory."""

from __future__ import annotations

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
    hosts = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, slots = part.partition(":")
        if not name or (colon and not (slots.isdecimal() and int(slots))):
            raise SolverError(
                f'--hosts wants NAME or NAME:SLOTS, separated by commas, got "{part}"'
            )
        hosts.append(Host(name, int(slots) if colon else None))
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise SolverError(f"--hosts names {name} twice; say {name}:SLOTS for more ranks on it")
    if len({host.slots is None for host in hosts}) > 1:
        raise SolverError("--hosts wants :SLOTS with every host or with none")
    return hosts


def room(hosts: Sequence[Host]) -> int | None:
    """How many ranks fit; None where nobody said."""
    slots = [host.slots for host in hosts if host.slots is not None]
    return sum(slots) if slots else None


def blocks(ranks: int, hosts: Sequence[Host]) -> list[Host]:
    """Each host that gets ranks, with how many: the first ones to the first host, and so on.

    Without slots all hosts get as many, or one more; with slots each is filled before the next.
    """
    if all(host.slots is None for host in hosts):
        shares = [ranks // len(hosts) + (i < ranks % len(hosts)) for i in range(len(hosts))]
    else:
        left, shares = ranks, []
        for host in hosts:
            shares.append(min(left, host.slots or 0))
            left -= shares[-1]
        if left:
            raise SolverError(
                f"{ranks} ranks do not fit into the {ranks - left} slots of --hosts; say -n "
                f"{ranks - left}, or more slots"
            )
    return [Host(host.name, share) for host, share in zip(hosts, shares, strict=True) if share]
