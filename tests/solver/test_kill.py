"""kill -9 at any moment of a real run: resumed, it ends with the bits of one that was not killed.

FIRE_KILLS=20 pytest tests/solver/test_kill.py runs 20 rounds of random kills instead of a few.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.solver.kill_cases import ITERATIONS, Case

ROUNDS = int(os.environ.get("FIRE_KILLS", "3"))
KINDS = [("Adam", 4, "BINARYPROTO"), ("SGD", 1, "HDF5"), ("SGD", 1, "BINARYPROTO"),
         ("Adam", 4, "HDF5")]  # fmt: skip
# Kill yourself when about to rename the Nth file of a snapshot: 1 and 2 complete the files under
# their temporary names, 3 and 4 give weights and state their own.
AT_A_RENAME = """
import os, signal
rename, count = os.replace, 0
def replace(source, target):
    global count
    count += "run_iter_20." in str(target)
    if count == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
os.replace = replace
"""
# Kill yourself with the Nth file of a snapshot half written.
IN_A_WRITE = """
import os, signal
from pycaffe_fire.schema import wire
write, count = wire.Parts.write, 0
def half(self, file):
    global count
    count += "run_iter_20." in str(file.name)
    if count == {number}:
        file.write(self.pieces[0])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, file)
wire.Parts.write = half
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What runs of each kind end with if nobody kills them."""
    known: dict[tuple[str, int, str], Any] = {}

    def result(kind: tuple[str, int, str]) -> Any:
        if kind not in known:
            case = Case(tmp_path_factory.mktemp("whole"), *kind, every=20)
            case.complete()
            known[kind] = case.result()
        return known[kind]

    return result


@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_killed_at_random(undisturbed: Any, tmp_path: Path, round_number: int) -> None:
    """Snapshots are written all the time, so that many a kill falls into one."""
    kind = KINDS[round_number % len(KINDS)]
    case = Case(tmp_path, *kind, every=1)
    chance = random.Random(round_number)
    case.kill_at_random(chance)
    if len(KINDS) < ROUNDS:
        case.kill_at_random(chance)
    case.complete()
    assert case.result() == undisturbed(kind)
    assert not [name for name in case.files() if ".tmp" in name]


@pytest.mark.parametrize(
    "program, number",
    [(AT_A_RENAME, 1), (AT_A_RENAME, 2), (AT_A_RENAME, 3), (AT_A_RENAME, 4),
     (IN_A_WRITE, 1), (IN_A_WRITE, 2)],
)  # fmt: skip
def test_killed_in_a_snapshot(undisturbed: Any, tmp_path: Path, program: str, number: int) -> None:
    case = Case(tmp_path, *KINDS[0], every=10)
    assert case.start(program.format(number=number)).wait(240) == -9
    left = case.files()
    assert any(".tmp" in name for name in left)
    assert "run_iter_20.solverstate" not in left and "run_iter_10.solverstate" in left
    log = case.complete()
    assert re.search(r"Resuming from out/run_(iter_10|best).solverstate", log)
    orphan = "run_iter_20.caffemodel: weights without a solver state" in log
    assert orphan == ("run_iter_20.caffemodel" in left)
    assert case.result() == undisturbed(KINDS[0])
    assert case.files() == sorted(
        f"run_{name}.{end}"
        for name in ("best", *(f"iter_{ITERATIONS - 10 * i}" for i in range(3)))
        for end in ("caffemodel", "solverstate")
    )
