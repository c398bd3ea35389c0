"""A few mutated files of every kind, and every file that once was a finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from .child import Cases
from .kinds import KINDS
from .run import Tally, run_kind

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*/*"))
CASES = 25


@pytest.mark.parametrize("name", sorted(KINDS))
def test_mutated_files_are_loaded_or_refused(name: str, tmp_path: Path) -> None:
    tally = Tally()
    run_kind(name, 1, 0, CASES, tally, tmp_path)
    assert tally.cases == CASES
    assert not tally.findings, "\n".join(tally.findings)


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_once_is_taken(path: Path, tmp_path: Path) -> None:
    """Names are KIND/SEED: the seed is the file of a database that it stands for."""
    name = path.parent.name
    if name not in KINDS:
        pytest.skip(f"{name} needs a library that is not installed")
    cases = Cases(name, tmp_path, 0)
    from pycaffe_fire.errors import FireError

    try:
        cases.kind.load(cases.put(path.name.partition("@")[2] or path.name, path.read_bytes()))
    except FireError as error:
        assert str(error)
