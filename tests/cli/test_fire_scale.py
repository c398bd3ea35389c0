"""fire_scale as a user meets it: tables, the paper's rows, measuring, the plot, errors."""

from __future__ import annotations

import builtins
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.cli.fire_scale import main
from pycaffe_fire.installation import install_hint
from pycaffe_fire.parallel.cost import ALGORITHMS, NETWORKS

NET = """
name: "tiny"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  data_param { source: "nowhere" batch_size: 64 } transform_param { crop_size: 8 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" }
"""
GIVEN = ("--model", "net.prototxt", "--seconds-per-sample", "0.01")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(text: str) -> dict[int, list[str]]:
    """The table's lines by their number of nodes."""
    lines = [line.split() for line in text.splitlines()]
    wide = [cells for cells in lines if len(cells) == 2 + 3 * len(ALGORITHMS)]
    return {int(cells[0]): cells for cells in wide if cells[0].isdecimal()}


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        status: Any = main(list(arguments))
    except SystemExit as stop:
        status = stop.code
    assert status == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


def test_help_opens_with_commands_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert text.split("\n")[1].split()[:2] == ["fire_scale", "--solver"]
    assert all(name in text for name in NETWORKS)


def test_table_of_a_given_profile_and_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GIVEN, "--latency", "10", "--bandwidth", "10"]) == 0
    text = capsys.readouterr().out
    assert "tiny: 0.0 MB of gradients in 1 buckets, complete evenly" in text
    assert "network as given: 10 us, 10 Gbit/s (given)" in text
    assert "batch 64 in all; gradients beside backward" in text
    table = rows(text)
    assert list(table) == [1, 2, 4, 8, 16, 32, 64]
    assert table[1][1:5] == ["64", "640.0", "1.00", "100.0%"]
    # 32 samples, and two steps of 10 us that nothing hides.
    assert float(table[2][2]) == pytest.approx(320.0, abs=0.1)
    assert "A batch of 64 is too small for more" in text


def test_a_whole_batch_per_rank_goes_to_1024_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GIVEN, "--network", "infiniband", "--batch", "per-rank"]) == 0
    table = rows(capsys.readouterr().out)
    assert list(table)[-1] == 1024
    assert table[1024][1] == "64"


def test_batch_size_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GIVEN, "--network", "1gbe", "--batch-size", "4096"]) == 0
    assert rows(capsys.readouterr().out)[1024][1] == "4"


def test_papers_runs_are_reproduced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--paper"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9
    told = " ".join(lines[:3])
    assert "bandwidth (2.9 GB/s) was fitted to these rows" in told
    assert "are recalled, not read" in told
    headline = next(line for line in lines if line.startswith("GoogLeNet   128"))
    assert "47" in headline.split()
    assert headline.count("%") == 2
    assert main([*GIVEN, "--network", "gemini"]) == 0
    assert lines[-1] in capsys.readouterr().out


def test_every_assumption_is_told_and_can_be_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GIVEN, "--network", "100gbe"]) == 0
    text = capsys.readouterr().out
    assert (
        "10 ms per sample (given) + 0 ms per pass (assumed), 67% of it backward (assumed)" in text
    )
    assert "sums: 5 GB/s (assumed)" in text
    assert "network 100gbe: 15 us, 94 Gbit/s (nominal); 0 us of a host's time per message" in text
    assert "float32 on the wire" in text and "not in it: reading data" in text
    assert main(
        [*GIVEN, "--network", "100gbe", "--seconds-per-pass", "0.002", "--sum-rate", "80",
         "--message-cost", "3", "--per-host", "4", "--inner", "nvlink", "--gradients", "float16"]
    ) == 0  # fmt: skip
    text = capsys.readouterr().out
    assert "+ 2 ms per pass (given)" in text and "sums: 80 GB/s (given)" in text
    assert "3 us of a host's time per message" in text and "16-bit numbers on the wire" in text
    assert "4 ranks on each host, which share its link; within: network nvlink: 5 us" in text
    assert float(rows(text)[1][2]) == pytest.approx(642.0), "64 samples and a pass"


def test_a_gpu_adds_faster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GIVEN, "--network", "100gbe", "--device", "gpu"]) == 0
    assert "sums: 200 GB/s (assumed)" in capsys.readouterr().out
    assert main([*GIVEN, "--network", "gemini"]) == 0
    assert "(fitted to the paper's rows)" in capsys.readouterr().out


def test_any_numbers_of_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GIVEN, "--network", "1gbe", "--ranks", "6,1,12"]) == 0
    table = rows(capsys.readouterr().out)
    assert list(table) == [1, 6, 12]
    assert table[6][1] == "11", "64 samples: the busiest of six ranks has 11"


def test_a_net_is_measured_without_its_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--solver", "solver.prototxt", "--measure", "--network", "1gbe"]) == 0
    text = capsys.readouterr().out
    assert "ms per sample" in text
    table = rows(text)
    assert float(table[1][2]) > 0
    assert float(table[64][2]) <= float(table[1][2]) + 100


def test_the_network_between_ranks_is_measured(folder: Path) -> None:
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if importlib.util.find_spec("mpi4py") is None or not mpiexec:
        pytest.skip("mpi4py or mpiexec is missing")
    package = Path(__file__).parents[2]
    done = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, "-m", "pycaffe_fire.cli.fire_scale", *GIVEN],
        env={**os.environ, "PYTHONPATH": str(package)}, cwd=folder,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("network measured: ") == 1
    assert "both ways at once" in done.stdout and "step by step" in done.stdout


def test_plot(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main([*GIVEN, "--network", "1gbe", "--plot", "scale.png"]) == 0
    assert (folder / "scale.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.endswith("wrote scale.png\n")
    assert "jpgg" in complaint(capsys, *GIVEN, "--network", "1gbe", "--plot", "scale.jpgg")
    assert sorted(path.suffix for path in folder.iterdir()) == [".png", ".prototxt", ".prototxt"]


def test_plot_without_matplotlib(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    told = complaint(capsys, *GIVEN, "--network", "1gbe", "--plot", "scale.png")
    assert told == f"fire_scale: plots need matplotlib: {install_hint('plot')}\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "give a net with --solver or --model"),
        (("--model", "net.prototxt", "--network", "1gbe"), "--measure"),
        ((*GIVEN, "--measure", "--network", "1gbe"), "not both"),
        (GIVEN, "known networks: "),
        ((*GIVEN, "--network", "10gb"), 'did you mean "10gbe"?'),
        ((*GIVEN, "--network", "1gbe", "--latency", "1", "--bandwidth", "1"), "not both"),
        ((*GIVEN, "--latency", "1"), "belong together"),
        ((*GIVEN, "--network", "1gbe", "--inner", "nvlink"), "--inner needs --per-host"),
        ((*GIVEN, "--network", "1gbe", "--ranks", "2,0"), "at least 1"),
        ((*GIVEN, "--latency", "-1", "--bandwidth", "1"), "needs a number above 0"),
        ((*GIVEN, "--network", "1gbe", "--batch-size", "0"), "at least 1"),
        (("--model", "gone.prototxt", *GIVEN[2:], "--network", "1gbe"), "gone.prototxt"),
    ],
)
def test_mistakes_are_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    assert told in complaint(capsys, *arguments)


def test_unknown_size_of_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "net.prototxt").write_text(NET.replace("crop_size: 8", ""))
    told = complaint(capsys, *GIVEN, "--network", "1gbe")
    assert told.startswith('fire_scale: net.prototxt: layer "data" (Data): has no crop_size')
    assert main([*GIVEN, "--network", "1gbe", "--synthetic", "3,8,8"]) == 0
