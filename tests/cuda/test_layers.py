"""Layers on the emulated device: Caffe's own reference cases, and every row of the layer table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.pycaffe import net as net_module
from tests.layers.case import Case, Trial
from tests.layers.test_contract import GOLDEN, ROWS, assert_close
from tests.layers.test_contract import test_agrees_with_caffe as agrees_with_caffe


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in GOLDEN])
def test_reference_cases(path: Path, cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_module, "default_backend", lambda: cuda)
    agrees_with_caffe(path)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in ROWS])
def test_rows_agree_with_float64(case: Case, cuda: Any) -> None:
    values = [np.float32(v) for v in case.values()]
    want = Trial(case, NumPyBackend(dtype=np.float64)).both(values)
    for in_place in {False, case.in_place}:
        assert_close(Trial(case, cuda, in_place).both(values), want, case.tolerance)
