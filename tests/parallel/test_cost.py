"""The cost model: the published formulas, what overlap can hide, and the paper's own rows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pycaffe_fire.errors import SolverError
from pycaffe_fire.parallel.cost import (
    ALGORITHMS,
    NETWORKS,
    PAPER_ROWS,
    Network,
    PaperRow,
    Profile,
    Slice,
    iteration,
    levels,
    predict_paper,
    scaling,
)
from pycaffe_fire.parallel.measure import measure_network

WIRE = Network("wire", 0.0, 1e8)
ADDS_FREE = Profile("net", 1e8, 0.01, sum_rate=math.inf)


# Multiples of |W| / bandwidth, the paper's measure.
@pytest.mark.parametrize(
    ("algorithm", "p", "units"),
    [
        ("server", 2, 2), ("server", 128, 254), ("tree", 2, 2), ("tree", 8, 6), ("tree", 128, 14),
        ("tree", 5, 6), ("halving", 2, 1), ("halving", 128, 1.984375), ("ring", 128, 1.984375),
    ],
)  # fmt: skip
def test_volumes(algorithm: str, p: int, units: float) -> None:
    predicted = iteration(ADDS_FREE, WIRE, algorithm, p, 1, overlap=False)
    assert predicted.communication == pytest.approx(units)
    assert predicted.total == pytest.approx(0.01 + units)


@pytest.mark.parametrize(
    ("algorithm", "p", "steps"), [("server", 8, 14), ("tree", 8, 6), ("halving", 8, 6)]
)
def test_latency_counts_once_per_step(algorithm: str, p: int, steps: int) -> None:
    tiny = Profile("tiny", 4, 0.01)
    predicted = iteration(tiny, Network("slow", 1.0, 1e12), algorithm, p, 1)
    assert predicted.communication == pytest.approx(steps)


# Ranks in blocks of G: what goes within a host and through its link, in multiples of |W|.
@pytest.mark.parametrize(
    ("algorithm", "p", "g", "inner", "outer"),
    [("halving", 16, 4, 1.5, 1.5), ("halving", 8, 8, 1.75, 0), ("halving", 8, 1, 0, 1.75),
     ("tree", 16, 4, 4, 4), ("tree", 12, 4, 4, 4), ("server", 16, 4, 6, 24),
     ("ring", 16, 4, 0, 1.875), ("ring", 4, 4, 1.5, 0),
     ("halving", 6, 1, 0, 5 / 3), ("halving", 6, 3, 2 / 3, 3.0)],
)  # fmt: skip
def test_two_levels(algorithm: str, p: int, g: int, inner: float, outer: float) -> None:
    found = levels(algorithm, p, g)
    assert (found.inner.volume, found.outer.volume) == pytest.approx((inner, outer))
    fast, slow = Network("fast", 0.0, 1e9), Network("slow", 0.0, 1e8, per_host=g)
    took = iteration(ADDS_FREE, replace(slow, inner=fast), algorithm, p, 1, overlap=False)
    assert took.communication == pytest.approx(inner / 10 + outer)


def test_a_link_shared_by_a_hosts_ranks_costs_no_more_than_one_rank() -> None:
    """Neighbours first: what leaves a host has been summed over its ranks."""
    alone = iteration(ADDS_FREE, WIRE, "halving", 8, 1, overlap=False)
    free = Network("free", 0.0, 1e15)
    shared = replace(WIRE, per_host=4, inner=free)
    together = iteration(ADDS_FREE, shared, "halving", 32, 1, overlap=False)
    assert together.communication == pytest.approx(alone.communication, rel=1e-4)


def test_half_the_bytes_on_the_wire() -> None:
    half = replace(ADDS_FREE, wire_share=0.5)
    whole, shorter = (iteration(p, WIRE, "ring", 8, 1, False).exposed for p in (ADDS_FREE, half))
    assert shorter == pytest.approx(whole / 2)


def test_messages_and_latency_of_every_bucket() -> None:
    """Two buckets over three levels: the tree waits for each, halving for the last alone."""
    profile = Profile("net", 8, 0.01, slices=(Slice(4, 0.5), Slice(4, 1.0)), sum_rate=math.inf)
    slow = Network("slow", 1.0, 1e12, per_message=0.1)
    tree, halving = (iteration(profile, slow, a, 8, 0).communication for a in ("tree", "halving"))
    assert tree == pytest.approx(2 * (6 + 0.6))
    assert halving == pytest.approx(2 * 0.6 + 6)


def test_what_a_pass_takes_whatever_the_batch_limits_the_speedup() -> None:
    profile = Profile("net", 4.0, 0.01, seconds_per_pass=0.08)
    points = scaling(profile, Network("free", 0, 1e15), "halving", 64, [1, 8, 64])
    assert [p.iteration.compute for p in points] == pytest.approx([0.72, 0.16, 0.09])
    assert points[-1].speedup == pytest.approx(8, rel=1e-3)


def test_batches_that_cannot_be_divided_go_by_the_busiest_rank() -> None:
    points = scaling(ADDS_FREE, NETWORKS["10gbe"], "halving", 64, [6, 100])
    assert [(p.nodes, p.samples) for p in points] == [(6, 11)]


def test_one_node_does_not_communicate() -> None:
    for algorithm in ALGORITHMS:
        assert iteration(ADDS_FREE, WIRE, algorithm, 1, 32).total == pytest.approx(0.32)


def test_adding_takes_time() -> None:
    slow = Profile("net", 1e8, 0.01, sum_rate=1e8)
    fast, slowed = (iteration(p, WIRE, "tree", 8, 1).communication for p in (ADDS_FREE, slow))
    assert slowed - fast == pytest.approx(3)


def test_overlap_hides_what_is_ready_early() -> None:
    # Backward takes 2 s; the first half of the gradient is ready after 1 s and takes 0.5 s.
    slices = (Slice(5e7, 0.5), Slice(5e7, 1.0))
    profile = Profile("net", 1e8, 0.03, slices=slices, sum_rate=math.inf)
    hidden = iteration(profile, WIRE, "halving", 2, 100)
    plain = iteration(profile, WIRE, "halving", 2, 100, overlap=False)
    assert plain.exposed == pytest.approx(1.0)
    assert hidden.exposed == pytest.approx(0.5)
    assert hidden.compute == plain.compute == pytest.approx(3.0)


def test_a_gradient_that_comes_last_cannot_be_hidden() -> None:
    late = Profile("net", 1e8, 0.03, slices=(Slice(1e8, 1.0),), sum_rate=math.inf)
    assert iteration(late, WIRE, "halving", 2, 100).exposed == pytest.approx(1.0)


def test_a_link_busy_both_ways_may_be_slower() -> None:
    link = Network("half duplex", 0.0, 1e8, both_ways=5e7)
    assert iteration(ADDS_FREE, link, "ring", 2, 1, overlap=False).exposed == pytest.approx(2)
    assert iteration(ADDS_FREE, link, "tree", 2, 1, overlap=False).exposed == pytest.approx(2)


def test_a_sum_that_is_alone_waits_at_every_step() -> None:
    link = Network("late partners", 0.0, 1e8, in_steps=5e7)
    for algorithm, factor in (("ring", 2), ("halving", 2), ("tree", 1)):
        lone, plain = (
            iteration(_in_buckets(1), network, algorithm, 2, 1, overlap=False).exposed
            for network in (link, WIRE)
        )
        assert lone == pytest.approx(factor * plain)


def test_sums_under_way_hide_the_waits_of_all_but_the_last() -> None:
    link = Network("late partners", 0.0, 1e8, in_steps=5e7)
    lone, many = (
        iteration(_in_buckets(count), link, "ring", 2, 1, overlap=False).exposed
        for count in (1, 10)
    )
    assert lone == pytest.approx(2.0)
    assert many == pytest.approx(1.1)


def _in_buckets(count: int) -> Profile:
    slices = tuple(Slice(1e8 / count, (i + 1) / count) for i in range(count))
    return Profile("net", 1e8, 0.03, slices=slices, sum_rate=math.inf)


def test_scaling_of_a_global_batch_ends_where_samples_do() -> None:
    points = scaling(ADDS_FREE, NETWORKS["10gbe"], "halving", 16, [1, 2, 4, 8, 16, 32])
    assert [point.nodes for point in points] == [1, 2, 4, 8, 16]
    assert points[0].speedup == pytest.approx(1)
    assert points[-1].samples == 1


def test_a_whole_batch_on_every_node_scales_further() -> None:
    nodes = [1, 8, 64]
    shared, own = (
        scaling(ADDS_FREE, NETWORKS["10gbe"], "halving", 64, nodes, per_rank=per_rank)
        for per_rank in (False, True)
    )
    assert own[-1].samples == 64
    assert own[-1].efficiency > shared[-1].efficiency
    assert own[-1].efficiency <= 1


def test_better_networks_and_algorithms_are_faster() -> None:
    googlenet = Profile("GoogLeNet", 53.5e6, 0.02)
    names = ["1gbe", "10gbe", "25gbe", "100gbe", "infiniband"]
    by_network = [iteration(googlenet, NETWORKS[n], "tree", 32, 8).total for n in names]
    assert by_network == sorted(by_network, reverse=True)
    by_algorithm = [
        iteration(googlenet, NETWORKS["1gbe"], a, 32, 8).total
        for a in ("server", "tree", "halving")
    ]
    assert by_algorithm == sorted(by_algorithm, reverse=True)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(SolverError, match="known: server, tree, halving, ring"):
        iteration(ADDS_FREE, WIRE, "gossip", 8, 1)
    with pytest.raises(SolverError, match="unknown network"):
        NETWORKS["token ring"]


@pytest.mark.parametrize("row", PAPER_ROWS, ids=lambda r: f"{r.net.name}-{r.gpus}-{r.batch}")
def test_the_papers_hours_within_7_percent(row: PaperRow) -> None:
    hours, _ = predict_paper(row)
    assert hours == pytest.approx(row.hours, rel=0.07)


@pytest.mark.parametrize("row", [row for row in PAPER_ROWS if row.gpus == 128])
def test_the_papers_headline_speedups_within_5_percent(row: PaperRow) -> None:
    _, speedup = predict_paper(row)
    assert speedup == pytest.approx(row.speedup, rel=0.05)


class TwoRanks:
    """As much of an MPI communicator as is looked at before anything is sent."""

    def Get_size(self) -> int:
        return 2


@pytest.mark.parametrize("per_host", [2, 3])
def test_two_levels_are_measured_between_two_hosts_at_least(per_host: int) -> None:
    with pytest.raises(SolverError, match="measuring needs two hosts"):
        measure_network(TwoRanks(), per_host)
