"""fire_sweep as a user meets it: solvers one after the other, a table, a plot, going on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pycaffe_fire.cli.fire_sweep import main
from pycaffe_fire.parallel.launch import STOPPED
from tests.cli.runs import make_run, write_solver

RATES = ("0.01", "0.05", "1e+30")


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three rates, the last of which does not train."""
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path)
    (tmp_path / "sweep").mkdir()
    for rate in RATES:
        write_solver(
            tmp_path, "random_seed: 5", name=f"sweep/lr_{rate}.prototxt", base_lr=rate,
            snapshot_prefix=f'"sweep/lr_{rate}"', max_iter="10",
        )  # fmt: skip
    return tmp_path


def test_a_sweep_runs_is_drawn_and_goes_on(sweep: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["sweep", "-o", "sweep.png", "--", "--threads", "1", "--quiet"]
    assert main(arguments) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(": training")] == [
        f"sweep/lr_{rate}.prototxt: training" for rate in RATES
    ]
    head, *rows, plot = lines[-5:]
    assert head.split()[:5] == ["run", "rate", "batch", "iterations", "time"]
    assert [float(row.split()[1]) for row in rows] == pytest.approx([float(r) for r in RATES])
    assert "the loss is nan" in rows[2], "what ended the run"
    assert plot == "sweep.png"
    assert (sweep / "sweep.png").read_bytes()[:4] == b"\x89PNG"
    for rate in RATES[:2]:
        assert (sweep / "sweep" / f"lr_{rate}_iter_10.caffemodel").exists()

    assert main([*arguments[:1], *arguments[3:]]) == 0
    again = capfd.readouterr().out
    assert again.count("done already") == 2, "the one that failed is tried again"


def test_what_is_wrong_ends_it(sweep: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--", "--threads", "0"]) == 1
    assert (
        "lr_0.01.prototxt: fire_train failed (status 1); it has said why" in capfd.readouterr().err
    )
    write_solver(sweep, name="sweep/lr_7.prototxt", snapshot_prefix='"sweep/lr_0.01"')
    assert main(["sweep"]) == 1
    assert "the same snapshot_prefix" in capfd.readouterr().err
    assert main(["nowhere.prototxt"]) == 1
    assert "nowhere.prototxt: no such file" in capfd.readouterr().err
    (sweep / "empty").mkdir()
    assert main(["empty"]) == 1
    assert "empty: holds no solver prototxt" in capfd.readouterr().err


def test_a_run_that_is_stopped_stops_the_sweep(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Ended:
        returncode = STOPPED

    monkeypatch.setattr("pycaffe_fire.cli.fire_sweep.subprocess.run", lambda command: Ended())
    with pytest.raises(SystemExit) as ended:
        main(["sweep"])
    assert ended.value.code == STOPPED
    assert capfd.readouterr().out.count("training") == 1


def test_the_papers_sweep_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands: list[list[str]] = []

    class Failed:
        returncode = 1

    def note(command: list[str]) -> Failed:
        commands.append(command)
        return Failed()

    monkeypatch.setattr("pycaffe_fire.cli.fire_sweep.subprocess.run", note)
    assert main(["models/googlenet/sweep", "--", "-n", "4"]) == 1
    assert commands[0][3:] == ["--solver", commands[0][4], "--snapshot", "auto", "-n", "4"]
    assert commands[0][4].endswith("models/googlenet/sweep/lr_0.02.prototxt")
