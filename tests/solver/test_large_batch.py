"""Another global batch and a rate to match, without touching the files."""

from __future__ import annotations

from typing import Any

import pytest

from pycaffe_fire import schema
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver.large_batch import (
    changes,
    keep_epochs,
    known_to_fail,
    scale_rate,
    schedule_kept,
    with_batch,
)
from pycaffe_fire.solver.nets import find_test_nets, find_train_net, with_shuffling
from pycaffe_fire.solver.rates import learning_rate

NET = """
layer { name: "data" type: "Data" top: "data" include { phase: TRAIN }
  data_param { source: "train" batch_size: 32 backend: LMDB } }
layer { name: "data" type: "Data" top: "data" include { phase: TEST }
  data_param { source: "test" batch_size: 50 backend: LMDB } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" }
"""
NO_STATE = schema.NetState()


def solver(**fields: Any) -> Any:
    param = schema.SolverParameter(
        base_lr=0.01, lr_policy="poly", power=0.5, max_iter=1000, test_interval=10, test_iter=[2]
    )
    schema.parse_text(NET, param.net_param)
    for name, value in fields.items():
        setattr(param, name, value)
    return param


def batches(param: Any) -> tuple[list[int], list[int]]:
    """Of the training net's and the test net's data layers that take part."""
    found = [find_train_net(param, NO_STATE), *find_test_nets(param)]
    phases = (schema.TRAIN, schema.TEST)
    read = []
    for net, phase in zip(found, phases, strict=True):
        layers = [x for x in net.param.layer if x.type == "Data"]
        kept = [x for x in layers if not x.include or x.include[0].phase == phase]
        read.append([x.data_param.batch_size for x in kept])
    return read[0], read[1]


@pytest.mark.parametrize(("batch", "ranks", "expected"), [(1024, 4, 1024), ("per-rank", 4, 128)])
def test_only_the_training_batch_changes(batch: int | str, ranks: int, expected: int) -> None:
    made, factor = with_batch(solver(), NO_STATE, batch, ranks)
    assert batches(made) == ([expected], [50])
    assert factor == expected / 32


def test_a_net_without_a_batch_size_is_refused() -> None:
    param = schema.SolverParameter(base_lr=0.01, lr_policy="fixed")
    schema.parse_text('layer { name: "i" type: "Input" top: "i" }', param.net_param)
    with pytest.raises(SolverError, match="--batch needs a training net with a data layer"):
        with_batch(param, NO_STATE, 64, 1)


@pytest.mark.parametrize(("how", "rate"), [("linear", 0.32), ("sqrt", 0.01 * 32**0.5)])
def test_the_rate_rises_to_the_scaled_one(how: str, rate: float) -> None:
    param = solver(lr_policy="fixed")
    scale_rate(param, how, 32.0, None)
    assert learning_rate(param, 0) == pytest.approx(0.01)
    assert learning_rate(param, 25) == pytest.approx((0.01 + rate) / 2)
    assert learning_rate(param, 50) == pytest.approx(rate)
    assert learning_rate(param, 999) == pytest.approx(rate)


def test_stages_are_scaled_too() -> None:
    param = schema.SolverParameter(lr_policy="multifixed", max_iter=100, display=1)
    param.stagelr.extend([0.01, 0.001])
    param.stageiter.extend([60, 100])
    old = schema.SolverParameter()
    old.CopyFrom(param)
    keep_epochs(param, 2.0)
    scale_rate(param, "linear", 2.0, 10)
    assert list(param.stageiter) == [30, 50]
    rates = [learning_rate(param, i) for i in (0, 5, 10, 31)]
    assert rates == pytest.approx([0.01, 0.015, 0.02, 0.002])
    assert "stagelr 0.01,0.001 -> 0.02,0.002" in changes(old, param, 2.0, "epochs")[0]


def test_without_scaling_nothing_changes() -> None:
    param = solver()
    before = param.SerializeToString()
    scale_rate(param, None, 32.0, 10)
    scale_rate(param, "linear", 1.0, 10)
    assert param.SerializeToString() == before


def test_as_many_epochs() -> None:
    param = solver(
        lr_policy="multistep", max_iter=90000, test_interval=1000, snapshot=10000, display=20,
        average_loss=20, stepsize=30000, rampup_interval=500, warmup_iter=3,
    )  # fmt: skip
    param.stepvalue.extend([40000, 80000])
    param.plateau_winsize.extend([6400])
    keep_epochs(param, 32.0)
    assert (param.max_iter, param.test_interval, param.snapshot) == (2812, 37, 312)
    assert (param.display, param.average_loss, param.rampup_interval, param.warmup_iter) == (
        1, 1, 16, 1,
    )  # fmt: skip
    assert list(param.stepvalue) == [1250, 2500]
    assert list(param.plateau_winsize) == [200]
    assert param.stepsize == 938


def test_what_was_never_done_still_is_not() -> None:
    param = solver(snapshot=0, display=0)
    keep_epochs(param, 4.0)
    assert (param.snapshot, param.display, param.max_iter) == (0, 0, 250)
    assert not param.HasField("average_loss")


@pytest.mark.parametrize("policy", ["exp", "inv", "sigmoid", "poly", "cosine", "step"])
def test_the_rate_falls_by_as_much_in_an_epoch(policy: str) -> None:
    old, new = (solver(lr_policy=policy, gamma=0.999, power=0.75, stepsize=400) for _ in range(2))
    if policy != "exp":
        old.gamma = new.gamma = 0.01
    keep_epochs(new, 8.0)
    for done in (0, 80, 392, 400, 960):
        assert learning_rate(new, done // 8) == pytest.approx(learning_rate(old, done), rel=1e-5)


@pytest.mark.parametrize(("length", "made"), [(5000, 26), (4000, 25), (4096, 31), (500, 31)])
def test_a_test_at_the_end_stays_there_if_it_can(length: int, made: int) -> None:
    """Of 312 iterations, one in 31 would miss the last by two; 4,096 did not end with a test."""
    param = solver(max_iter=length, test_interval=500)
    keep_epochs(param, 16.0)
    assert param.max_iter == round(length / 16)
    assert param.test_interval == made


def test_old_and_new_schedule_are_told() -> None:
    old = solver()
    new = solver()
    keep_epochs(new, 10.0)
    scale_rate(new, "linear", 10.0, None)
    assert changes(old, new, 10.0, "epochs") == [
        "Schedule: batch x 10, as many epochs; max_iter 1000 -> 100, rampup_interval 0 -> 5, "
        "test_interval 10 -> 1, base_lr 0.01 -> 0.1"
    ]
    assert changes(old, old, 8.0, "iterations") == [
        "Schedule: batch x 8, as many iterations, 8 x the epochs; nothing changed"
    ]
    assert changes(old, old, 1.0, "epochs") == []
    new.max_iter, new.test_interval = 101, 20
    assert changes(old, new, 10.0, "epochs")[1] == "The last test is at iteration 100 of 101"


@pytest.mark.parametrize(
    ("asked", "batch", "scale", "kept"),
    [(None, 1024, None, "epochs"), (None, 1024, "linear", "epochs"),
     (None, "per-rank", None, "iterations"), (None, "per-rank", "linear", "epochs"),
     ("epochs", "per-rank", None, "epochs"), ("iterations", 1024, "linear", "iterations")],
)  # fmt: skip
def test_what_stays(asked: str | None, batch: int | str, scale: str | None, kept: str) -> None:
    assert schedule_kept(asked, batch, scale) == kept


@pytest.mark.parametrize(
    ("net", "batch", "rate", "told"),
    [("GoogLeNet", 1024, 0.16, True), ("GoogleNet", 1024, 0.32, True),
     ("GoogLeNet", 512, 0.2, True), ("GoogLeNet", 1024, 0.08, False),
     ("GoogLeNet", 4096, 0.32, False), ("NiN", 1024, 0.16, False)],
)  # fmt: skip
def test_rates_that_others_have_seen_fail(net: str, batch: int, rate: float, told: bool) -> None:
    said = known_to_fail(net, batch, schema.SolverParameter(base_lr=rate).base_lr)
    assert bool(said) == told
    if told:
        assert f"base_lr {rate:g} at batch {batch}" in said
        assert (
            "does not train at batch 1024 with 0.16 or 0.32; the best rate there was 0.08" in said
        )


def test_shuffling_is_for_training_only() -> None:
    made = with_shuffling(solver(), NO_STATE)
    train, test = find_train_net(made, NO_STATE), find_test_nets(made)[0]
    assert train.param.layer[0].data_param.shuffle
    assert not any(layer.data_param.shuffle for layer in test.param.layer)
