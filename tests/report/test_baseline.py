"""Runs against a baseline: equal accuracy, and what it took to get there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pycaffe_fire.cli.fire_plot import main
from pycaffe_fire.errors import FireError
from pycaffe_fire.report.baseline import compare, comparison_table, warning
from pycaffe_fire.report.runs import Run

HOUR = 3600.0


def run_of(name: str, *tests: tuple[float, float], output: str = "test/accuracy") -> Run:
    """A run with (hours, score) of its tests."""
    run = Run(name)
    for number, (hours, score) in enumerate(tests):
        run.add(output, 100 * number, HOUR * hours, score)
    return run


BASE = run_of("one", (0, 0.1), (10, 0.5), (20, 0.6))


def test_speedup_counts_up_to_the_baselines_accuracy() -> None:
    fast = run_of("p8", (0, 0.1), (1, 0.55), (2, 0.6), (3, 0.58))
    found = compare(BASE, [fast])
    assert (found.output, found.target) == ("test/accuracy", 0.6)
    assert found.runs[1].reached == 2 * HOUR, "the first time, though it fell again"
    head, base, row = comparison_table(found)
    assert head[-2:] == ["speedup at equal accuracy", "speedup of whole runs"]
    assert base[0] == "one (baseline)" and base[-2:] == ["1", "1"]
    assert row[0] == "p8" and row[4:] == ["-0.02", "2:00:00", "10", "6.67"]


def test_a_run_that_stays_below_has_no_such_speedup() -> None:
    row = comparison_table(compare(BASE, [run_of("p8", (0, 0.1), (1, 0.59))]))[2]
    assert row[-3:-1] == ["-", "not reached"]
    assert row[4] == "-0.01"


def test_of_losses_less_is_better() -> None:
    base = run_of("one", (0, 2.3), (4, 0.5), output="test/loss")
    found = compare(base, [run_of("p4", (0, 2.3), (1, 0.6), (2, 0.5), output="test/loss")])
    assert not found.rises and found.runs[1].reached == 2 * HOUR


def test_accuracies_go_before_losses() -> None:
    both = run_of("one", (0, 2.3), (4, 0.5), output="test/a_loss")
    both.series["test/top-1"] = both.series["test/top-5"] = BASE.series["test/accuracy"]
    assert compare(both, [both]).output == "test/top-1"


def test_what_cannot_be_compared() -> None:
    with pytest.raises(FireError, match="have no test output in common"):
        compare(BASE, [run_of("x", (0, 0.1), output="test/top-5")])
    with pytest.raises(FireError, match="nothing can be compared"):
        compare(run_of("idle", (0, 0.6)), [BASE])


def test_a_baseline_of_several_servers_is_doubted() -> None:
    many = Run("many", started={"job": {"hosts": [{}, {}], "links": []}, "ranks": 2})
    assert "a baseline of 2 hosts" in warning(many)
    assert warning(BASE) == ""


def test_fire_plot_prints_it_and_puts_it_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, seconds in (("slow", 100.0), ("fast", 25.0)):
        events = [
            {"event": "tested", "time": 1000.0 + i * seconds, "iteration": 10 * i, "net": 0,
             "loss": None, "outputs": {"accuracy": 0.1 + 0.4 * i}}
            for i in range(3)
        ]  # fmt: skip
        (tmp_path / f"{name}_log.jsonl").write_text("\n".join(map(json.dumps, events)) + "\n")
    fast, slow = str(tmp_path / "fast_log.jsonl"), str(tmp_path / "slow_log.jsonl")
    page = tmp_path / "page.html"
    assert main([fast, "--baseline", slow, "--html", str(page)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1].startswith("slow (baseline)")
    assert told[2].split()[-2:] == ["4", "4"]
    assert "Against the baseline" in page.read_text()
