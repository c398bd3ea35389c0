"""Titles of runs, and their results as pairs of a name and a text."""

from __future__ import annotations

from collections.abc import Sequence

from .progress import clock
from .record import epochs_of
from .runs import Run

Facts = list[tuple[str, str]]


def title_of(runs: Sequence[Run]) -> str:
    """`LeNet`, `LeNet: 3 runs`, `LeNet and NiN`"""
    names = list(dict.fromkeys(run.title for run in runs))
    if len(names) == 1:
        return names[0] if len(runs) == 1 else f"{names[0]}: {len(runs)} runs"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def subtitle(run: Run) -> str:
    started = run.started
    if not started:
        return run.name
    return f"{started['backend']} · {started['hardware']['host']} · {state(run)}"


def state(run: Run) -> str:
    if run.finished is None:
        return "unfinished"
    return "stopped early" if run.finished["early"] else "done"


def results(run: Run) -> Facts:
    """The numbers for a reader who has five seconds."""
    found: Facts = []
    for name, points in run.series.items():
        if name.startswith("test"):
            found.append((f"{name}, iteration {points[-1].iteration}", f"{points[-1].value:.4g}"))
    if not found and "train/loss" in run.series:
        found.append(("train/loss", f"{run.series['train/loss'][-1].value:.4g}"))
    latest = max(run.series.values(), key=lambda points: points[-1].seconds)
    seconds = run.finished["seconds"] if run.finished else latest[-1].seconds
    found.append(("training time", clock(seconds)))
    speeds = sorted(point.value for point in run.series.get("images_per_second", []))
    if speeds:
        median = speeds[len(speeds) // 2]
        shown = f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
        found.append(("images per second", shown))
    if run.started:
        found.append(("batch, all ranks", f"{run.started['batch']:,}"))
        epochs = epochs_of(run)
        if epochs:
            found.append(("epochs", f"{epochs:.3g}"))
    return found
