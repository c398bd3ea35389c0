"""Curves of any length: what is thrown away must not be what somebody looks for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pycaffe_fire.board.follow import MOST_TIMED, RunLog
from pycaffe_fire.board.series import Series, View, decimated, moving_mean


def filled(values: np.ndarray) -> Series:
    series = Series()
    for i, value in enumerate(values):
        series.add(10 * i, 36.0 * i, value)
    return series


def test_few_points_stay_as_they_are() -> None:
    found = filled(np.array([3.0, 1.0, 2.0])).view(View())
    assert found == {"x": [0, 10, 20], "y": [3, 1, 2]}


@pytest.mark.parametrize("count", [2_000, 100_003])
def test_thinning_out_keeps_peaks_ends_and_order(count: int) -> None:
    values = np.random.default_rng(1).normal(size=count)
    values[count // 3], values[count // 2] = 100.0, -100.0
    kept = decimated(values, 500)
    assert len(kept) <= 500 + 4
    assert (np.diff(kept) > 0).all() and {0, count - 1, count // 3, count // 2} <= set(kept)


def test_a_zoom_has_its_points_and_one_on_each_side() -> None:
    found = filled(np.arange(1000.0)).view(View(low=3000, high=3100))
    assert found["x"] == [2990 + 10 * i for i in range(13)]


def test_axes_are_hours_and_epochs() -> None:
    series = filled(np.arange(5.0))
    assert series.view(View(by="hours"))["x"] == pytest.approx([0, 0.01, 0.02, 0.03, 0.04])
    by_epoch = series.view(View(by="epoch", per_iteration=0.5, low=5.0, high=10.0))
    assert by_epoch["x"] == [0, 5, 10, 15]


def test_smoothing_is_a_mean_around_each_point() -> None:
    values = np.random.default_rng(2).normal(size=40)
    for window in (2, 3, 7, 100):
        around = [values[max(0, i - window // 2) : i + (window + 1) // 2].mean() for i in range(40)]
        np.testing.assert_allclose(moving_mean(values, window), around)
    assert filled(values).view(View(smooth=5))["raw"] == values.tolist()


def test_what_a_resumed_run_did_again_counts() -> None:
    series = filled(np.arange(10.0))
    series.add(50, 400.0, -1.0)
    assert series.view(View())["y"] == [0, 1, 2, 3, 4, -1]
    assert series.last == (50, 400.0, -1.0)


# Reading a log while it grows.


def started(**more: object) -> dict[str, object]:
    return {"event": "started", "time": 1000.0, "iteration": 0, "name": "n", "backend": "b", **more}


def trained(i: int, loss: float | None = 0.5) -> dict[str, object]:
    return {"event": "trained", "time": 1001.0 + i, "iteration": i, "loss": loss, "rate": 0.1,
            "images_per_second": 9.0, "outputs": {}}  # fmt: skip


def append(path: Path, *events: object, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("\n".join(json.dumps(event) for event in events) + end)


def test_a_log_is_read_once_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a_log.jsonl"
    append(path, started(), *(trained(i) for i in range(5)))
    log = RunLog(str(path))
    assert log.refresh() and not log.refresh()
    append(path, trained(5), end="")  # half a line: no newline yet
    log.refresh()
    assert len(log.run.curves["train/loss"]) == 5
    append(path, end="\n")
    log.refresh()
    assert log.run.curves["train/loss"].last[0] == 5 and log.iteration == 5


def test_a_log_that_was_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "a_log.jsonl"
    append(path, started(), *(trained(i) for i in range(9)))
    log = RunLog(str(path))
    log.refresh()
    path.unlink()
    append(path, started(), trained(0, 0.25))
    log.refresh()
    assert log.run.curves["train/loss"].view(View())["y"] == [0.25]


def test_rubbish_between_lines_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a_log.jsonl"
    append(path, started())
    with path.open("ab") as file:
        file.write(b'\xff\xfe{"event": "tra\n[1, 2]\n{"event": "trained"}\nnull\n')
    append(path, trained(3))
    log = RunLog(str(path))
    log.refresh()
    assert log.run.curves["train/loss"].last[:1] == (3,)


def test_ranks_times_stay_bounded_and_add_up(tmp_path: Path) -> None:
    path = tmp_path / "a_log.jsonl"
    times = {"compute": 1.0, "data": 0.5, "exposed": 0.0, "hidden": 0.0, "update": 0.25}
    count = 3 * MOST_TIMED
    append(path, started(), *(
        {"event": "timed", "time": 1e3, "iteration": i, "ranks": [times, times], "memory": [1, 2],
         "skipped": [0, 1]} for i in range(count)
    ))  # fmt: skip
    log = RunLog(str(path))
    log.refresh()
    assert len(log.timed) <= MOST_TIMED
    total = sum(entry["ranks"] for entry in log.timed)
    assert total[:, 0].tolist() == [count, count] and log.skipped == 1
