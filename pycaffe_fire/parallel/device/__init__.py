"""Sums over ranks where gradients lie on devices: NCCL, MPI on device memory, or host copies."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ...backend.base import Backend
from ...errors import SolverError
from ..communicator import Communicator
from ..communicators import RankCommunicator
from .direct import Direct, mpi_reads_devices
from .nccl import Nccl, NcclCommunicator, load
from .nccl_tree import NcclTree
from .staged import Staged

if TYPE_CHECKING:
    from ...backend.cuda import CudaBackend

__all__ = ["adapted"]

log = logging.getLogger("pycaffe_fire")


@dataclass(frozen=True)
class Place:
    """Where a rank computes and what its libraries can do."""

    host: str
    device: str  # empty: a CPU
    no_nccl: str  # the reason why NCCL cannot be used
    direct: bool  # does MPI take device memory?


def adapted(communicator: Communicator, backend: Backend) -> Communicator:
    """The communicator for this backend's gradients; all ranks choose alike.

    The tree over NCCL where nothing else was asked for and every rank has a GPU of its own, or
    NCCL's own sum where that was; else MPI on device memory where the library can do that; else
    through host memory.
    """
    if communicator.size == 1:
        return communicator
    places: list[Place] = communicator.gather(_place(backend))
    ranks = communicator if isinstance(communicator, RankCommunicator) else None
    obstacle = _obstacle(places)
    if communicator.wanted == "nccl" and obstacle:
        raise SolverError(
            f"--communicator nccl cannot be used: {obstacle}. Leave the flag out to have a way "
            f"chosen that works"
        )
    if backend.on_host:
        return communicator
    if ranks and communicator.wanted in ("", "nccl") and not obstacle:
        made = _try_nccl(ranks, cast("CudaBackend", backend))
        if made is not None:
            return made
    if ranks and ranks.takes_devices and all(place.device and place.direct for place in places):
        return Direct(ranks, cast("CudaBackend", backend))
    return Staged(communicator, backend)


def _place(backend: Backend) -> Place:
    host = socket.gethostname()
    if backend.on_host:
        return Place(host, "", "it computes on the CPU", False)
    cuda = cast("CudaBackend", backend)
    device = str(cuda.xp.cuda.Device(cuda.device).pci_bus_id)
    try:
        load()
    except Exception as error:  # a broken installation fails in many ways
        return Place(host, device, f"{error}", mpi_reads_devices())
    return Place(host, device, "", mpi_reads_devices())


def _obstacle(places: Sequence[Place]) -> str:
    """Why NCCL cannot sum over these ranks; empty if it can."""
    for rank, place in enumerate(places):
        if place.no_nccl:
            return f"rank {rank} on {place.host}: {place.no_nccl}"
    devices = Counter((place.host, place.device) for place in places)
    (host, device), ranks = devices.most_common(1)[0]
    if ranks > 1:
        return f"{ranks} ranks share GPU {device} on {host}, and NCCL wants one for each"
    return ""


def _try_nccl(ranks: RankCommunicator, backend: CudaBackend) -> NcclCommunicator | None:
    """A group of all ranks, or none if one of them cannot join and NCCL was not demanded.

    NCCL's start is collective: a rank that fails inside it leaves the others waiting there. So all
    ranks first say that they are ready, and who fails after that ends the job.
    """
    made, reason, here = None, "", f"rank {ranks.rank} on {socket.gethostname()}"
    try:
        made = (Nccl if ranks.wanted == "nccl" else NcclTree)(ranks, backend)
    except Exception as error:  # NCCL's own errors, and whatever a library may raise on loading
        reason = f"{here}: {error}"
    reasons = [text for text in ranks.gather(reason) if text]
    if made is None or reasons:
        if ranks.wanted == "nccl":
            raise SolverError(f"--communicator nccl: NCCL does not start; {'; '.join(reasons)}")
        log.warning("NCCL does not start, so gradients go another way; %s", "; ".join(reasons))
        return None
    try:
        made.join()
    except Exception as error:
        raise SolverError(
            f"NCCL does not start; {here}: {error}. --communicator halving does without it"
        ) from error
    return made
