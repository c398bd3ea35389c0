"""fire_train --check and caffe check: all problems of a project at once, and nothing trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from pycaffe_fire.cli import caffe, fire_train
from tests.cli.runs import make_run, write_solver


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def change(folder: Path, old: str, new: str) -> None:
    text = (folder / "net.prototxt").read_text()
    assert old in text
    (folder / "net.prototxt").write_text(text.replace(old, new))


def problems(capsys: pytest.CaptureFixture[str], *flags: str) -> list[str]:
    assert fire_train.main(["--solver", "solver.prototxt", "--check", *flags]) == 1
    return capsys.readouterr().out.splitlines()


def test_a_sound_project(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted(path.name for path in folder.iterdir())
    flags = ["--solver", "solver.prototxt", "--weights", "init.caffemodel"]
    assert fire_train.main([*flags, "--check"]) == 0
    assert capsys.readouterr().out == "no problems in solver.prototxt, net.prototxt\n"
    assert caffe.main(["check", "-solver", "solver.prototxt"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == files  # nothing was trained


def test_every_field_that_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_solver(folder, "momentun: 0.9 random_seed: soon test_offset: 2")
    (folder / "net.prototxt").write_text(
        'layer { name: "a" type: "ReLU" bottm: "x" relu_param { slope: 1 engine: FAST } }\n'
        "name: net\n"
    )
    found = problems(capsys)
    assert len(found) == 2 and "momentun" in found[0] and "random_seed" in found[1]
    write_solver(folder, "test_offset: 2")
    found = problems(capsys)
    for text, problem in zip(
        ("test_offset is not supported", '"bottm" (did you mean "bottom"?)', '"slope"', "FAST",
         "strings need quotes"),
        found, strict=True,
    ):  # fmt: skip
        assert text in problem


def test_layers_files_and_shapes_in_one_go(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = """
layer { name: "gone" type: "HDF5Data" top: "d2" hdf5_data_param { source: "no.txt" batch_size: 2 } }
layer { name: "after" type: "ReLU" bottom: "d2" top: "d2" }
layer { name: "wide" type: "Convolution" bottom: "data" top: "w"
  convolution_param { num_output: 2 kernel_size: 99 } }
layer { name: "odd" type: "Convolutoin" bottom: "data" top: "o" }
layer { name: "lost" type: "ReLU" bottom: "data" top: "z" quantization_param { bw_params: 8 } }
"""
    with (folder / "net.prototxt").open("a") as file:
        file.write(layers)
    found = "\n".join(problems(capsys))
    for text in (
        "no.txt",
        "does not fit into",
        'did you mean "Convolution',
        "quantization_param is",
    ):
        assert text in found
    assert '"after"' not in found  # a consequence, not a problem of its own


def test_labels_and_weights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import h5py

    with h5py.File(folder / "data.h5", "r+") as file:
        file["label"][0] = 77
    found = problems(capsys, "--weights", "init.caffemodel,no.caffemodel")
    assert any("label 77" in problem for problem in found)
    assert any("no.caffemodel" in problem for problem in found)


def test_caffe_check_needs_a_solver(capsys: pytest.CaptureFixture[str]) -> None:
    assert caffe.main(["check"]) == 1
    assert "-solver FILE" in capsys.readouterr().err
