"""Leaves: bits depend on their number alone, never on how many threads computed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from pycaffe_fire.errors import FireError
from pycaffe_fire.solver.events import Evaluated, Trained
from tests.solver.solver_cases import (
    DROPOUT,
    SGD,
    body,
    close,
    make,
    rows_layer,
    same_bits,
    weights,
    write_rows,
)

BATCH_NORM = (
    'layer { name: "bn" type: "BatchNorm" bottom: "pool" top: "pool" }\n'
    'layer { name: "scale" type: "Scale" bottom: "pool" top: "pool" '
    "scale_param { bias_term: true } }\n"
)
SHARED = 'param { name: "w" } param { name: "b" }'
TWINS = "".join(
    f'layer {{ name: "t{i}" type: "InnerProduct" bottom: "{a}" top: "{b}" {SHARED} '
    'inner_product_param { num_output: 144 weight_filler { type: "xavier" } } }\n'
    for i, (a, b) in enumerate((("pool", "t0"), ("t0", "t1")))
)


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return write_rows(tmp_path)


def trained(text: str, leaves: int, threads: int, steps: int = 3, settings: str = SGD) -> Any:
    solver = make(text, settings, threads, leaves=leaves)
    losses: list[float] = []
    solver.observers.append(lambda e: losses.append(e.loss) if isinstance(e, Trained) else None)
    solver.step(steps)
    found = weights(solver)
    solver.close()
    return found, losses


@pytest.mark.parametrize("leaves", [2, 4, 8])
def test_threads_do_not_change_bits(rows: str, leaves: int) -> None:
    text = rows_layer(rows, 8) + body(between=DROPOUT)
    first, losses = trained(text, leaves, 1)
    for threads in (2, 3):
        again, others = trained(text, leaves, threads)
        assert same_bits(first, again)
        assert losses == others


def test_one_leaf_is_the_plain_net(rows: str) -> None:
    text = rows_layer(rows, 8) + body(between=DROPOUT)
    assert same_bits(trained(text, 1, 1)[0], trained(text, 1, 1)[0])
    close(trained(text, 1, 2)[0], trained(text, 1, 1)[0])


@pytest.mark.parametrize("leaves", [2, 8])
def test_leaves_compute_the_same_gradient(rows: str, leaves: int) -> None:
    """Another order of summation, nothing else; dropout masks follow the sample, too."""
    text = rows_layer(rows, 8) + body(between=DROPOUT)
    one, one_losses = trained(text, 1, 1)
    many, many_losses = trained(text, leaves, 2)
    close(many, one)
    assert many_losses == pytest.approx(one_losses, rel=1e-5)


@pytest.mark.parametrize("between", [BATCH_NORM, TWINS], ids=["running averages", "shared weights"])
def test_threads_do_not_change_bits_of_special_layers(rows: str, between: str) -> None:
    text = rows_layer(rows, 8) + body(between=between)
    if between is TWINS:
        text = text.replace(
            'type: "InnerProduct" bottom: "pool" top: "ip"',
            'type: "InnerProduct" bottom: "t1" top: "ip"',
        )
    first, _ = trained(text, 4, 1)
    for threads in (2, 3):
        assert same_bits(first, trained(text, 4, threads)[0])


WIDE = """
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 8 dim: 3 dim: 24 dim: 24 } shape { dim: 8 }
    data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 64 kernel_size: 3 weight_filler { type: "msra" } } }
layer { name: "wide" type: "Convolution" bottom: "conv" top: "wide"
  convolution_param { num_output: 128 kernel_size: 3 pad: 1 weight_filler { type: "msra" } } }
layer { name: "ip" type: "InnerProduct" bottom: "wide" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def test_threads_do_not_change_bits_of_winograds_method() -> None:
    winograd = pytest.importorskip("pycaffe_fire.backend.onednn.winograd")
    solver = make(WIDE, SGD, 1, leaves=4)
    (wide,) = (layer for layer in solver.net.layers if layer.name == "wide")
    assert isinstance(cast(Any, wide)._plans[0][0], winograd.Winograd)
    solver.close()
    first, _ = trained(WIDE, 4, 1)
    assert same_bits(first, trained(WIDE, 4, 2)[0])
    direct = WIDE.replace("pad: 1", "pad: 1 engine: CAFFE")
    close(first, trained(direct, 4, 1)[0])


def test_shared_weights_with_leaves_equal_those_without(rows: str) -> None:
    text = (rows_layer(rows, 8) + body(between=TWINS)).replace(
        'type: "InnerProduct" bottom: "pool" top: "ip"',
        'type: "InnerProduct" bottom: "t1" top: "ip"',
    )
    close(trained(text, 4, 2)[0], trained(text, 1, 1)[0])


def test_passes_and_leaves(rows: str) -> None:
    text = rows_layer(rows, 4) + body(between=DROPOUT)
    settings = SGD + "iter_size: 2"
    one, _ = trained(text, 1, 1, settings=settings)
    first, _ = trained(text, 4, 1, settings=settings)
    close(first, one)
    assert same_bits(first, trained(text, 4, 2, settings=settings)[0])


def test_outputs_are_means_over_leaves(rows: str) -> None:
    text = rows_layer(rows, 8) + body()
    solver = make(text, SGD + "display: 1", 2, leaves=4)
    seen: list[Trained] = []
    solver.observers.append(lambda e: seen.append(e) if isinstance(e, Trained) else None)
    solver.step(1)
    assert seen[0].outputs[0].value == pytest.approx(seen[0].loss)
    alone = make(text)
    assert seen[0].loss == pytest.approx(alone.net.run_forward(), rel=1e-5)


def test_clipping_sees_the_mean_gradient(rows: str) -> None:
    text, settings = rows_layer(rows, 8) + body(), SGD + "clip_gradients: 0.05"
    close(trained(text, 4, 2, settings=settings)[0], trained(text, 1, 1, settings=settings)[0])


def test_weights_loaded_between_steps_reach_all_threads(rows: str, tmp_path: Path) -> None:
    text = rows_layer(rows, 8) + body()
    other = make(text, seed=9)
    other.net.save(str(tmp_path / "other.caffemodel"))
    found = []
    for threads in (1, 2):
        solver = make(text, SGD, threads, leaves=8)
        solver.step(1)
        for _ in range(5):
            solver.net.copy_from(str(tmp_path / "other.caffemodel"))
            solver.step(1)
        found.append(weights(solver))
        solver.close()
    assert same_bits(*found)


def test_shared_gradient_memory_changes_nothing(rows: str) -> None:
    text = rows_layer(rows, 8) + body(between=DROPOUT)
    lean = make(text, SGD, 2, leaves=4, share_gradients=True)
    lean.step(3)
    assert same_bits(weights(lean), trained(text, 4, 1)[0])


def test_a_batch_that_cannot_be_cut(rows: str) -> None:
    message = '"data".*batch of 6 cannot be cut into 4.*batch_size of 4 or 8, or --leaves 3 or 6'
    with pytest.raises(FireError, match=message):
        make(rows_layer(rows, 6) + body(), leaves=4)


def test_a_net_without_weights_does_not_hang(rows: str) -> None:
    text = rows_layer(rows, 8) + (
        'layer { name: "red" type: "Reduction" bottom: "data" top: "red" loss_weight: 1 }'
    )
    solver = make(text, SGD, 2, leaves=2)
    solver.step(1)
    assert solver.iter == 1 and np.isfinite(float(solver.net.blobs["red"].data))


def test_an_error_in_one_leaf_is_the_run_s(rows: str) -> None:
    """Labels 0 to 3 with three classes: some leaf fails, and the message says where."""
    text = (rows_layer(rows, 8) + body()).replace("num_output: 4", "num_output: 3")
    solver = make(text, SGD, 2, leaves=4)
    with pytest.raises(FireError, match='"loss".*label 3'):
        solver.step(3)
    solver.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_last_loss_is_that_of_all_leaves(rows: str, threads: int) -> None:
    text = rows_layer(rows, 8) + body()
    settings = SGD + "display: 2 max_iter: 2 snapshot_after_train: false"
    found = []
    for leaves in (1, 4):
        solver = make(text, settings, threads, leaves=leaves)
        solver.observers.append(
            lambda e: found.append(e.loss) if isinstance(e, Evaluated) else None
        )
        solver.solve()
        solver.close()
    assert found[1] == pytest.approx(found[0], rel=1e-4)
