"""Rates that depend on losses and norms are the same on every rank of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="several ranks need mpi4py")

from pycaffe_fire import schema  # noqa: E402
from tests.parallel.test_jobs import folder, weights  # noqa: E402, F401

RATES = (
    "larc: true larc_turbo: true larc_eta: 0.05 gamma: 0.5 "
    "plateau_winsize: 1 plateau_winsize: 1 plateau_winsize: 1 "
)


def test_ranks_agree_on_local_rates_and_plateaus(folder: Path) -> None:  # noqa: F811
    path = folder / "solver.prototxt"
    path.write_text(path.read_text().replace('lr_policy: "fixed"', 'lr_policy: "plateau"') + RATES)
    alone = weights(folder, "--leaves", "4", "--threads", "2")
    assert schema.read_state(folder / "snap_iter_6.solverstate").current_step > 0
    assert weights(folder, "-n", "3", "--leaves", "4") == alone
