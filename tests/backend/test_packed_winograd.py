"""Winograd's method with weights made once for inference, and how it is chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.cpu.library import available
from pycaffe_fire.backend.plans import Window
from pycaffe_fire.layers.frozen import OwnWeights
from tests.backend.op_cases import Array, Conv, blob, window
from tests.backend.test_winograd import SAME, WIDE, exact, normal

onednn = pytest.importorskip("pycaffe_fire.backend.onednn")
from pycaffe_fire.backend.onednn import plan_trials, winograd  # noqa: E402
from pycaffe_fire.backend.onednn.convolution import Convolution  # noqa: E402
from pycaffe_fire.backend.onednn.packed_winograd import (  # noqa: E402
    GroupedWinograd,
    PackedWinograd,
)

pytestmark = [
    pytest.mark.usefixtures("folder"),
    pytest.mark.skipif(not available(), reason="the CPU kernels are not compiled"),
]
SMALL = (1, 64, 14, 14)  # worth a trial


def direct(
    shape: tuple[int, ...], outputs: int, geometry: Window, groups: int = 1, threads: int = 1
) -> Any:
    """A direct convolution on the blocked output of another."""
    backend = onednn.OneDNNBackend(threads)
    x = blob(backend, shape)
    one = blob(backend, (shape[1], shape[1], 1, 1))
    backend.convolution(blob(backend, shape), one, None, x, window((1, 1)), 1)
    case = Conv(shape, outputs, geometry, groups)
    y, w, b = (blob(backend, s) for s in (case.out, case.weights, (outputs,)))
    return Convolution(backend, x, w, b, y, geometry, groups, 0.0, False)


def forward(made: Any, x: Array) -> Array:
    made.x.data[...] = x
    made.forward()
    return made.y.data.copy()


KINDS = pytest.mark.parametrize("kind", [PackedWinograd, GroupedWinograd])
WINDOWS = pytest.mark.parametrize("geometry", [SAME, WIDE], ids=["3x3", "5x5"])


@KINDS
@WINDOWS
@pytest.mark.parametrize("some", [1, 700_000, 10**9])
def test_results_are_those_of_the_packed_weights(
    isa: str, monkeypatch: pytest.MonkeyPatch, kind: Any, geometry: Window, some: int
) -> None:
    """In chunks and slices, or as a whole; 48 outputs are whole blocks with AVX-512, too."""
    monkeypatch.setattr(winograd, "CHUNK", dict.fromkeys(winograd.CHUNK, some))
    monkeypatch.setattr(winograd, "SLICE", dict.fromkeys(winograd.SLICE, some // 10))
    shape = (2, 64, 14, 10)
    made = kind(direct(shape, 48, geometry, threads=2))
    for _ in range(2):
        x, w, b = normal(*shape), normal(48, 64, *geometry.kernel), normal(48)
        made.w.data[...], made.b.data[...] = w, b
        made.pack()
        made.w.value.release()
        expected = exact(x, w, np.zeros((2, 48, 14, 10)))[0] + b[:, None, None]
        scale = np.abs(expected).max()
        np.testing.assert_allclose(forward(made, x), np.maximum(expected, 0), atol=5e-6 * scale)


@KINDS
def test_groups(isa: str, kind: Any) -> None:
    x, w = normal(*SMALL), normal(64, 32, 3, 3)
    found = []
    for make in (lambda plan: plan, kind):
        made = make(direct(SMALL, 64, SAME, groups=2))
        made.w.data[...] = w
        made.pack()
        found.append(forward(made, x))
    expected, transformed = found
    np.testing.assert_allclose(transformed, expected, atol=5e-6 * np.abs(expected).max())


def test_the_library_has_a_kernel_for_groups_of_one_pixel() -> None:
    made = direct(SMALL, 64, SAME)
    name = made.library.implementation(made._hint)
    if "avx2" not in name and "avx512" not in name:
        pytest.skip(f"not a CPU that it was made for: {name}")
    assert GroupedWinograd(made).has_kernel


# The choice.


def choice(made: Any) -> type:
    return type(plan_trials.fastest_convolution(made))


def test_the_fastest_is_kept_for_later_processes(timed: list[type], folder: Path) -> None:
    last = choice(direct(SMALL, 64, SAME))
    assert timed[:2] == [Convolution, PackedWinograd] and last is timed[-1]
    assert choice(direct(SMALL, 64, SAME)) is last
    plan_trials._choices.cache_clear()  # a new process
    count = len(timed)
    assert choice(direct(SMALL, 64, SAME)) is last and len(timed) == count
    assert choice(direct(SMALL, 80, SAME)) is last and len(timed) == 2 * count
    assert choice(direct(SMALL, 64, SAME, threads=2)) is last and len(timed) == 3 * count
    kept = json.loads((folder / "onednn_plans.json").read_text())
    assert sorted(map(len, kept.values())) == [1, 2]
    assert all("oneDNN" in about and "thread" in about for about in kept)


@pytest.mark.parametrize(("of_the_first", "kind"), [(0.97, Convolution), (0.9, PackedWinograd)])
def test_what_is_about_as_fast_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch, folder: Path, of_the_first: float, kind: type
) -> None:
    monkeypatch.setattr(
        plan_trials, "_seconds", lambda plan: of_the_first if type(plan) is PackedWinograd else 1.0
    )
    assert choice(direct(SMALL, 64, SAME)) is kind


@pytest.mark.parametrize("suits", [True, False])
def test_disturbed_trials_decide_nothing(
    monkeypatch: pytest.MonkeyPatch, folder: Path, suits: bool
) -> None:
    """An estimate does, until the processors are free."""
    interruptions = iter(range(10**6))
    monkeypatch.setattr(plan_trials, "_interruptions", lambda: next(interruptions))
    monkeypatch.setattr(PackedWinograd, "suits", lambda *_: suits)
    assert choice(direct(SMALL, 64, SAME)) is (PackedWinograd if suits else Convolution)
    assert not (folder / "onednn_plans.json").exists()
    monkeypatch.setattr(plan_trials, "_interruptions", lambda: 0)
    choice(direct(SMALL, 64, SAME))
    assert (folder / "onednn_plans.json").exists()


def test_runs_that_were_disturbed_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([0, 1, 1, 1])
    monkeypatch.setattr(plan_trials, "_interruptions", lambda: next(counts))
    plan = direct(SMALL, 64, SAME)
    assert plan_trials._seconds(plan) == float("inf")
    assert plan_trials._seconds(plan) < float("inf")


def test_a_method_that_is_gone_is_replaced(timed: list[type], folder: Path) -> None:
    chosen = choice(direct(SMALL, 64, SAME))
    file = folder / "onednn_plans.json"
    kept = json.loads(file.read_text())
    file.write_text(
        json.dumps({a: dict.fromkeys(b, "of another release") for a, b in kept.items()})
    )
    plan_trials._choices.cache_clear()
    timed.clear()
    assert choice(direct(SMALL, 64, SAME)) is chosen and timed
    assert json.loads(file.read_text()) == kept


def test_nowhere_to_keep_choices_is_said_once(
    timed: list[type], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("a file where a folder should be")
    for outputs in (64, 80):
        for _ in range(2):
            assert choice(direct(SMALL, outputs, SAME)) is timed[-1]
    assert caplog.text.count("timed plans are not kept") == 1


def test_what_is_never_timed(monkeypatch: pytest.MonkeyPatch, timed: list[type]) -> None:
    choice(direct((1, 16, 7, 7), 16, SAME))  # too small to matter
    choice(direct(SMALL, 64, window((3, 3), 2, 1)))  # has one method only
    made = direct((8, 64, 28, 28), 64, SAME)
    op = (made.x, made.w, made.b, made.y, SAME, 1, None)
    made.backend.convolution(*op)  # for training
    monkeypatch.setenv(onednn.SAME_IN_EVERY_BATCH, "1")
    with made.backend.per_sample(True):
        assert made.backend.packed_convolution(*op) is None
    assert not timed


def test_a_trial_leaves_the_blobs_alone() -> None:
    made = direct(SMALL, 64, SAME)
    made.x.data[...] = 1
    made.w.data[...] = 2
    made.y.data[...] = 3
    plan_trials.fastest_convolution(made)
    assert (made.x.data == 1).all() and (made.w.data == 2).all() and (made.y.data == 3).all()


# In nets.


NET = """
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 1 dim: 16 dim: 28 dim: 28 } } }
layer { name: "first" type: "Convolution" bottom: "data" top: "first"
  convolution_param { num_output: 64 kernel_size: 1 weight_filler { type: "msra" } } }
layer { name: "plain" type: "Convolution" bottom: "first" top: "plain"
  convolution_param { num_output: 64 kernel_size: 3 pad: 1 weight_filler { type: "msra" } } }
layer { name: "relu" type: "ReLU" bottom: "plain" top: "plain" }
layer { name: "folded" type: "Convolution" bottom: "plain" top: "folded"
  convolution_param { num_output: 64 kernel_size: 3 pad: 1 weight_filler { type: "msra" } } }
layer { name: "bn" type: "BatchNorm" bottom: "folded" top: "folded" }
"""


@pytest.mark.parametrize("method", plan_trials.WINDOWS)
def test_nets_run_what_was_chosen(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(plan_trials, "_fastest", lambda plan: method)
    param = schema.parse_text(NET, schema.NetParameter())
    nets: list[Any] = [caffe.Net(param, caffe.TEST) for _ in range(2)]
    nets[1].stop_inference()
    for net in nets:
        net.params["bn"][1].data[...] = net.params["bn"][2].data[...] = 1
    for seed in range(2):  # weights that have changed count
        for net in nets:
            for name in ("plain", "folded"):
                random = np.random.default_rng(seed)
                net.params[name][0].data[...] = random.standard_normal((64, 64, 3, 3)) / 24
        x = normal(1, 16, 28, 28)
        nets[1].params["first"][0].data[...] = nets[0].params["first"][0].data
        found, expected = (net.forward(data=x)["folded"].copy() for net in nets)
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    first, plain, folded = (step.op for step in nets[0].inference._steps if hasattr(step, "op"))
    kinds = [isinstance(op, OwnWeights) for op in (first, plain, folded)]
    assert kinds == [True, True, False] and not first.plan.packs
    assert plain.plan.packs == folded.plan.packs == (method != "direct")
