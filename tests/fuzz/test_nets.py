"""The oracle of random nets: cases that once gave wrong results, and random ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .nets.case import Case
from .nets.generate import generate
from .nets.judges import Judge
from .nets.shrink import shrink

CASES = sorted((Path(__file__).parent / "net_cases").glob("*.prototxt"))
FIXED = 1000  # nets that are the same in every run
NEW = 60
GUARDED = 60


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    made = Judge()
    yield made
    made.close()


@pytest.fixture(scope="module")
def guarding_judge() -> Iterator[Judge]:
    made = Judge(guards=True)
    yield made
    made.close()


def assert_agrees(judge: Judge, case: str | int) -> None:
    verdict = judge.judge(case)
    shown = case if isinstance(case, str) else f"seed {case}:\n{generate(case).text()}"
    assert not verdict.finding, f"{verdict.finding}\n{shown}"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_nets_that_were_wrong_agree(path: Path, judge: Judge, guarding_judge: Judge) -> None:
    for each in (judge, guarding_judge):
        assert_agrees(each, path.read_text())


@pytest.mark.parametrize("first", range(0, FIXED, 100))
def test_fixed_random_nets_agree(first: int, judge: Judge) -> None:
    for seed in range(first, first + 100):
        assert_agrees(judge, seed)


def test_new_random_nets_agree(judge: Judge) -> None:
    first = int(os.environ.get("FUZZ_SEED", time.time()))
    print(f"FUZZ_SEED={first}")
    for seed in range(first, first + NEW):
        assert_agrees(judge, seed)


def test_random_nets_stay_inside_their_buffers(guarding_judge: Judge) -> None:
    for seed in range(GUARDED):
        assert_agrees(guarding_judge, seed)


def test_cases_are_written_as_they_are_read() -> None:
    for seed in range(50):
        case = generate(seed)
        assert Case.parse(case.text("what was seen")) == case


def test_differences_crashes_and_overflows_are_found() -> None:
    """The oracle itself: variants that are wrong on purpose."""
    from .nets import broken_variants

    found = broken_variants.findings()
    assert [what.split(" ")[0] for what in found] == ["DIFFERENT", "TRACEBACK", "REFUSED"]


def test_a_finding_is_made_as_small_as_it_can_be() -> None:
    """What is found depends on one layer and one action: the rest goes."""

    def finds(case: Case) -> str:
        has_both = any(layer.type == "BatchNorm" for layer in case.layers)
        return "DIFFERENT on fused" if has_both and ("bwd", 7) in case.actions else ""

    net = (
        '# phase TRAIN; actions [["fwd", 1], ["bwd", 7], ["look", 3]]; threads 2; seen:\n'
        'layer { name: "data1" type: "Input" top: "data1" input_param { shape { dim: 2 } } }\n'
        'layer { name: "relu" type: "ReLU" bottom: "data1" top: "b1" }\n'
        'layer { name: "norm" type: "BatchNorm" bottom: "b1" top: "b2" }\n'
        'layer { name: "sum" type: "Eltwise" bottom: "b1" bottom: "b2" top: "b3" }\n'
    )
    case, found = shrink(Case.parse(net), finds)
    assert found == "DIFFERENT on fused"
    assert [layer.type for layer in case.layers] == ["Input", "BatchNorm"]
    assert (case.actions, case.threads) == ((("bwd", 7),), 1)
