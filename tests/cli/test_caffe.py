"""The command caffe: Caffe's flags, Caffe's lines on stderr, and exit statuses."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.cli import caffe, fire_train, train_flags
from pycaffe_fire.net.timing import time_net
from tests.cli.runs import GOLDEN, make_run, write_solver

PREFIX = re.compile(r"[IWEF]\d{8} \d\d:\d\d:\d\d\.\d{6} +\d+ [\w.]+:\d+\] ")
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?")


def messages(log: str) -> list[str]:
    return [PREFIX.sub("", line) for line in log.splitlines() if PREFIX.match(line)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert caffe.main(list(arguments)) == 1
    return capsys.readouterr().err.splitlines()[-1]


def test_train_ends_where_caffe_ended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["train", "-solver", "solver.prototxt", "--weights=init.caffemodel"]
    with pytest.raises(SystemExit) as ended:
        caffe.main(flags)
    assert ended.value.code == 0
    ours = messages(capsys.readouterr().err)
    caffes = messages((GOLDEN / "logs" / "caffe_train.log").read_text())
    timings = re.compile(r"\([^()]* iter/s, [^()]*\)")
    begin = "Solving tiny"
    plain = [timings.sub("", x) for x in ours[ours.index(begin) :]]
    assert plain == [timings.sub("", x) for x in caffes[caffes.index(begin) :]]
    assert (folder / "snap_iter_20.solverstate").exists()


def test_train_passes_caffes_flags_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(fire_train, "main", lambda flags: seen.append(flags) or 3)
    with pytest.raises(SystemExit) as ended:
        caffe.main(
            ["-solver=s", "train", "--snapshot", "x", "-gpu", "0,1", "-level", "2"]
            + ["-stage=a,b", "--sigint_effect=none", "-iterations", "7"]
        )
    assert ended.value.code == 3
    options = train_flags.parser().parse(seen[0])
    assert (options.solver, options.snapshot, options.gpu, options.ranks) == ("s", "x", "0,1", 2)
    assert (options.level, options.stage, options.sigint_effect) == (2, "a,b", "none")
    assert options.sighup_effect == "snapshot" and options.verbose and options.iterations is None


def test_train_resumes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_solver(folder, "random_seed: 5", max_iter="10")
    for flags in ([], ["--snapshot=snap_iter_10.solverstate"]):
        with pytest.raises(SystemExit) as ended:
            caffe.main(["train", "--solver=solver.prototxt", *flags])
        assert ended.value.code == 0
        write_solver(folder, "random_seed: 5", max_iter="12")
    assert (folder / "snap_iter_12.caffemodel").exists()


def test_scores_are_means_over_batches(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["-model=net.prototxt", "--weights", "init.caffemodel", "-iterations", "3"]
    assert caffe.main(["test", *flags]) == 0
    lines = messages(capsys.readouterr().err)
    assert lines[0] == "Use CPU."
    lines = lines[lines.index("Running for 3 iterations.") :]
    net = Net("net.prototxt", schema.TEST, weights="init.caffemodel")
    losses = [float(net.forward()["loss"]) for _ in range(3)]
    assert lines[1:4] == [f"Batch {i}, loss = {loss:g}" for i, loss in enumerate(losses)]
    mean = sum(losses) / 3
    assert lines[4:] == [f"Loss: {mean:g}", f"loss = {mean:g} (* 1 = {mean:g} loss)"]


def test_times_read_as_caffes(capsys: pytest.CaptureFixture[str]) -> None:
    model = str(GOLDEN / "upgrade" / "v1.prototxt")
    assert caffe.main(["time", "-model", model, "-iterations=2"]) == 0
    ours, caffes = (
        [NUMBER.sub("N", x) for x in log[log.index("Performing Forward") :]]
        for log in (
            messages(capsys.readouterr().err),
            messages((GOLDEN / "logs" / "caffe_time.log").read_text()),
        )
    )
    assert ours == caffes


def test_a_chart_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert caffe.main(["time", "-model", "net.prototxt", "-iterations=1", "-chart"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("# forward, = backward, ") and "GFLOP/s" in out[1]
    net = Net("net.prototxt", schema.TRAIN)
    assert [line.split()[0] for line in out[2:]] == [layer.name for layer in net.layers]
    conv = next(line for line in out if line.startswith("conv"))
    assert float(conv.split()[-1].replace(",", "")) > 0
    assert caffe.main(["time", "-model", "net.prototxt", "-iterations=1", "-nochart"]) == 0
    assert capsys.readouterr().out == ""


def test_layer_times_add_up(folder: Path) -> None:
    net = Net("net.prototxt", schema.TRAIN, backend=cpu_backend(1))
    net.forward_backward()
    told: list[tuple[int, float]] = []
    times = time_net(net, 3, lambda number, seconds: told.append((number, seconds)))
    assert [number for number, _ in told] == [0, 1, 2]
    assert np.isclose(times.total, sum(seconds for _, seconds in told) / 3, rtol=0.01)
    assert 0 < sum(layer.forward for layer in times.layers) <= times.forward
    assert 0 < sum(layer.backward for layer in times.layers) <= times.backward
    assert not net.hooks.before_forward and not net.hooks.after_backward
    net.close()


def test_phases_levels_and_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }'
        'layer { name: "a" type: "TanH" bottom: "x" top: "a" include { phase: TEST } }'
        'layer { name: "b" type: "TanH" bottom: "x" top: "b" include { stage: "s" min_level: 2 } }'
    )

    def timed(*flags: str) -> set[str]:
        assert caffe.main(["time", "-model", str(path), "-iterations", "1", *flags]) == 0
        lines = messages(capsys.readouterr().err)
        return {line.split()[0] for line in lines if "\tforward" in line} & {"a", "b"}

    assert timed() == set()
    assert timed("-phase", "TEST") == {"a"}
    assert timed("--phase=TRAIN", "-level=2", "-stage", "t,s") == {"b"}


def test_mistakes_are_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "need a solver definition" in error(capsys, "train")
    assert "need a model definition to time" in error(capsys, "time")
    assert "need model weights" in error(capsys, "test", "-model", "net.prototxt")
    assert 'did you mean "train"' in error(capsys, "trian")
    assert "at least 1" in error(capsys, "time", "-model", "net.prototxt", "-iterations=0")
    assert "TRAIN" in error(capsys, "time", "-model=net.prototxt", "-phase=BOTH")
    assert "none.prototxt" in error(capsys, "time", "-model=none.prototxt")
    with pytest.raises(SystemExit) as ended:
        caffe.main(["train", "-sovler", "x"])
    assert ended.value.code == 1 and "-sovler" in capsys.readouterr().err


def test_no_action_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert caffe.main([]) == 0
    assert "caffe train -solver" in capsys.readouterr().err
    assert logging.getLogger("pycaffe_fire").handlers == []


def test_device_query_explains_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        caffe.main(["device_query", "-gpu", "no"])
    assert ended.value.code == 1 and "device number" in capsys.readouterr().err
