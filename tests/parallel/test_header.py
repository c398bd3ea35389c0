"""The header of a run of several ranks: each rank's share, who sums, and the warm-up."""

from __future__ import annotations

import pytest

from pycaffe_fire import schema
from pycaffe_fire.parallel.communicator import Communicator, SerialCommunicator
from pycaffe_fire.report.text import header
from pycaffe_fire.solver.events import Started
from pycaffe_fire.solver.large_batch import scale_rate


@pytest.mark.parametrize(
    ("ranks", "leaves", "shares"),
    [(1, 1, " (1 leaf)"), (2, 2, ", 32 on each of 2 ranks (2 leaves of 32)"),
     (3, 4, ", 16 to 32 on each of 3 ranks (4 leaves of 16)")],
)  # fmt: skip
def test_the_batch_and_its_shares(ranks: int, leaves: int, shares: str) -> None:
    run = Started("net", schema.SolverParameter(), 0, 64, leaves, "CPU", 1, ranks, "tree, here")
    lines = header(run)
    assert lines[0] == f"Batch: 64 samples in all{shares}"
    assert ("Communicator: tree, here" in lines) == (ranks > 1)


def test_the_rate_that_is_used() -> None:
    param = schema.SolverParameter(base_lr=0.01, lr_policy="poly", max_iter=100)
    scale_rate(param, "linear", 16, 20)
    run = Started("net", param, 0, 1024, 1, "CPU", 1)
    expected = "Learning rate: 0.16 (rising from 0.01 over 20 iterations), policy poly, solver SGD"
    assert expected in header(run)


def test_a_choice_shows_what_was_measured() -> None:
    chosen = SerialCommunicator()
    chosen.name, chosen.size = "ring", 4
    chosen.trials = {"tree": 0.0123, "ring": 0.0045}
    described = Communicator.describe(chosen)
    assert described == "ring, 4 ranks (measured: ring 4.5 ms, tree 12.3 ms)"
