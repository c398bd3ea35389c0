"""How many leaves a batch is cut into on so many ranks, and what to choose where that is uneven."""

from __future__ import annotations

import re

import pytest

from pycaffe_fire.data.order import leaf_size
from pycaffe_fire.errors import DataError
from pycaffe_fire.parallel.communicator import SerialCommunicator
from pycaffe_fire.parallel.division import advice, choose_leaves, speed


@pytest.mark.parametrize(
    ("ranks", "batch", "leaves"),
    [
        (1, 100, 1), (2, 64, 2), (8, 256, 8), (4, 0, 4),  # as ever
        (6, 0, 8),  # nobody knows the batch
        (6, 96, 6), (3, 300, 3), (12, 1020, 12),  # a leaf each
        (6, 256, 64), (3, 32, 8), (5, 80, 5), (5, 64, 8),  # more leaves than ranks
        (8, 100, 20),  # not smaller leaves than is good
        (3, 8, 4), (6, 8, 8),  # nothing better
        (8, 4, 8),  # fewer samples than ranks: refused when the data is cut
    ],
)  # fmt: skip
def test_as_few_leaves_as_keep_all_ranks_busy(ranks: int, batch: int, leaves: int) -> None:
    assert choose_leaves(ranks, batch) == leaves


@pytest.mark.parametrize(("batch", "least"), [(96, 1.5), (192, 1.5), (256, 1.4), (1024, 1.4)])
def test_six_ranks_have_less_to_do_than_four(batch: int, least: float) -> None:
    """With the leaves of either, so that both give the same bits: samples of the slowest rank."""
    leaves = choose_leaves(6, batch)

    def samples(ranks: int) -> int:
        communicator = SerialCommunicator()
        communicator.size = ranks
        own = []
        for communicator.rank in range(ranks):
            own.append(len(communicator.own_leaves(leaves)))
        assert sum(own) == leaves
        return max(own) * leaf_size(batch, leaves)

    assert batch / samples(6) == pytest.approx(speed(6, leaves))
    assert speed(6, leaves) >= least * 4
    assert leaves == 6 or samples(4) >= least * samples(6)


def test_ranks_that_wait_are_told_what_to_choose() -> None:
    assert advice(6, 6, 96) == advice(4, 4, 64) == advice(1, 1, 7) == ""
    assert advice(6, 8, 256) == "6 ranks with 8 leaves are as fast as 4; choose --leaves 64"
    assert advice(6, 8, 32) == (
        "6 ranks with 8 leaves are as fast as 4; choose a batch of 30 or 36, which they can share "
        "evenly"
    )
    assert advice(8, 10, 100) == (
        "8 ranks with 10 leaves are as fast as 5; choose --leaves 20, or a batch of 96 or 104, "
        "which they can share evenly"
    )
    assert advice(6, 8) == "6 ranks with 8 leaves are as fast as 4"


def test_tiny_leaves_are_told_too() -> None:
    assert advice(2, 101, 101) == (
        "2 ranks can share 101 samples only in 101 leaves, which are slow; choose a batch of 100 "
        "or 102, which they can share evenly"
    )
    assert advice(2, 32, 32) == advice(8, 8, 8) == ""  # asked for, or nothing better


@pytest.mark.parametrize("ranks", range(1, 17))
def test_every_batch_is_shared_well_or_another_is_named(ranks: int) -> None:
    """What ranks can be as fast as, and the samples of a leaf; the batches that are named do."""

    def shared_well(batch: int) -> bool:
        leaves = choose_leaves(ranks, batch)
        samples = leaf_size(batch, leaves)
        return speed(ranks, leaves) >= 0.9 * ranks and samples >= min(4, batch // ranks)

    for batch in range(ranks, 300):
        told = advice(ranks, choose_leaves(ranks, batch), batch)
        assert bool(told) != shared_well(batch), batch
        if told:
            named = re.findall(r"\d+", told.partition("a batch of ")[2])
            assert named and all(shared_well(int(other)) for other in named)


def test_a_batch_that_cannot_be_cut_is_refused_with_those_that_can() -> None:
    assert leaf_size(96, 6) == 16
    with pytest.raises(
        DataError, match="100 .* 6 equal leaves; .*of 96 or 102, or --leaves 5 or 10"
    ):
        leaf_size(100, 6)
