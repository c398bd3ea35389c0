"""Runs against a baseline on one server: speedup to equal accuracy, which the FireCaffe paper asks
comparisons to be about."""  # fmt: skip

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import FireError
from .progress import clock
from .runs import Point, Run


@dataclass(frozen=True)
class Against:
    """A run beside the baseline: seconds to the baseline's result (None: never reached), seconds
    and result of the whole."""

    run: Run
    reached: float | None
    seconds: float
    result: float


@dataclass(frozen=True)
class Comparison:
    """Which test output counts, whether more of it is better, and all runs; the baseline first."""

    output: str
    rises: bool
    runs: list[Against]

    @property
    def target(self) -> float:
        return self.runs[0].result


def compare(baseline: Run, runs: Sequence[Run]) -> Comparison:
    """How soon runs come to what the baseline had at its end."""
    output = _output([baseline, *runs])
    rises = not _falls(output)
    target = baseline.series[output][-1].value
    found = []
    for run in [baseline, *runs]:
        points = run.series[output]
        reached = next((p.seconds for p in points if _good(p, target, rises)), None)
        found.append(Against(run, reached, points[-1].seconds, points[-1].value))
    if not found[0].reached:
        raise FireError(
            f"{baseline.name}: its {output} was there before it trained: nothing can be compared"
        )
    return Comparison(output, rises, found)


def _good(point: Point, target: float, rises: bool) -> bool:
    return point.value >= target if rises else point.value <= target


def _falls(output: str) -> bool:
    """Is less of it better? Names of layers before the last slash do not count."""
    return any(word in output.rpartition("/")[2].lower() for word in ("loss", "error"))


def _output(runs: Sequence[Run]) -> str:
    """The test output that all runs have: an accuracy (top-1 first) rather than a loss."""
    tests = [{n for n in run.series if n.startswith("test/")} for run in runs]
    common = sorted(set.intersection(*tests), key=lambda name: (_falls(name), name))
    if not common:
        names = ", ".join(run.name for run in runs)
        raise FireError(f"{names}: have no test output in common to compare by")
    return common[0]


def comparison_table(found: Comparison) -> list[list[str]]:
    """Rows of texts, the head first."""
    base = found.runs[0]
    rows = [
        ["run", "hosts and ranks", "time", f"final {found.output}", "difference",
         f"time to {found.target:.4g}", "speedup at equal accuracy", "speedup of whole runs"]
    ]  # fmt: skip
    for against in found.runs:
        reached = against.reached
        speedup = f"{base.reached / reached:.3g}" if reached and base.reached else "not reached"
        rows.append(
            [
                against.run.name + (" (baseline)" if against is base else ""),
                _machines(against.run), clock(against.seconds), f"{against.result:.4g}",
                f"{against.result - base.result:+.4g}",
                "-" if reached is None else clock(reached), speedup,
                f"{base.seconds / against.seconds:.3g}",
            ]
        )  # fmt: skip
    return rows


def _machines(run: Run) -> str:
    if not run.started:
        return "unknown"
    hosts = len((run.started.get("job") or {}).get("hosts", [])) or 1
    ranks = run.started["ranks"]
    return f"{hosts} host{'s' * (hosts > 1)}, {ranks} rank{'s' * (ranks > 1)}"


def warning(baseline: Run) -> str:
    """What is wrong with a baseline that is not of one server."""
    hosts = len((baseline.started.get("job") or {}).get("hosts", []))
    return f"{baseline.name}: a baseline of {hosts} hosts; one server is usual" if hosts > 1 else ""


def text_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table for a terminal."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
