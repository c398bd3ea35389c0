"""Another global batch and a rate to match, without touching the files."""

from __future__ import annotations

from typing import Any

import pytest

from pycaffe_fire import schema
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver.large_batch import scale_rate, with_batch
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


def test_without_scaling_nothing_changes() -> None:
    param = solver()
    before = param.SerializeToString()
    scale_rate(param, None, 32.0, 10)
    scale_rate(param, "linear", 1.0, 10)
    assert param.SerializeToString() == before


def test_shuffling_is_for_training_only() -> None:
    made = with_shuffling(solver(), NO_STATE)
    train, test = find_train_net(made, NO_STATE), find_test_nets(made)[0]
    assert train.param.layer[0].data_param.shuffle
    assert not any(layer.data_param.shuffle for layer in test.param.layer)
