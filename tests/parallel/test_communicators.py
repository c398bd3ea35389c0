"""Communicators between real processes: mpiexec runs communicator_ranks.py once for all tests.

Ranks 0 .. p-1 form the communicator of a case; the sum over 8 leaves is compared with the canonical
one, computed without any communicator.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from pycaffe_fire.parallel.communicators import COMMUNICATORS
from tests.parallel.communicator_ranks import (
    CANONICAL,
    CASES,
    LENT,
    NARROW,
    RANKS,
    SIZES,
    WIRES,
    Case,
)
from tests.parallel.ranks import run_ranks


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    answer: dict[str, Any] = run_ranks("tests.parallel.communicator_ranks", max(RANKS))
    return answer


def of(results: dict[str, Any], name: str, wire: str | None = None) -> list[tuple[Case, Any]]:
    pairs = zip(CASES, results["cases"], strict=True)
    return [(c, r) for c, r in pairs if c.name == name and wire in (None, c.wire)]


@pytest.mark.parametrize("name", list(COMMUNICATORS))
def test_all_ranks_get_the_same_bits(results: dict[str, Any], name: str) -> None:
    assert [case for case, result in of(results, name) if not result["same"]] == []


@pytest.mark.parametrize("name", sorted(CANONICAL))
def test_the_sum_is_the_canonical_one(results: dict[str, Any], name: str) -> None:
    assert [c for c, r in of(results, name, "float32") if not r["canonical"]] == []


def test_the_communicators_of_the_paper_are_canonical() -> None:
    assert {"tree", "halving", "server"} <= CANONICAL


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", list(COMMUNICATORS))
def test_the_sum_is_right_within_rounding(results: dict[str, Any], name: str, wire: str) -> None:
    # Every number is rounded at most once per rank on its way and once at the end.
    wrong = [
        (case, result["error"])
        for case, result in of(results, name, wire)
        if not result["error"] <= (max(case.leaves, case.ranks) + 1) * WIRES[wire]
    ]
    assert wrong == []


@pytest.mark.parametrize("wire", NARROW)
@pytest.mark.parametrize("name", sorted(CANONICAL | {"ring"}))
def test_16_bits_really_travel(results: dict[str, Any], name: str, wire: str) -> None:
    large = [r for c, r in of(results, name, wire) if c.ranks > 1 and c.size == max(SIZES)]
    assert all(result["error"] > WIRES[wire] / 16 for result in large)


@pytest.mark.parametrize("name", list(COMMUNICATORS))
def test_several_sums_may_be_under_way(results: dict[str, Any], name: str) -> None:
    assert results["many"][name]


def test_neighbours_read_where_a_gradient_lies(results: dict[str, Any]) -> None:
    if not hasattr(os, "memfd_create"):
        pytest.skip("only Linux has memory files")
    assert len(results["lent"]) == (2 + 4) * len(LENT)
    assert all(result == {"lent": True, "right": True} for result in results["lent"])


def test_ranks_agree_on_what_they_measured(results: dict[str, Any]) -> None:
    """So that with --communicator auto all choose the same."""
    for ranks, trials in zip(RANKS, results["trials"], strict=True):
        assert len(trials) == ranks
        assert all(trial == trials[0] for trial in trials)
        assert set(trials[0]) == set(COMMUNICATORS)
