"""Runs that differ in their learning rate, side by side: what each of them came to."""

from __future__ import annotations

from collections.abc import Sequence

from .progress import clock
from .record import iterations_of
from .runs import Run


def sweep_table(runs: Sequence[Run]) -> list[str]:
    """A line for each run: rate, batch, iterations, time, and what its last test found."""
    names = list(dict.fromkeys(n for run in runs for n in run.series if n.startswith("test")))
    shown = names or ["train/loss"]
    widths = [max(10, len(name)) for name in shown]
    head = "".join(f"  {name:>{width}}" for name, width in zip(shown, widths, strict=True))
    lines = [f"{'run':<20}{'rate':>8}{'batch':>7}{'iterations':>12}{'time':>10}{head}"]
    for run in sorted(runs, key=rate_of):
        cells = (f"  {_last(run, n):>{w}}" for n, w in zip(shown, widths, strict=True))
        seconds = max(points[-1].seconds for points in run.series.values())
        ended = f"  {run.troubles[-1]['what']}" if failed(run) else ""
        lines.append(
            f"{run.name:<20}{rate_of(run):>8g}{run.started.get('batch', 0):>7}"
            f"{iterations_of(run):>12,}{clock(seconds):>10}{''.join(cells)}{ended}"
        )
    return lines


def rate_of(run: Run) -> float:
    return float(run.started.get("solver", {}).get("base_lr", 0.0))


def failed(run: Run) -> bool:
    """Did NaN or infinity end it?"""
    return bool(run.troubles) and run.finished is None


def _last(run: Run, name: str) -> str:
    points = run.series.get(name)
    return f"{points[-1].value:.4g}" if points else "-"
