"""The tools for emulated hosts: what they print, as far as that needs no network."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.parallel.communicators import COMMUNICATORS

NETLAB = Path(__file__).parents[2] / "tools" / "netlab"


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(NETLAB))
    yield importlib.import_module("sums")
    for name in ("sums", "netlab"):
        sys.modules.pop(name)


def job(seconds: float, right: bool = True) -> dict[str, Any]:
    return {
        name: {"seconds": seconds, "alike": True, "predicted": 2.0}
        | ({"right": right} if COMMUNICATORS[name].canonical else {})
        for name in COMMUNICATORS
    }


def test_a_table_of_sums(sums: Any) -> None:
    """The best of several jobs counts; predictions stand beside what was measured."""
    found = {"blocks": [job(2.5), job(2.0)], "round-robin": [job(2.1), job(3.0)]}
    lines, good = sums.table(found)
    assert good and len(lines) == 1 + len(list(COMMUNICATORS))
    (halving,) = (line for line in lines if line.startswith("halving"))
    assert halving.split() == ["halving", "2000", "2100", "5%", "2000", "+0%", "the", "tree's"]
    (ring,) = (line for line in lines if line.startswith("ring"))
    assert ring.endswith("alike on all ranks")


def test_slow_placements_and_wrong_bits_are_failures(sums: Any) -> None:
    lines, good = sums.table({"blocks": [job(2.0)], "round-robin": [job(2.3)]})
    assert not good and "15%" in lines[1]
    lines, good = sums.table({"blocks": [job(2.0)], "round-robin": [job(2.0, right=False)]})
    assert not good and "WRONG" in "".join(lines)


def test_the_sum_it_compares_with_is_the_trees(sums: Any) -> None:
    assert sums.canonical(4, 10) == sums.canonical(4, 10) != sums.canonical(6, 10)


def test_the_shell_accepts_the_stand_in_for_ssh() -> None:
    subprocess.run(["sh", "-n", str(NETLAB / "nslaunch")], check=True)


def test_links_have_bursts_in_proportion(sums: Any) -> None:
    """A burst of 256 kB would be most of what a host sends over a slow link."""
    shape = sys.modules["netlab"]._shape
    assert shape(1000) == ["rate", "1000mbit", "burst", "250000", "limit", "6500000"]
    assert shape(12.5) == ["rate", "12.5mbit", "burst", "16000", "limit", "1016000"]
