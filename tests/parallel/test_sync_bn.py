"""Statistics of the whole batch, also where leaves and ranks share it, and tests in sequence."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.errors import FireError
from pycaffe_fire.parallel.communicator import SerialCommunicator
from tests.parallel.test_jobs import run as run_job
from tests.parallel.test_jobs import run_here, write
from tests.parallel.test_jobs import weights as job_weights
from tests.parallel.test_leaves import BATCH_NORM, trained
from tests.solver.solver_cases import SGD, body, close, make, rows_layer, same_bits, write_rows

SYNC = BATCH_NORM.replace('top: "pool" }\n', 'top: "pool" batch_norm_param { sync: true } }\n', 1)
OWN_SCALE = (
    'layer { name: "bn" type: "BatchNorm" bottom: "pool" top: "pool" '
    "batch_norm_param { scale_bias: true%s } }\n"
)


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return write_rows(tmp_path)


@pytest.mark.parametrize(
    ("plain", "synced"),
    [(BATCH_NORM, SYNC), (OWN_SCALE % "", OWN_SCALE % " sync: true")],
    ids=["Scale layer", "own scale"],
)
@pytest.mark.parametrize("leaves", [2, 4, 6])
def test_statistics_are_those_of_the_whole_batch(
    rows: str, plain: str, synced: str, leaves: int
) -> None:
    """Weights and running averages as one leaf has them, where each leaf's own give others."""
    data = rows_layer(rows, 12)
    whole, losses = trained(data + body(between=plain), 1, 1)
    found, others = trained(data + body(between=synced), leaves, 1)
    close(found, whole)
    assert others == pytest.approx(losses, rel=1e-4)
    apart, _ = trained(data + body(between=plain), leaves, 1)
    assert not all(np.allclose(apart[name], whole[name], atol=1e-4) for name in whole)


def test_threads_do_not_change_bits(rows: str) -> None:
    text = rows_layer(rows, 12) + body(between=SYNC)
    assert same_bits(trained(text, 6, 1)[0], trained(text, 6, 2)[0])


def test_one_leaf_is_caffes_arithmetic(rows: str) -> None:
    data = rows_layer(rows, 8)
    plain = trained(data + body(between=BATCH_NORM), 1, 1)[0]
    close(trained(data + body(between=SYNC), 1, 1)[0], plain)


def test_ranks_do_not_change_bits(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="several ranks need mpi4py")
    write(tmp_path, 6)
    alone = job_weights(tmp_path, "--leaves", "4", "--sync-bn")
    assert job_weights(tmp_path, "--leaves", "4", "--sync-bn", "-n", "3") == alone
    assert job_weights(tmp_path, "--leaves", "4") != alone


def test_a_leaf_that_fails_keeps_none_waiting(rows: str) -> None:
    text = (rows_layer(rows, 8) + body(between=SYNC)).replace("num_output: 4", "num_output: 3")
    solver = make(text, SGD, 2, leaves=4)
    with pytest.raises(FireError, match='"loss".*label 3'):
        solver.step(3)
    solver.close()


def test_parts_and_the_whole_cannot_both_be_had(rows: str) -> None:
    both = SYNC.replace("sync: true", "sync: true stats_batch_size: 2")
    with pytest.raises(FireError, match='"bn".*sync.*stats_batch_size'):
        make(rows_layer(rows, 8) + body(between=both), SGD, 1)


@pytest.mark.parametrize(
    ("between", "batch", "leaves", "told"),
    [
        (BATCH_NORM, 8, 2, "statistics of 4 sample(s)"),
        (BATCH_NORM, 16, 2, ""),
        (BATCH_NORM, 4, 1, ""),
        (SYNC, 8, 2, ""),
        (SYNC.replace("sync", "use_global_stats"), 8, 2, ""),
    ],
    ids=["small leaves", "large leaves", "one leaf", "synchronised", "no statistics"],
)  # fmt: skip
def test_statistics_of_few_samples_are_worth_a_word(
    rows: str, caplog: pytest.LogCaptureFixture, between: str, batch: int, leaves: int, told: str
) -> None:
    with caplog.at_level(logging.WARNING):
        make(rows_layer(rows, batch) + body(between=between), SGD, 1, leaves=leaves).close()
    assert ("say little" in caplog.text) == bool(told)
    assert told in caplog.text


# Tests of nets that remember.

RECURRENT = """
layer { name: "data" type: "DummyData" top: "x" dummy_data_param {
  shape { dim: 3 dim: 2 dim: 4 } data_filler { type: "gaussian" } } }
layer { name: "cont" type: "DummyData" top: "cont" dummy_data_param {
  shape { dim: 3 dim: 2 } data_filler { type: "constant" value: 1 } } }
layer { name: "rnn" type: "RNN" bottom: "x" bottom: "cont" top: "h" recurrent_param {
  num_output: 3 weight_filler { type: "gaussian" std: 1 } } }
layer { name: "loss" type: "Reduction" bottom: "h" top: "loss" loss_weight: 1
  reduction_param { operation: SUMSQ } }
"""


class OneOfTwo(SerialCommunicator):
    """A rank that knows what rank 0, if that is another one, says in its place."""

    size = 2

    def __init__(self, rank: int, first: Any = None) -> None:
        self.rank, self._first = rank, first
        self.said: Any = None

    def gather(self, value: Any) -> list[Any]:
        self.said = value
        if isinstance(value, int):  # what is asked of the solver: nothing
            return [value, value]
        return [value, []] if self.rank == 0 else [self._first, value]


def test_passes_of_recurrent_nets_depend_on_no_rank() -> None:
    """Every rank runs all of them, and rank 0 tells what came out."""
    settings = SGD + "test_iter: 5 test_interval: 100 test_initialization: false"
    alone = make(RECURRENT, settings, 1)
    expected = [output.value for output in alone.test(0)]
    first = None
    for rank in (0, 1):
        solver = make(RECURRENT, settings, 1)
        solver.communicator = ranks = OneOfTwo(rank, first)
        assert [output.value for output in solver.test(0)] == expected
        first = ranks.said
        (rnn,) = (layer for layer in solver.test_nets[0].layers if layer.name == "rnn")
        (same,) = (layer for layer in alone.test_nets[0].layers if layer.name == "rnn")
        assert rnn.memory is not None and same.memory is not None
        np.testing.assert_array_equal(rnn.memory[0][0], same.memory[0][0])


def test_recurrent_nets_are_tested_alike_on_real_ranks(tmp_path: Path) -> None:
    """As a job: the batches of a test carry on where the last one ended, on any rank."""
    pytest.importorskip("mpi4py", reason="several ranks need mpi4py")
    write(tmp_path, 1)
    (tmp_path / "recurrent.prototxt").write_text(RECURRENT)
    settings = (tmp_path / "solver.prototxt").read_text().replace("net:", "train_net:")
    (tmp_path / "solver.prototxt").write_text(
        settings.replace("test_iter: 4", 'test_iter: 5 test_net: "recurrent.prototxt"')
    )

    def loss(log: str) -> list[str]:
        return re.findall(r"Test net output #0: loss = (\S+)", log)

    alone = loss(run_here(tmp_path, "--log"))
    assert len(alone) == 1 and float(alone[0]) > 0
    assert loss(run_job(tmp_path, "--log", "-n", "3", "--leaves", "4")) == alone
