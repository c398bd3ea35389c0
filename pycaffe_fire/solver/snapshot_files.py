"""The snapshot files under one prefix: their names, which to resume from, which to delete."""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .. import schema
from ..errors import FireError, SolverError
from ..schema.files import meant_by, new_file_beside
from .run_record import beside, check_sums, unseal

log = logging.getLogger("pycaffe_fire")

_NAME = re.compile(r"_(iter_(\d+)|best)\.(caffemodel|solverstate)(\.h5)?$")

Version = tuple[str, int]  # a file and when it was last written


class Pair(NamedTuple):
    """The two files of one snapshot."""

    model: str
    state: str


def pair(prefix: str, name: str, hdf5: bool) -> Pair:
    """Caffe's names of a snapshot's files; `name` is iter_N, or best."""
    suffix = ".h5" if hdf5 else ""
    return Pair(f"{prefix}_{name}.caffemodel{suffix}", f"{prefix}_{name}.solverstate{suffix}")


@dataclass
class Found:
    """The state to resume from, if any, and the newer ones that cannot be used."""

    path: str | None = None
    skipped: list[str] = field(default_factory=list)


def newest_snapshot(prefix: str, besides: Collection[Version] = ()) -> Found:
    """The state under `prefix` that was written last, of those that are whole with their weights.

    Not the one with the highest iteration: that may be left over from a longer run before. States
    among `besides` do not count.
    """
    files = list(snapshot_paths(prefix))
    states = [path for path in files if ".solverstate" in path]
    found = Found()
    candidates = [path for path in states if _version(path) not in besides]
    for path in sorted(candidates, key=_age, reverse=True):
        try:
            state = schema.read_state(path)
            check_sums(state, path)
            if state.learned_net and not state.extra:  # Caffe's: all we can do is to read it
                schema.read_weights(beside(state.learned_net, path))
        except FireError as error:
            found.skipped.append(f"skipped {path}: {error}")
            continue
        found.path = path
        break
    alone = {p for p in files if p.replace(".caffemodel", ".solverstate") not in states}
    for model in sorted(alone, key=os.path.getmtime):
        if not found.path or os.path.getmtime(model) > os.path.getmtime(found.path):
            found.skipped.append(f"skipped {model}: weights without a solver state")
    return found


def known_states(prefix: str) -> set[Version]:
    """The states that are there now, to tell them from those a run adds or writes again."""
    return {_version(path) for path in snapshot_paths(prefix) if ".solverstate" in path}


def _version(path: str) -> Version:
    return path, os.stat(path).st_mtime_ns


def snapshot_paths(prefix: str) -> Iterator[str]:
    """All snapshot files under a prefix, weights and states."""
    for path in glob.glob(f"{glob.escape(prefix)}_*"):
        if _NAME.fullmatch(path[len(prefix) :]) and os.path.isfile(path):
            yield path


def _age(state: str) -> tuple[float, int]:
    """When a state was written; copies keep what they say about that, unlike the file's time."""
    match = _NAME.search(state)
    iteration = int(match.group(2) or 0) if match else 0
    try:
        recorded = unseal(schema.read_state(state, history=False), state)
    except FireError:
        recorded = None
    return recorded.written if recorded else os.path.getmtime(state), iteration


def prune(prefix: str, iteration: int, keep: int) -> None:
    """Delete all but the last `keep` snapshots up to an iteration; never PREFIX_best."""
    by_iteration: dict[int, list[str]] = {}
    for path in snapshot_paths(prefix):
        match = _NAME.search(path)
        if match and match.group(2):
            by_iteration.setdefault(int(match.group(2)), []).append(path)
    older = sorted(i for i in by_iteration if i <= iteration)
    for i in older[:-keep]:
        # States first: a state must never be without its weights.
        for path in sorted(by_iteration[i], reverse=True):
            try:
                os.unlink(path)
            except OSError as error:
                log.warning("old snapshot %s cannot be deleted: %s", path, error.strerror)


def prepare(prefix: str) -> None:
    """Make sure, before hours of training, that snapshots can be written; tidy up after a kill."""
    folder, base = os.path.split(prefix)
    try:
        os.makedirs(folder or ".", exist_ok=True)
        for name in os.listdir(folder or "."):
            meant = meant_by(name)
            if meant != name and meant.startswith(base) and _NAME.fullmatch(meant[len(base) :]):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))
        os.unlink(new_file_beside(Path(f"{prefix}_probe")))
    except OSError as error:
        raise SolverError(
            f"snapshots cannot be written to {prefix}_*: {error.strerror}; change snapshot_prefix "
            f"in the solver, or make the folder writable"
        ) from error
