"""What a snapshot holds beyond Caffe's state, with checksums over both of its files.

It is JSON in a field (in HDF5: a dataset) that Caffe does not know and skips.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .. import schema
from ..errors import WeightsError
from ..schema.files import digest


@dataclass
class Recorded:
    """A run at the time of a snapshot, besides iteration, weights and history."""

    seed: int
    leaves: int
    written: float  # seconds since 1970
    weights: str  # SHA-256 of the weights file
    data: dict[str, list[int]]  # by net and layer: the next sample of how many records
    tests: list[int]  # the passes that each test net has run
    tested: bool  # have the tests of this very iteration been run?
    losses: list[float]  # those that average_loss takes in
    carried: dict[str, Any]  # what else goes on, see Carried


def seal(state: schema.SolverStateFile, recorded: Recorded) -> bytes:
    """What to put into the state's extra field: the record and a checksum over all of it."""
    content = asdict(recorded)
    return json.dumps({**content, "checksum": _checksum(state, content)}).encode()


def unseal(state: schema.SolverStateFile, path: str) -> Recorded | None:
    """What the state records about its run; None if Caffe wrote it."""
    if not state.extra:
        return None
    try:
        content = json.loads(state.extra)
        del content["checksum"]
        return Recorded(**content)
    except (ValueError, KeyError, TypeError):
        raise WeightsError(
            f"{path}: what it records about its run is damaged; resume from another snapshot"
        ) from None


def recorded_run(path: str) -> dict[str, int]:
    """Seed and leaves of the run that wrote a .solverstate; empty if it was Caffe."""
    found = unseal(schema.read_state(path, history=False), path)
    return {"seed": found.seed, "leaves": found.leaves} if found else {}


def check_sums(state: schema.SolverStateFile, path: str) -> None:
    """Raise unless both files of a snapshot are as they were written; Caffe's have no checksums."""
    recorded = unseal(state, path)
    if recorded is None:
        return
    content = json.loads(state.extra)
    if content.pop("checksum") != _checksum(state, content):
        raise WeightsError(f"{path}: damaged (its checksum is wrong); resume from another snapshot")
    model = beside(state.learned_net, path)
    if not os.path.exists(model):
        raise WeightsError(f"{path}: its weights {model} do not exist; resume from another one")
    if digest(model, WeightsError) != recorded.weights:
        raise WeightsError(
            f"{path}: its weights {model} are damaged or of another run (their checksum is wrong); "
            f"resume from another snapshot"
        )


def beside(model: str, state: str) -> str:
    """The weights a state names: as named, or next to the state if it was moved."""
    moved = os.path.join(os.path.dirname(state), os.path.basename(model))
    return moved if not os.path.exists(model) and os.path.exists(moved) else model


def _checksum(state: schema.SolverStateFile, content: dict[str, Any]) -> str:
    """Over everything a state file holds, whatever its format."""
    head = [state.iter, state.learned_net, state.current_step, [h.shape for h in state.history]]
    found = hashlib.sha256(json.dumps([head, content], sort_keys=True).encode())
    for array in state.history:
        found.update(np.ascontiguousarray(array, "<f4").reshape(-1).view(np.uint8).data)
    return found.hexdigest()
