"""fire_train as a user meets it: flags, errors in one sentence, resuming, fine-tuning, leaves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.cli.fire_train import main
from tests.cli.runs import add_dropout, make_run, write_solver


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*arguments: str) -> Any:
    return main(["--solver", "solver.prototxt", *arguments])


def weights(path: str | Path) -> Any:
    return {w.name: [b.tobytes() for b in w.blobs] for w in schema.read_weights(path) if w.blobs}


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command that must fail says last; it may log before."""
    try:
        status: Any = main(list(arguments))
    except SystemExit as stop:
        status = stop.code
    assert status == 1
    text = capsys.readouterr().err
    assert "Traceback" not in text
    start = text.index("fire_train: ")
    return text[start:].removeprefix("fire_train: ")


def test_help_opens_with_commands_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert text.split("\n")[1].split()[:2] == ["fire_train", "--demo"]
    groups = re.findall(r"^[a-z].*:\n  fire_train (--\S+|-n) .*\n", text, re.MULTILINE)
    assert len(groups) == 8  # groups of flags, with an example each
    listed = {flag for flag in re.findall(r"^  (?:-n P, )?(--[\w-]+)", text, re.MULTILINE)}
    assert {"--snapshot", "--weights", "--threads", "--ranks", "--batch", "--quiet"} <= listed


def test_a_run_prints_its_results_and_writes_its_snapshot(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train() == 0
    found = capsys.readouterr()
    assert re.fullmatch(r"loss = [\d.]+\n", found.out)
    assert "Batch: 8 samples in all (1 leaf)" in found.err
    assert "Seed: 5" in found.err
    assert (run / "snap_iter_20.caffemodel").exists()
    assert (run / "snap_iter_20.solverstate").exists()


def test_caffes_spellings_of_flags(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-solver=solver.prototxt", "-iterations", "3", "--stage=", "-level=0"]) == 0
    assert (run / "snap_iter_3.solverstate").exists()


def test_without_a_prefix_snapshots_go_beside_the_solver(run: Path) -> None:
    write_solver(run, snapshot_prefix='""', name="other.prototxt")
    assert main(["--solver", "other.prototxt", "--iterations", "1"]) == 0
    assert (run / "other_iter_1.caffemodel").exists()


def test_fine_tuning_starts_from_the_weights(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--weights", "init.caffemodel", "--iterations", "1") == 0
    # What Caffe's own run from these weights shows.
    assert "Iteration 0, loss" not in (log := capsys.readouterr().err)
    assert re.search(r"Iteration 0 \(.*\), loss = 1\.83031\n", log)


def test_stages_choose_layers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (run / "net.prototxt").read_text()
    layer = 'layer { name: "gone" type: "NoSuchType" bottom: "ip" include { stage: "odd" } }'
    (run / "net.prototxt").write_text(text + layer)
    assert train("--iterations", "1") == 0
    assert 'unknown layer type "NoSuchType"' in complaint(
        capsys, "--solver", "solver.prototxt", "--stage", "even,odd"
    )


def test_resuming_gives_the_bits_of_a_run_that_never_stopped(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_dropout(run)
    write_solver(run, "snapshot: 7")  # no seed: the run draws one
    assert train() == 0
    whole = weights("snap_iter_20.caffemodel")
    (run / "snap_iter_20.caffemodel").unlink()
    assert train("--snapshot", "snap_iter_7.solverstate") == 0
    assert weights("snap_iter_20.caffemodel") == whole
    log = capsys.readouterr().err
    assert "Going on from iteration 7\n" in log
    seeds = re.findall(r"Seed: (\d+)", log)
    assert len(seeds) == 2 and seeds[0] == seeds[1]


def test_leaves_decide_the_bits_and_threads_do_not(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_dropout(run)
    write_solver(run, "random_seed: 5", "snapshot: 10")
    made = []
    for arguments in (
        ["--leaves", "4", "--threads", "2"],
        ["--leaves", "4", "--threads", "2"],
        ["--leaves", "4", "--threads", "1"],
        ["--snapshot", "snap_iter_10.solverstate"],  # takes over the 4 leaves
    ):
        assert train(*arguments) == 0
        made.append(weights("snap_iter_20.caffemodel"))
        assert "(4 leaves of 2)" in capsys.readouterr().err
    assert made[0] == made[1] == made[2] == made[3]


def test_synthetic_data_needs_no_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "data.txt").unlink()
    assert train("--synthetic", "3,8,8", "--leaves", "2", "--verbose") == 0
    log = capsys.readouterr().err
    assert 'type: "DummyData"' in log
    assert "Top shape: 4 3 8 8" in log
    assert "Batch: 8 samples in all (2 leaves of 4)" in log


def test_solver_mode_gpu_warns_and_trains_on_the_cpu(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_solver(run, solver_mode="GPU")
    assert train("--gpu", "auto", "--iterations", "1") == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("W")]
    assert len(warnings) == 1 and "Running on the CPU: " in warnings[0]


def test_debug_shows_the_traceback_too(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--solver", "nowhere.prototxt", "--debug"]) == 1
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert text.splitlines()[-1].startswith("fire_train: nowhere.prototxt: no such file")


FLAGS = {
    "no solver": ([], "--solver"),
    "no such flag": (["--solver", "solver.prototxt", "--sover", "x"], "--sover"),
    "a typo": (["--solvr", "solver.prototxt"], 'unknown flag --solvr (did you mean "--solver"?)'),
    "one dash": (["-solvr=s.prototxt"], 'unknown flag -solvr (did you mean "--solver"?)'),
    "a communicator": (["--solver", "solver.prototxt", "--communicator", "rng"], '"ring"?'),
    "float8": (["--solver", "solver.prototxt", "--gradients", "float8"], "--gradients"),
    "a file": (
        ["--solver", "solver.prototxt", "--tensorboard", "net.prototxt"], "choose a folder that"
    ),
    "a rate alone": (["--solver", "x", "--scale-lr", "linear"], "--scale-lr needs --batch"),
    "a schedule alone": (["--solver", "x", "--schedule", "epochs"], "--schedule needs --batch"),
    "kept epochs": (["--solver", "x", "--keep", "epochs"], "said by --schedule epochs"),
    "a warm-up alone": (["--solver", "x", "--warmup", "5"], "--warmup needs --scale-lr"),
    "less than none": (["--solver", "x", "--restarts", "-1"], "--restarts"),
    "hosts alone": (["--solver", "x", "--hosts", "a,b"], "--hosts needs -n"),
    "restarts alone": (["--solver", "x", "--restarts", "2"], "--restarts needs -n"),
    "two starts": (
        ["--solver", "solver.prototxt", "--snapshot", "a", "--weights", "b"],
        "--snapshot to resume or --weights to fine-tune, not both",
    ),
    "a GPU": (["--solver", "solver.prototxt", "--gpu", "0"], "cannot run on GPU 0"),
    "no threads": (["--solver", "solver.prototxt", "--threads", "0"], "--threads"),
    "three leaves": (["--solver", "solver.prototxt", "--leaves", "3"], "cut into 3 equal leaves"),
    "many leaves": (["--solver", "solver.prototxt", "--leaves", "16"], "net.prototxt:2: layer"),
    "no state": (["--solver", "solver.prototxt", "--snapshot", "x"], "x: no such file"),
    "weights as state": (
        ["--solver", "solver.prototxt", "--snapshot", "init.caffemodel"], "init.caffemodel"
    ),
    "two numbers": (["--solver", "solver.prototxt", "--synthetic", "8,8"], "channels,height,"),
    "an effect": (["--solver", "solver.prototxt", "--sigint_effect", "die"], "--sigint_effect"),
}  # fmt: skip


@pytest.mark.parametrize("arguments, text", FLAGS.values(), ids=FLAGS)
def test_wrong_flags(
    run: Path, capsys: pytest.CaptureFixture[str], arguments: Any, text: Any
) -> None:
    said = complaint(capsys, *arguments)
    assert text in said
    assert said.count("\n") == 1


NETS = {
    "a field": ("num_output: 6", "num_outputs: 6", 'net.prototxt:4:23: .*"num_output"'),
    "a layer type": ("SoftmaxWithLoss", "SoftmaxLos", r'net.prototxt:9: layer "loss".*unknown'),
    "a bottom": ('bottom: "pool"', 'bottom: "poll"', r'net.prototxt:7: layer "ip".*"pool"'),
    "a shape": ("kernel_size: 3", "kernel_size: 30", r'net.prototxt:3: layer "conv"'),
    "a list": ("data.txt", "gone.txt", r'net.prototxt:2: layer "data" \(HDF5Data\): gone.txt'),
}  # fmt: skip


@pytest.mark.parametrize("old, new, text", NETS.values(), ids=NETS)
def test_mistakes_in_a_net_are_located(
    run: Path, capsys: pytest.CaptureFixture[str], old: Any, new: Any, text: Any
) -> None:
    net = (run / "net.prototxt").read_text()
    assert old in net
    (run / "net.prototxt").write_text(net.replace(old, new))
    assert re.search(text, complaint(capsys, "--solver", "solver.prototxt"))


SOLVERS = {
    "a policy": ({"lr_policy": '"stp"'}, 'solver.prototxt: unknown lr_policy "stp"'),
    "a net": ({"net": '"nowhere.prototxt"'}, 'solver.prototxt: net: "nowhere.prototxt": no such'),
    "a type": ({"type": '"Adagrad"'}, 'did you mean "AdaGrad"'),
    "a number": ({"max_iter": "many"}, "solver.prototxt:3:"),
    "negative": ({"max_iter": "-4"}, "solver.prototxt: max_iter must not be negative, got -4"),
    "a prefix": ({"snapshot_prefix": '"net.prototxt/a"'}, "change snapshot_prefix in"),
}  # fmt: skip


@pytest.mark.parametrize("changed, text", SOLVERS.values(), ids=SOLVERS)
def test_mistakes_in_a_solver_are_located(
    run: Path, capsys: pytest.CaptureFixture[str], changed: Any, text: Any
) -> None:
    write_solver(run, **changed)
    assert text in complaint(capsys, "--solver", "solver.prototxt")


def test_an_absent_database_is_explained(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = """layer {{ name: "data" type: "Data" top: "data" top: "label" include {{ phase: {} }}
        data_param {{ source: "{}_lmdb" batch_size: 8 backend: LMDB }}
        transform_param {{ crop_size: 8 }} }}\n"""
    net = (run / "net.prototxt").read_text()
    start, end = net.index("layer"), net.index('layer { name: "conv"')
    two = data.format("TRAIN", "some_train") + data.format("TEST", "some_test")
    (run / "net.prototxt").write_text(net[:start] + two + net[end:])
    said = complaint(capsys, "--solver", "solver.prototxt").splitlines()
    assert said[0].startswith('net.prototxt:2: layer "data" (Data): some_train_lmdb: no such')
    assert said[1].endswith("fire_train --solver solver.prototxt --synthetic")
    assert "training reads the LMDB some_train_lmdb: batches of 8 images" in said[2]
    assert "testing reads the LMDB some_test_lmdb" in said[3]
    assert "convert_imageset" in said[4] and "some_train_lmdb" in said[4]
    capsys.readouterr()
    assert train("--synthetic", "--iterations", "2") == 0


IDLE = {
    "max_iter 0": ({"max_iter": "0"}, "this is iteration 0, max_iter is 0"),
    "no rate": ({"base_lr": "0"}, "base_lr is 0 or missing"),
}


@pytest.mark.parametrize("changed, text", IDLE.values(), ids=IDLE)
def test_a_run_that_cannot_learn_warns(
    run: Path, capsys: pytest.CaptureFixture[str], changed: Any, text: Any
) -> None:
    write_solver(run, **changed)
    assert train() == 0
    assert text in capsys.readouterr().err


def test_a_net_without_a_loss_warns(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = (run / "net.prototxt").read_text()
    (run / "net.prototxt").write_text(net.replace('"SoftmaxWithLoss"', '"Accuracy"'))
    assert train("--iterations", "1") == 0
    assert "has no loss" in capsys.readouterr().err


def test_every_command_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"pycaffe_fire {caffe.__version__}\n"
