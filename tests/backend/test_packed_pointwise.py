"""1x1 convolutions by our product for inference, how it is chosen, and what joins it in nets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from tests.backend.op_cases import Array, window
from tests.backend.test_packed_winograd import direct, forward
from tests.backend.test_winograd import SAME, normal

pytest.importorskip("numba")
onednn = pytest.importorskip("pycaffe_fire.backend.onednn")
from pycaffe_fire.backend.onednn import packed_pointwise, plan_trials  # noqa: E402
from pycaffe_fire.backend.onednn.convolution import Convolution  # noqa: E402
from pycaffe_fire.backend.onednn.packed_pointwise import PackedPointwise  # noqa: E402

pytestmark = pytest.mark.usefixtures("folder")
POINT = window((1, 1))
LONG = (1, 64, 40, 40)  # worth a trial with 64 outputs


@pytest.fixture(scope="module", autouse=True)
def blocks_of_eight() -> None:
    if not PackedPointwise.can(direct((1, 16, 7, 7), 16, POINT)):
        pytest.skip("the library's layouts have other blocks on this CPU")


def product(x: Array, w: Array, b: Array, slope: float) -> Array:
    """In double precision."""
    y = np.einsum("nihw,oi->nohw", x.astype(float), w.astype(float)) + b[:, None, None]
    return np.where(y > 0, y, slope * y)


SHAPES = [
    ((1, 24, 7, 7), 48),  # 4 tiles of 6 pixels and 5 of 5
    ((3, 64, 5, 5), 40),  # the last two groups of outputs have a block in common
    ((2, 8, 4, 6), 16),  # the fewest of all
    ((1, 72, 13, 29), 24),
    ((1, 64, 1, 1), 1000),
    ((1, 32, 64, 64), 64),
]


@pytest.mark.parametrize("slope", [None, 0.0, 0.1])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("shape", "outputs"), SHAPES)
def test_results_are_those_of_the_packed_weights(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], outputs: int, threads: int, slope: Any
) -> None:
    monkeypatch.setattr(packed_pointwise, "AT_ONCE", 3000)  # pixels go in parts
    plain = direct(shape, outputs, POINT, threads=threads)
    plain.relu = slope
    made = PackedPointwise(plain)
    for _ in range(2):
        x, w, b = normal(*shape), normal(outputs, shape[1], 1, 1), normal(outputs)
        made.w.data[...], made.b.data[...] = w, b
        made.pack()
        made.w.value.release()
        expected = product(x, w[..., 0, 0], b, 1 if slope is None else slope)
        np.testing.assert_allclose(forward(made, x), expected, atol=1e-5, rtol=1e-4)
    made.forward(activate=False)
    np.testing.assert_allclose(made.y.data, product(x, w[..., 0, 0], b, 1), atol=1e-5, rtol=1e-4)


def test_threads_and_parts_do_not_change_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (2, 48, 11, 13)
    x, w = normal(*shape), normal(56, 48, 1, 1)
    found = []
    for threads, at_once in ((1, 10**6), (2, 10**6), (2, 2000)):
        monkeypatch.setattr(packed_pointwise, "AT_ONCE", at_once)
        made = PackedPointwise(direct(shape, 56, POINT, threads=threads))
        made.w.data[...] = w
        made.pack()
        found.append(forward(made, x))
    assert all((each == found[0]).all() for each in found)


def test_nan_is_shown() -> None:
    made = PackedPointwise(direct((1, 16, 7, 7), 16, POINT))
    made.w.data[...] = 1
    made.pack()
    x = np.ones((1, 16, 7, 7))
    x[0, 3, 2, 5] = np.nan
    assert (np.isnan(forward(made, x)) == np.isnan(x).any(1)).all()


def test_storage_may_move() -> None:
    made = PackedPointwise(direct((1, 16, 7, 7), 16, POINT))
    made.w.data[...] = 1
    made.pack()
    x = normal(2, 16, 7, 7)
    expected, _ = forward(made, x[:1]), forward(made, x[1:])
    for blob in (made.x, made.y):
        blob.value.move(np.zeros(blob.count, np.float32))
    assert (forward(made, x[:1]) == expected).all()


@pytest.mark.parametrize(
    ("shape", "outputs", "geometry", "groups"),
    [
        ((1, 16, 7, 7), 16, SAME, 1),
        ((1, 16, 14, 14), 16, window((1, 1), 2), 1),
        ((1, 16, 7, 7), 16, window((1, 1), 1, 1), 1),
        ((1, 32, 7, 7), 32, POINT, 2),
        ((1, 16, 7, 7), 20, POINT, 1),  # no whole blocks
        ((1, 16, 7, 7), 8, POINT, 1),
        ((1, 16, 4, 5), 16, POINT, 1),  # too few pixels for tiles
        ((2, 16, 1, 1), 16, POINT, 1),
    ],
)
def test_what_it_is_not_for(shape: Any, outputs: int, geometry: Any, groups: int) -> None:
    assert not PackedPointwise.can(direct(shape, outputs, geometry, groups))


# The choice.


def choice(made: Any) -> type:
    return type(plan_trials.fastest_convolution(made))


@pytest.mark.parametrize(("of_ours", "kind"), [(0.97, PackedPointwise), (0.9, Convolution)])
def test_the_librarys_own_must_be_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, folder: Path, of_ours: float, kind: type
) -> None:
    monkeypatch.setattr(
        plan_trials, "_seconds", lambda plan: of_ours if type(plan) is Convolution else 1.0
    )
    assert choice(direct(LONG, 64, POINT)) is kind
    assert (folder / "onednn_plans.json").exists()
    monkeypatch.setattr(plan_trials, "_seconds", None)  # no other trial
    assert choice(direct(LONG, 64, POINT)) is kind


def test_what_is_short_is_left_to_the_library(timed: list[type]) -> None:
    assert choice(direct((1, 16, 7, 7), 16, POINT)) is Convolution and not timed
    choice(direct((1, 1024, 1, 1), 1000, POINT))  # reading the weights takes long
    assert timed


def test_disturbed_trials_decide_nothing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    interruptions = iter(range(10**6))
    monkeypatch.setattr(plan_trials, "_interruptions", lambda: next(interruptions))
    assert choice(direct(LONG, 64, POINT)) is PackedPointwise
    assert not (folder / "onednn_plans.json").exists()


# In nets.


NET = """
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: %d dim: 3 dim: 28 dim: 28 } } }
layer { name: "first" type: "Convolution" bottom: "data" top: "first"
  convolution_param { num_output: 16 kernel_size: 3 weight_filler { type: "msra" } } }
layer { name: "dw" type: "Convolution" bottom: "first" top: "dw"
  convolution_param { num_output: 16 kernel_size: 3 pad: 1 group: 16
    weight_filler { type: "msra" } } }
layer { name: "point" type: "Convolution" bottom: "dw" top: "point"
  convolution_param { num_output: 32 kernel_size: 1 weight_filler { type: "msra" } } }
layer { name: "bn" type: "BatchNorm" bottom: "point" top: "point" }
layer { name: "relu" type: "ReLU" bottom: "point" top: "point" }
layer { name: "pool" type: "Pooling" bottom: "point" top: "pool"
  pooling_param { pool: AVE global_pooling: true } }
layer { name: "fc" type: "Convolution" bottom: "pool" top: "fc"
  convolution_param { num_output: 40 kernel_size: 1 weight_filler { type: "msra" } } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""


@pytest.mark.parametrize("batch", [1, 3])
def test_a_net_is_one_step_and_blobs_can_be_looked_at(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(plan_trials, "WORTH_A_TRIAL", 0)
    monkeypatch.setattr(plan_trials, "_fastest", lambda plan: "product")
    param = schema.parse_text(NET % batch, schema.NetParameter())
    nets: list[Any] = [caffe.Net(param, caffe.TEST) for _ in range(2)]
    nets[1].stop_inference()
    nets[1].share_with(nets[0])
    nets[0].plan_inference()
    nets[0].params["bn"][1].data[...] = nets[0].params["bn"][2].data[...] = 1
    for look in (False, True, False):
        x = normal(batch, 3, 28, 28)
        found, expected = (net.forward(data=x)["prob"].copy() for net in nets)
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        steps = [step for step, _ in nets[0].inference._runs]
        assert look or len(steps) == 2  # the input, and all else
        if look:
            for name in ("dw", "point", "pool", "fc"):
                seen, plain = (net.blobs[name].data for net in nets)
                np.testing.assert_allclose(seen, plain, rtol=1e-4, atol=1e-5)
    kinds = [type(s.op.plan) for s in nets[0].inference._steps if hasattr(s, "op")]
    assert kinds.count(PackedPointwise) == (2 if batch == 1 else 1)
