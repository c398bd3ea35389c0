"""What a rank knows of its host: what tells it from others, and how others reach it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_GET_ADDRESS = 0x8915  # SIOCGIFADDR
_NAME, _ADDRESS = 16, slice(20, 24)  # in struct ifreq


def place() -> tuple[str, str]:
    """What tells hosts apart, also where several share a name."""
    with suppress(OSError):
        return socket.gethostname(), os.readlink("/proc/self/ns/net")
    return socket.gethostname(), ""


def own_addresses() -> list[str]:
    """The IPv4 addresses of this host's interfaces, without those that only it can reach."""
    try:
        import fcntl
    except ImportError:  # Windows
        return []
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            asked = struct.pack(f"{_NAME}s{32 - _NAME}x8x", name.encode()[: _NAME - 1])
            with suppress(OSError):  # it has none
                answer = fcntl.ioctl(probe, _GET_ADDRESS, asked)
                found.append(socket.inet_ntoa(answer[_ADDRESS]))
    return [address for address in found if not address.startswith("127.")]


def order_by_host(places: Sequence[object]) -> list[int]:
    """Ranks by their places: those of the first rank's host first, then those of the next one."""
    first = {where: rank for rank, where in reversed(list(enumerate(places)))}
    return sorted(range(len(places)), key=lambda rank: (first[places[rank]], rank))


def numbered_by_host(comm: Any) -> Any:
    """An MPI communicator of the same ranks, in which those of a host are neighbours.

    Neighbours exchange most: however a launcher placed the ranks, that stays in memory.
    """
    order = order_by_host(comm.allgather(place()))
    return comm.Split(0, order.index(comm.Get_rank()))
