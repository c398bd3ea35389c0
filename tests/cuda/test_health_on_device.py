"""NaN on a device: found at once where the weights must stay as they were, else when shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver.events import NotFinite
from tests.cuda.cuda_nets import SOLVER, solver_of
from tests.solver.solver_cases import body, rows_layer, same_bits, weights
from tests.solver.test_health import NORM, write_data

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def bad_net(folder: Path) -> Any:
    """A NaN in iteration 1, 4, ..."""
    text = rows_layer(write_data(folder, {9: np.nan}), 8) + body(NORM)
    return schema.parse_text(text, schema.NetParameter())


@pytest.mark.parametrize("leaves", [1, 2])
def test_skip(cuda: Any, tmp_path: Path, leaves: int) -> None:
    seen: list[Any] = []
    solver = solver_of(
        bad_net(tmp_path), cuda, on_nan="skip", leaves=leaves, observers=[seen.append]
    )
    solver.step(1)
    before = weights(solver)
    solver.step(1)
    assert same_bits(weights(solver), before)
    solver.step(1)
    assert not same_bits(weights(solver), before)
    found = [event for event in seen if isinstance(event, NotFinite)]
    assert len(found) == 1
    assert "iteration 1: " in found[0].what and 'layer "data"' in found[0].what
    solver.close()


def test_stop_looks_when_an_iteration_is_shown(cuda: Any, tmp_path: Path) -> None:
    settings = f'{SOLVER} snapshot_prefix: "{tmp_path}/run"'
    shown = settings.replace("display: 0", "display: 1")
    solver = solver_of(bad_net(tmp_path), cuda, shown)
    with pytest.raises(SolverError, match='iteration 1: .* layer "data"'):
        solver.step(5)
    solver.close()
    unseen = solver_of(bad_net(tmp_path), cuda, settings)
    unseen.step(3)
    with pytest.raises(SolverError, match="iteration 3: the weights are not finite"):
        unseen.snapshot()
    assert not list(tmp_path.glob("run_*"))
    unseen.close()
