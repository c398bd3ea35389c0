"""Everything about one run that its log tells, for the page of that run."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..report.record import record_tables
from .files import data_layers, iteration_of, labels_of, nets_of, run_files, snapshots
from .follow import TIMES, RunLog, brief

MOST_POINTS = 200  # of the ranks' timeline


def overview(log: RunLog, root: str) -> dict[str, Any]:
    files = run_files(log.path, root)
    with log.lock:
        started = log.run.started
        return {
            "facts": _tables(log),
            "profile": _profile(log),
            "ranks": ranks(log),
            "timeline": log.run.timeline or None,
            "memory": {"planned": started.get("memory") or {}, "tops": _largest(log)},
            "events": list(log.events)[::-1],
            "tail": [line for line in map(brief, log.tail) if line],
            "nets": list(nets_of(started)),
            "data": {name: data_layers(net) for name, net in nets_of(started).items()},
            "labels": labels_of(log.path, started),
            "files": [
                {"name": f.name, "size": f.size, "written": f.written} for f in files.values()
            ],
            "snapshots": [
                {"name": f.name, "iteration": iteration_of(f.name)} for f in snapshots(files)
            ],
            "total": totals(started),
        }


def _tables(log: RunLog) -> list[Any]:
    if not log.run.started or not log.run.curves:
        return []
    try:
        return [[title, rows] for title, rows in record_tables(log.run.ending())]
    except (KeyError, TypeError, IndexError):  # a log of another version says less
        return []


def _profile(log: RunLog) -> list[dict[str, Any]]:
    """Time and work of every layer, in the order of the net."""
    layers = (log.run.started.get("train") or {}).get("layers", [])
    work = {layer["name"]: layer for layer in layers}
    return [
        {
            "name": entry["name"], "forward": entry["forward"], "backward": entry["backward"],
            "inside": entry["inside"], "type": work.get(entry["name"], {}).get("type", ""),
            "flops": 2 * work.get(entry["name"], {}).get("multiply_adds", 0),
        }
        for entry in log.run.profile
    ]  # fmt: skip


def _largest(log: RunLog) -> list[list[Any]]:
    """The layers whose tops take most memory."""
    layers = (log.run.started.get("train") or {}).get("layers", [])
    rows = sorted(([n["name"], n["memory"]] for n in layers), key=lambda row: -row[1])
    return [row for row in rows[:8] if row[1]]


def totals(started: dict[str, Any]) -> dict[str, Any]:
    train = started.get("train") or {}
    layers = train.get("layers", [])
    return {
        "layers": len(layers),
        "parameters": sum(layer["parameters"] for layer in layers),
        "flops": 2 * sum(layer["multiply_adds"] for layer in layers),
    }


def ranks(log: RunLog) -> dict[str, Any]:
    """Where time went on each rank, over time and in all; the slowest before it had to wait."""
    shapes = [entry["ranks"].shape for entry in log.timed]
    entries = [entry for entry in log.timed if entry["ranks"].shape == shapes[-1]]
    if not entries:
        return {"count": 0}
    times = np.stack([entry["ranks"] for entry in entries])  # entries, ranks, parts
    busy = times[:, :, [TIMES.index("compute"), TIMES.index("data"), TIMES.index("update")]].sum(2)
    step = -(-len(entries) // MOST_POINTS)
    slowest = busy.argmax(1)
    return {
        "count": int(times.shape[1]),
        "parts": list(TIMES),
        "totals": times.sum(0).tolist(),
        "iterations": [entry["iteration"] for entry in entries[::step]],
        "busy": busy[::step].T.tolist(),
        "slowest": int(busy.sum(0).argmax()),
        "slowest_share": float((slowest == busy.sum(0).argmax()).mean()),
        "memory": _memory(entries[::step]),
    }


def _memory(entries: list[dict[str, Any]]) -> list[list[int]]:
    """Bytes by rank over time."""
    rows = [entry["memory"] for entry in entries]
    if not rows or not rows[-1] or any(len(row) != len(rows[-1]) for row in rows):
        return []
    return [list(column) for column in zip(*rows, strict=True)]
