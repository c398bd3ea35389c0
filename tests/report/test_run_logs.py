"""What a run records: JSON lines that survive a kill, TensorBoard's files; and reading them."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire import schema
from pycaffe_fire.cli import fire_train
from pycaffe_fire.errors import FireError
from pycaffe_fire.parallel.leaves import Output
from pycaffe_fire.report import log_file
from pycaffe_fire.report.json_log import JsonLog, read_events
from pycaffe_fire.report.runs import read_run
from pycaffe_fire.report.tensorboard import TensorBoardLog, crc32c, read_scalars
from pycaffe_fire.solver import events
from tests.cli.runs import make_run, write_solver

CAFFE = Path(__file__).parents[1] / "golden" / "logs" / "caffe_train.log"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*arguments: str) -> None:
    assert fire_train.main(["--solver", "solver.prototxt", "--threads", "1", *arguments]) == 0


def kinds(path: Path) -> list[str]:
    return [event["event"] for event in read_events(str(path))]


def test_a_run_is_recorded_from_start_to_end(folder: Path) -> None:
    train("--weights", "init.caffemodel")
    found = read_events("snap_log.jsonl")
    start, end = found[0], found[-1]
    assert (start["event"], end["event"]) == ("started", "finished")
    assert start["solver"]["base_lr"] == 0.05 and start["solver"]["type"] == "SGD"
    assert (start["seed"], start["leaves"], start["ranks"]) == (5, 1, 1)
    assert start["hardware"]["cores"] > 0 and "numpy" in start["versions"]
    assert [layer["name"] for layer in start["train"]["layers"]][0] == "data"
    assert start["train"]["data"][0]["records"] > 0
    assert start["tests"][0]["data"][0]["source"] == "data.txt"
    counts = {kind: kinds(folder / "snap_log.jsonl").count(kind) for kind in ("trained", "tested")}
    assert counts == {"trained": 4, "tested": 3}
    assert kinds(folder / "snap_log.jsonl").count("saved") == 2
    profiled = next(event for event in found if event["event"] == "profiled")
    assert all(layer["forward"] > 0 for layer in profiled["layers"] if layer["name"] == "conv")
    assert end["iteration"] == 20 and end["early"] is False


def test_a_resumed_run_ends_a_half_line_and_goes_on(folder: Path) -> None:
    write_solver(folder, "random_seed: 5", "snapshot: 10")
    train("--weights", "init.caffemodel")
    whole = read_run("snap_log.jsonl")
    log = folder / "snap_log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if json.loads(line).get("iteration") == 15)
    log.write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
    assert kinds(log) == [json.loads(line)["event"] for line in lines[:cut]]
    train("--snapshot", "snap_iter_10.solverstate")
    assert kinds(log).count("started") == 2
    again = read_run("snap_log.jsonl")
    values = [[(p.iteration, p.value) for p in r.series["train/loss"]] for r in (whole, again)]
    assert values[0] == values[1]


def started(**changed: Any) -> events.Started:
    param = schema.SolverParameter(max_iter=10, **changed)
    return events.Started("net", param, 0, 64, 1, "oneDNN", 7)


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    log = JsonLog(str(tmp_path / "a" / "run_log.jsonl"))
    log(started())
    log(events.Trained(0, math.nan, 0.1, 0.5, True, [Output("x", math.inf, 0.0)]))
    log(events.Trained(1, 2.5, 0.1, 0.5, True, [Output("x", 1.0, 0.0), Output("x", 2.0, 0.0)]))
    log(events.NotFinite(0, "the loss is nan", "skipped"))
    log.close()
    text = (tmp_path / "a" / "run_log.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text
    found = read_events(str(tmp_path / "a" / "run_log.jsonl"))
    assert found[1]["loss"] is None and found[1]["outputs"] == {"x": None}
    assert found[2]["outputs"] == {"x": 1.0, "x[1]": 2.0}
    assert found[2]["images_per_second"] == 128
    run = read_run(str(tmp_path / "a"))
    assert run.series["train/loss"][0][::2] == (1, 2.5)
    assert [t["what"] for t in run.troubles] == ["the loss is nan"]


def test_an_output_of_many_numbers_takes_no_time(tmp_path: Path) -> None:
    """A blob that nobody reads is an output with all of its numbers, tens of thousands of them."""
    log = JsonLog(str(tmp_path / "run_log.jsonl"))
    log(started())
    outputs = [Output("x", float(i), 0.0) for i in range(50_000)]
    began = time.process_time()
    log(events.Tested(0, 0, outputs, None))
    assert time.process_time() - began < 5
    log.close()
    found = read_events(str(tmp_path / "run_log.jsonl"))[-1]["outputs"]
    assert len(found) == 50_000 and found["x[49999]"] == 49999


def test_a_full_disk_ends_the_log_but_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_file.LogFile("/dev/full")
    log.open()
    log.write(b"x" * 10)
    log.write(b"x" * 10)
    assert caplog.text.count("the log ends here") == 1
    with pytest.raises(FireError, match="cannot be written"):
        log_file.LogFile(str(tmp_path)).open()


def test_tensorboard_files_read_back(tmp_path: Path) -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    log = TensorBoardLog(str(tmp_path / "tb"))
    log(started())
    for i in range(300):
        log(events.Trained(i, 1.5 / (i + 1), 0.01, 0.5, i % 100 == 0, [Output("aux", 2.0, 0.3)]))
    log(events.Tested(300, 1, [Output("accuracy", 0.25, 0.0)], None))
    log.close()
    file = next((tmp_path / "tb").iterdir())
    found = [(step, tag, value) for _, step, tag, value in read_scalars(str(file))]
    assert (0, "train/loss", 1.5) in found
    assert (200, "images_per_second", 128.0) in found
    assert found[-1] == (300, "test1/accuracy", 0.25)
    assert len(found) == 3 * 4 + 1
    run = read_run(str(tmp_path / "tb"))
    assert [p.iteration for p in run.series["train/aux"]] == [0, 100, 200]

    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    assert len(list(read_scalars(str(file)))) == len(found) - 1
    file.write_bytes(b"\x01" * 40)
    with pytest.raises(FireError, match="damaged at byte 0, or not a TensorBoard"):
        list(read_scalars(str(file)))


def test_caffes_own_log() -> None:
    run = read_run(str(CAFFE))
    loss = run.series["train/loss"]
    assert [p.iteration for p in loss] == [0, 5, 10, 15, 20]
    assert loss[1].value == 1.02188 and 0 < loss[1].seconds < 1
    assert [p.value for p in run.series["rate"]] == [0.05, 0.05, 0.015, 0.0045]
    assert [(p.iteration, p.value) for p in run.series["test/loss"]] == [
        (0, 1.7413), (10, 1.0227), (20, 1.04454),
    ]  # fmt: skip


def test_an_old_log_of_two_nets_over_midnight(tmp_path: Path) -> None:
    """glog before 0.5 gives no year; Caffe before 1.0 no speed."""
    (tmp_path / "old.log").write_text(
        "Log file created at: 2015/02/28 23:59:00\n"
        "I0228 23:59:59.500000  77 solver.cpp:228] Iteration 0, loss = 6.9\n"
        "I0229 00:00:00.500000  77 solver.cpp:337] Iteration 100, Testing net (#1)\n"
        "I0229 00:00:01.500000  77 solver.cpp:404]     Test net output #0: top-5 = 0.5\n"
        "I0229 00:00:02.500000  77 solver.cpp:228] Iteration 100, loss = nan\n"
    )
    run = read_run(str(tmp_path / "old.log"))
    assert run.series == {"train/loss": [(0, 0.0, 6.9)], "test1/top-5": [(100, 2.0, 0.5)]}


def test_our_log_and_our_json_agree(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train("--weights", "init.caffemodel")
    (folder / "out.log").write_text(capfd.readouterr().err)
    text, lines = read_run("out.log"), read_run("snap_log.jsonl")
    # The text has one more loss: the one after the last update.
    pairs = zip(text.series["train/loss"], lines.series["train/loss"], strict=False)
    assert all(
        a.iteration == b.iteration and a.value == pytest.approx(b.value, rel=1e-5) for a, b in pairs
    )
    assert [p.iteration for p in text.series["test/loss"]] == [0, 10, 20]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.log", "", "has no losses or test results"),
        ("other.log", "I0228 23:59:59.500000  77 x.cpp:1] hello\n", "has no losses"),
        ("run_log.jsonl", '{"event": "saved", "time": 1}\n', "has no losses"),
        (
            "run_log.jsonl",
            '{"event": "trained", "time": 1}\n',
            "not a log of fire_train's: in an event 'trained' iteration is missing",
        ),
    ],
)
def test_files_without_curves(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(FireError, match=message):
        read_run(str(tmp_path / name))


def test_folders_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FireError, match="no such file"):
        read_run(str(tmp_path / "nowhere"))
    with pytest.raises(FireError, match=r"holds no \*_log.jsonl"):
        read_run(str(tmp_path))


def test_a_run_that_does_not_start_leaves_no_log(folder: Path) -> None:
    write_solver(folder, "random_seed: 5", type='"SDG"')
    before = sorted(folder.iterdir())
    arguments = ["--solver", "solver.prototxt", "--tensorboard", "tb"]
    assert fire_train.main(arguments) == 1
    assert sorted(folder.iterdir()) == before
