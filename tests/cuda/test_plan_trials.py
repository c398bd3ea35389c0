"""Timing cuDNN's plans: what is kept, who times, and what ranks do. Without a GPU times are given,
or those of the stand-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend import choice
from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.choice import GpuOptions, choose_backend
from pycaffe_fire.backend.cuda import CudaBackend, cudnn
from pycaffe_fire.backend.cuda.device import Found
from pycaffe_fire.backend.cuda.plan_trials import Trials, choices_file, read_choices
from pycaffe_fire.backend.plans import Window
from pycaffe_fire.errors import BackendError
from pycaffe_fire.parallel.communicator import SerialCommunicator
from pycaffe_fire.solver import run
from tests.cuda.fake_cudnn import FakeCudnn

TENSOR_CORES, PLAIN = "tensor cores", "plain"  # the order in which cuDNN recommends them with TF32
WINDOW = Window((3, 3), (1, 1), (1, 1), (1, 1))


@pytest.fixture
def library(cupy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCudnn:
    fake = FakeCudnn()
    monkeypatch.setattr(cudnn, "load", lambda: fake)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return fake


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plans that were timed; the one cuDNN recommends second is the faster one."""
    tried: list[str] = []

    def seconds(_: Trials, plan: Any) -> float:
        tried.append(plan.name)
        return {TENSOR_CORES: 2.0, PLAIN: 1.0}[plan.name]

    monkeypatch.setattr(Trials, "_seconds", seconds)
    return tried


def plans(**options: Any) -> set[str]:
    """Names of the plans of a convolution's products, bias and ReLU fused and not."""
    backend = CudaBackend(0, tf32=True, **options)
    x, y = Blob(backend, (2, 3, 5, 5)), Blob(backend, (2, 4, 5, 5))
    w, b = Blob(backend, (4, 3, 3, 3)), Blob(backend, (4,))
    made: Any = backend.convolution(x, w, b, y, WINDOW, 1, 0.0)
    return {plan.name for plan in (*made._plans.values(), made._fused[0])}


def test_the_fastest_is_kept_for_later_runs(library: FakeCudnn, timed: list[str]) -> None:
    assert plans() == {TENSOR_CORES} and not timed
    assert plans(time_plans=True) == {PLAIN}
    assert timed == 4 * [TENSOR_CORES, PLAIN]  # three products, one of them fused, too
    assert plans(time_plans=True) == {PLAIN} and len(timed) == 8
    (about,) = json.loads(choices_file().read_text())
    assert "cuDNN 9.0, tf32" in about


def test_ranks_take_what_rank_0_knows_and_time_nothing(
    library: FakeCudnn, timed: list[str]
) -> None:
    assert plans(time_plans=True, timed="{}") == {TENSOR_CORES}
    assert not timed and not choices_file().exists()
    plans(time_plans=True)
    known = read_choices()
    choices_file().unlink()
    timed.clear()
    assert plans(time_plans=True, timed=known) == {PLAIN} and not timed


def test_rank_0_tells_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[GpuOptions] = []

    class Ranks(SerialCommunicator):
        rank, size = 1, 2

        def broadcast(self, value: Any) -> Any:
            assert value is None  # of this rank
            return '{"a device": {}}'

    monkeypatch.setattr(
        run, "choose_backend", lambda gpu, threads, level, options, first: seen.append(options)
    )
    asked = run.RunOptions("solver.prototxt", gpu="0", time_plans=True)
    for ranks in (Ranks(), SerialCommunicator()):
        with pytest.raises(AttributeError):  # there is no backend
            run._backend(asked, schema.SolverParameter(), 1, ranks)
    assert [(each.time_plans, each.timed) for each in seen] == [
        (True, '{"a device": {}}'), (True, None),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1}', "\0"])
def test_a_damaged_file_is_said_and_written_again(
    library: FakeCudnn, timed: list[str], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    choices_file().parent.mkdir(parents=True)
    choices_file().write_text(text)
    assert plans(time_plans=True) == {PLAIN}
    assert "plans are timed again" in caplog.text
    assert len(json.loads(choices_file().read_text())) == 1


def test_a_plan_that_is_gone_is_replaced(library: FakeCudnn, timed: list[str]) -> None:
    plans(time_plans=True)
    choices_file().write_text(choices_file().read_text().replace(PLAIN, "of another release"))
    assert plans(time_plans=True) == {TENSOR_CORES}


def test_timing_runs_every_plan_and_changes_nothing(library: FakeCudnn) -> None:
    backend = CudaBackend(0, tf32=True, time_plans=True)
    x, y, w = (Blob(backend, shape) for shape in ((2, 3, 5, 5), (2, 4, 5, 5), (4, 3, 3, 3)))
    values = np.arange(150, dtype=np.float32).reshape(x.shape)
    backend.host_view(x).data[...] = values
    backend.convolution(x, w, None, y, WINDOW, 1, None)
    # Two plans each, once to warm up and five times on the clock.
    assert library.calls == {"fprop": 12, "dgrad": 12, "wgrad": 12}
    np.testing.assert_array_equal(backend.host_view(x).data, values)


def test_a_cpu_has_no_plans_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendError, match="--time-plans needs a GPU: say which"):
        choose_backend(None, options=GpuOptions(time_plans=True))
    missing = Found(None, 0, "there is none")
    monkeypatch.setattr(choice, "probe", lambda device: missing)
    with pytest.raises(BackendError, match="--time-plans needs a GPU: there is none"):
        choose_backend("auto", options=GpuOptions(time_plans=True))
