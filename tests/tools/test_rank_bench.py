"""The benches of ranks: verdicts, and that they start their ranks by themselves."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "tools" / "bench"


@pytest.fixture
def allreduce(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("allreduce")


def test_what_is_wanted_stands_beside_what_was_found(allreduce: Any) -> None:
    seconds = {"halving": [0.1, 0.2], "server": [0.4, 0.6], allreduce.WHOLE: [0.12]}
    lines, short = allreduce.table(seconds, allreduce.WANTED[8])
    assert [line.split()[0] for line in lines[1:]] == ["server", "Allreduce,", "halving"]
    assert lines[1].split()[-2:] == ["4.00x", "5.0x"]
    assert short == ["server takes 4.00 times as long, wanted 5"]
    assert allreduce.table({"ring": [0.1]}, allreduce.WANTED[1])[1] == []


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="several ranks need mpi4py")
def test_one_command_starts_the_ranks(
    allreduce: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(allreduce, "RANKS", (2,))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    allreduce.main(["--megabytes", "0.1", "--repeat", "1"])
    said = capfd.readouterr()
    assert "0.1 MB over 2 ranks on 1 host" in said.out, said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("script", "flags", "shown"),
    [
        ("allreduce", ["--only", "nobody"], "invalid choice: 'nobody'"),
        ("scaling", ["--compute", "long"], "invalid float value: 'long'"),
    ],
)
def test_wrong_flags_are_told_before_ranks_are_started(
    script: str, flags: list[str], shown: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.syspath_prepend(str(BENCH))
    with pytest.raises(SystemExit):
        importlib.import_module(script).main(flags)
    assert shown in capsys.readouterr().err
