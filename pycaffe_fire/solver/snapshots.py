"""Finding the snapshot to go on from: the newest complete one, and why newer ones are not."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, field

from .. import schema
from ..errors import FireError

NAME = re.compile(r"_iter_(\d+)\.solverstate(\.h5)?$")


@dataclass
class Found:
    """The state to resume from, if any, and the newer ones that cannot be used."""

    path: str | None = None
    skipped: list[str] = field(default_factory=list)


def newest_snapshot(prefix: str) -> Found:
    """The newest state under `prefix` that reads completely and whose weights do."""
    states = [
        (int(match.group(1)), path)
        for path in glob.glob(f"{glob.escape(prefix)}_iter_*.solverstate*")
        if (match := NAME.search(path))
    ]
    found = Found()
    for _, path in sorted(states, reverse=True):
        try:
            state = schema.read_state(path)
            if state.learned_net:
                schema.read_weights(beside(state.learned_net, path))
        except FireError as error:
            found.skipped.append(f"skipped {path}: {error}")
            continue
        found.path = path
        break
    return found


def beside(model: str, state: str) -> str:
    """The weights a state names: as named, or next to the state if it was moved."""
    moved = os.path.join(os.path.dirname(state), os.path.basename(model))
    return moved if not os.path.exists(model) and os.path.exists(moved) else model
