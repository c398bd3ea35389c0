"""What a run's log holds for whoever looks inside: histograms, ranks' times and memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pycaffe_fire.solver import histograms
from pycaffe_fire.solver.events import Event, Histograms, Started, Timed

from .solver_cases import body, make, rows_layer, write_rows

SETTINGS = (
    'base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 random_seed: 5 display: 2 max_iter: 8 '
    "snapshot_after_train: false\n"
)


@pytest.mark.parametrize("values", [np.array([1.0, 2.0, 2.5, 9.0]), np.random.default_rng(1)
                                    .normal(size=5000)])  # fmt: skip
def test_histograms_are_numpys(values: np.ndarray) -> None:
    found = histograms.histogram(values)
    counts, edges = np.histogram(values, histograms.BINS)
    assert (found.low, found.high) == (edges[0], edges[-1])
    assert sum(found.counts) == len(values)
    assert np.abs(np.array(found.counts) - counts).sum() <= 2  # rounding at an edge


def test_histograms_of_nothing_and_of_one_value() -> None:
    assert histograms.histogram(np.array([np.nan, np.inf])).counts == [0] * histograms.BINS
    same = histograms.histogram(np.full(7, 0.5))
    assert (same.low, same.high, same.counts[0]) == (0.5, 0.5, 7)


def test_a_run_says_how_its_parameters_are_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histograms, "SHARE", 1e9)  # no waiting between looks
    told: list[Event] = []
    solver = make(rows_layer(write_rows(tmp_path), 6) + body(), SETTINGS, observers=[told.append])
    solver.step(1)
    before = {n: [b.data.copy() for b in blobs] for n, blobs in solver.net.params.items()}
    solver.iter, told[:] = 2, []
    solver.solve()
    solver.close()
    looks = [event for event in told if isinstance(event, Histograms)]
    assert [look.iteration for look in looks] == [2, 4, 6]
    names = [row.name for row in looks[0].parameters]
    assert names == [p.name for p in solver.net.parameters.items]
    row = looks[0].parameters[0]
    assert sum(row.weights.counts) == before["conv"][0].size  # none of the layout's padding
    assert 0 < row.update_ratio < 1
    assert row.gradients.low < 0 < row.gradients.high


def test_a_look_is_a_sample_and_comes_seldom(tmp_path: Path) -> None:
    solver = make(rows_layer(write_rows(tmp_path), 6) + body(), SETTINGS)
    sampler = histograms.HistogramSampler(solver.net.parameters, 1000)
    assert sampler.due(0)
    solver.step(1)
    sampler.after(0, sampler.before(), solver.leaves.gradients, 1.0)
    assert not sampler.due(1)
    assert not sampler.due(1000)  # it took time that must be earned first
    solver.close()


def test_a_run_reports_ranks_and_memory(tmp_path: Path) -> None:
    told: list[Event] = []
    solver = make(rows_layer(write_rows(tmp_path), 6) + body(), SETTINGS, observers=[told.append])
    solver.solve()
    solver.close()
    (started,) = [event for event in told if isinstance(event, Started)]
    assert started.memory["blobs"] > 0
    timed = [event for event in told if isinstance(event, Timed)]
    assert [event.iteration for event in timed] == [0, 2, 4, 6]
    assert len(timed[0].ranks) == len(timed[0].memory) == len(timed[0].skipped) == 1
    assert timed[0].memory[0] > 2**20 and timed[0].ranks[0].total > 0
