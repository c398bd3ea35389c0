"""The command that measures all tables again: resumable, and never two machines in one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .test_bench import bench  # noqa: F401

TRAINED = {
    "batch": 32, "best": "torch.compile",
    "contenders": {
        "pycaffe_fire": {"median": {"step": 1.0}, "peak_memory": 2**30},
        "torch.compile": {"median": {"step": 1.5}, "peak_memory": 2**31},
    },
    "ratios": {"torch.compile": {"step": 1.5}},
}  # fmt: skip
ONE = {"median": 0.01, "percentile95": 0.012, "version": "1", "start": 1.5, "peak_memory": 2**27}
INFERRED = {"batches": {"1": {"pycaffe_fire": ONE, "onnxruntime": {**ONE, "median": 0.03}}}}


class Runs:
    """Stands for the benches: notes what is run and writes figures."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.code = 0

    def __call__(self, command: list[str]) -> int:
        self.commands.append(command)
        if not self.code:
            figures = TRAINED if "train.py" in command[1] else INFERRED
            Path(command[-1]).write_text(json.dumps(figures))
        return self.code


@pytest.fixture
def runs(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Runs:  # noqa: F811
    made = Runs()
    monkeypatch.setattr(bench("all"), "_measure", made)
    return made


def test_it_goes_on_where_it_stopped_and_makes_tables(
    bench: Any,  # noqa: F811
    runs: Runs,
    tmp_path: Path,
) -> None:
    main, run = bench("all").main, ["--results", str(tmp_path)]
    assert main(run) == 0
    count = len(runs.commands)
    assert count == 11
    assert runs.commands[0][2] == "models/googlenet/train_val.prototxt"  # figures name it so
    text = (tmp_path / "tables.md").read_text()
    assert "| googlenet, 32 | 1000 | 1.50 | torch.compile | 1.00 / 2.00 |" in text
    assert "| resnet50, 1 | 10.0 (12.0) | onnxruntime 1 3.00 | 1.5 | 128 |" in text
    (tmp_path / "train_nin.json").unlink()
    assert main(run) == 0
    assert len(runs.commands) == count + 1 and "nin" in runs.commands[-1][2]
    assert main([*run, "--again", "--only", "infer"]) == 0
    assert len(runs.commands) == count + 5


def test_figures_of_another_machine_are_not_mixed_in(
    bench: Any,  # noqa: F811
    runs: Runs,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    main, run = bench("all").main, ["--results", str(tmp_path), "--only", "infer"]
    assert main(run) == 0
    described = json.loads((tmp_path / "machine.json").read_text())
    assert described["cores"] >= 1 and "numpy" in described["versions"]
    (tmp_path / "machine.json").write_text(json.dumps({**described, "processor": "another"}))
    assert main(run) == 1
    assert "figures of another machine" in capfd.readouterr().err


def test_a_bench_that_fails_is_named(
    bench: Any,  # noqa: F811
    runs: Runs,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    runs.code = 1
    assert bench("all").main(["--results", str(tmp_path), "--only", "infer"]) == 1
    assert "error: infer googlenet failed" in capfd.readouterr().err
