"""classify.py, detect.py, draw_net.py, parse_log.py and the upgrade tools, from flags to files."""

from __future__ import annotations

import csv
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from pycaffe_fire import Net, schema
from pycaffe_fire.cli import (
    classify,
    detect,
    draw_net,
    parse_log,
    upgrade,
)
from pycaffe_fire.pycaffe.classifier import Classifier
from pycaffe_fire.pycaffe.io import load_image
from tests.cli.runs import GOLDEN

NET = """
layer { name: "data" type: "Input" top: "data"
        input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
        inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A net, its weights, a mean in two forms and three images."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    Net("net.prototxt", schema.TRAIN).save("net.caffemodel")
    rng = np.random.default_rng(1)
    mean = rng.random((3, 8, 8)) * 100
    np.save("mean.npy", mean)
    schema.write_blob("mean.binaryproto", mean[None].astype(np.float32))
    (tmp_path / "images").mkdir()
    for name in ("b.png", "a.png", "c.jpg"):
        pixels = rng.integers(0, 255, (20, 30, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / name)
    return tmp_path


MODEL = ["--model_def", "net.prototxt", "--pretrained_model=net.caffemodel"]


def test_classifying_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--images_dim", "10,12", "--ext=png", "--mean_file", "mean.binaryproto"]
    assert classify.main([*MODEL, *flags, "images", "scores.npy"]) == 0
    assert "Classifying 2 inputs." in capsys.readouterr().out
    net = Classifier(
        "net.prototxt", "net.caffemodel", (10, 12), np.load("mean.npy"), None, 255, (2, 1, 0)
    )
    images = [load_image(f"images/{name}.png") for name in "ab"]
    np.testing.assert_allclose(np.load("scores.npy"), net.predict(images), rtol=1e-4)


def test_classifying_a_file_and_an_array(folder: Path) -> None:
    flags = ["--center_only", "--mean_file=mean.npy", "--images_dim=9,9", "--channel_swap=0,1,2"]
    assert classify.main([*MODEL, *flags, "images/a.png", "one.npy"]) == 0
    np.save("in.npy", load_image("images/a.png")[None])
    assert classify.main([*MODEL, *flags, "in.npy", "two.npy"]) == 0
    assert np.load("one.npy").shape == (1, 4)
    np.testing.assert_array_equal(np.load("one.npy"), np.load("two.npy"))


def test_classifying_nothing_leaves_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "evil.npy").write_bytes(b"\x80\x04.")
    for source, text in (
        ("images/none.png", "none.png"),
        ("images/../../", "no *.jpg"),
        ("evil.npy", "NumPy array"),
        ("mean.npy", "images x height"),
    ):
        assert classify.main([*MODEL, "--images_dim=9,9", source, "out.npy"]) == 1
        assert text in capsys.readouterr().err
    assert not (folder / "out.npy").exists()


def test_detecting_listed_windows(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "windows.csv").write_text(
        "filename,ymin,xmin,ymax,xmax\nimages/a.png,0,0,20,30\nimages/b.png,2,3,15,16\n"
        "images/a.png,5,5,12,19\n"
    )
    flags = ["--crop_mode", "list", "--context_pad", "2", "windows.csv"]
    assert detect.main([*MODEL, *flags, "found.csv"]) == 0
    assert "Processed 3 windows" in capsys.readouterr().out
    with open("found.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["filename"] for row in rows] == ["images/a.png"] * 2 + ["images/b.png"]
    assert [float(rows[1][x]) for x in ("ymin", "xmin", "ymax", "xmax")] == [5, 5, 12, 19]
    scores = np.array([[float(row[f"class{i}"]) for i in range(4)] for row in rows])
    np.testing.assert_allclose(scores.sum(1), 1, rtol=1e-5)
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it is not installed
    assert detect.main([*MODEL, *flags, "found.h5"]) == 0
    with h5py.File("found.h5") as file:
        np.testing.assert_allclose(file["prediction"][:], scores, rtol=1e-6)
        assert file["window"].shape == (3, 4) and file["filename"][2] == b"images/b.png"


def test_lists_that_are_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, message in (
        ("filename,ymin\n", "xmin, ymax, xmax not found"),
        ("filename,ymin,xmin,ymax,xmax\nimages/a.png,1,2,x,4\n", "windows.csv:2: "),
        ("filename,ymin,xmin,ymax,xmax\nimages/a.png,1,2\n", "windows.csv:2: "),
        ("filename,ymin,xmin,ymax,xmax\n", "no windows"),
        ("filename,ymin,xmin,ymax,xmax\nimages/a.png,50,2,60,9\n", "shows nothing"),
    ):
        (folder / "windows.csv").write_text(text)
        flags = ["--crop_mode=list", "--context_pad=2", "windows.csv", "found.csv"]
        assert detect.main([*MODEL, *flags]) == 1
        assert message in capsys.readouterr().err
    (folder / "list.txt").write_text("images/a.png\n")
    assert detect.main([*MODEL, "--context_pad=2", "list.txt", "found.csv"]) == 1
    assert "MATLAB" in capsys.readouterr().err
    assert not (folder / "found.csv").exists()


def test_drawing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert draw_net.main(["net.prototxt", "net.svg", "--rankdir", "TB", "--display_lrm"]) == 0
    assert "Drawing net to net.svg" in capsys.readouterr().out
    assert ">InnerProduct 4</text>" in (folder / "net.svg").read_text()
    assert draw_net.main(["net.prototxt", "net.png", "--phase", "TEST"]) == 0
    assert Image.open("net.png").width > 200
    assert draw_net.main(["net.prototxt", "net.tiger"]) == 1
    assert "tiger" in capsys.readouterr().err


def rows_of(path: Path) -> list[dict[str, float]]:
    with path.open(newline="") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def test_parsing_caffes_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(GOLDEN / "logs" / "caffe_train.log")
    assert parse_log.main([log, str(tmp_path), "--verbose"]) == 0
    assert "caffe_train.log.test" in capsys.readouterr().out
    train = rows_of(tmp_path / "caffe_train.log.train")
    assert list(train[0]) == ["NumIters", "Seconds", "LearningRate", "loss"]
    assert [row["NumIters"] for row in train] == [0, 5, 10, 15]
    assert [row["LearningRate"] for row in train] == [0.05, 0.05, 0.05, 0.015]
    assert train[1]["loss"] == 1.02188
    test = rows_of(tmp_path / "caffe_train.log.test")
    assert [row["loss"] for row in test] == [1.7413, 1.0227, 1.04454]
    assert 0 < test[0]["Seconds"] < test[1]["Seconds"] < 1


def test_parsing_over_new_year_and_nan(tmp_path: Path) -> None:
    log = tmp_path / "old.INFO"
    log.write_text(
        "Log file created at: whenever\n"
        "I1231 23:59:50.000000  7 solver.cpp:1] Solving x\n"
        "I1231 23:59:59.500000  7 solver.cpp:1] Iteration 0, Testing net (#0)\n"
        "I1231 23:59:59.500000  7 solver.cpp:1]     Test net output #0: accuracy = 0.5\n"
        "I1231 23:59:59.500000  7 solver.cpp:1]     Test net output #1: loss = nan (* 1 = nan)\n"
        "I0101 00:00:01.000000  7 solver.cpp:1] Iteration 9, loss = 2\n"
        "I0101 00:00:01.000000  7 solver.cpp:1]     Train net output #0: loss = 2 (* 1 = 2 loss)\n"
        "I0101 00:00:01.000000  7 sgd_solver.cpp:1] Iteration 9, lr = 1e-05\n"
        "I0101 00:00:02.000000  7 solver.cpp:1] Iteration 9, Testing net (#0)\n"
        "I0101 00:00:03.000000  7 solver.cpp:1]     Test net output #0: accuracy = 1\n"
        "not a line of glog's\n"
    )
    os.utime(log, (1.0e9, 1.0e9))
    assert parse_log.main([str(log), str(tmp_path), "--delimiter", "|"]) == 0
    text = (tmp_path / "old.INFO.test").read_text().splitlines()
    assert text[0] == "NumIters|Seconds|LearningRate|accuracy|loss"
    assert text[1] == "0.0|9.5|1e-05|0.5|nan" and text[2] == "9.0|13.0|1e-05|1.0|"
    train = (tmp_path / "old.INFO.train").read_text().splitlines()
    assert train[1].split("|")[1] == "11.0" and math.isnan(float(train[1].split("|")[2]))


def test_parsing_what_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("nothing\n")
    for arguments, text in (
        ([str(tmp_path / "x"), str(tmp_path)], "no net outputs"),
        ([str(tmp_path / "y"), str(tmp_path)], "cannot be read"),
        ([str(tmp_path / "x"), str(tmp_path / "z")], "no such folder"),
        ([str(tmp_path / "x"), str(tmp_path), "--delimiter=ab"], "one character"),
    ):
        assert parse_log.main(arguments) == 1
        assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    "tool, name",
    [
        (upgrade.net_text, "v0"),
        (upgrade.net_text, "v1_data_transform"),
        (upgrade.solver_text, "solver_old"),
    ],
)
def test_upgrading_text(tool: Callable[[list[str]], int], name: str, tmp_path: Path) -> None:
    out = tmp_path / "new.prototxt"
    assert tool([str(GOLDEN / "upgrade" / f"{name}.prototxt"), str(out)]) == 0
    assert out.read_text() == (GOLDEN / "upgrade" / f"{name}.upgraded.prototxt").read_text()


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_upgrading_weights(version: str, tmp_path: Path) -> None:
    blob = schema.BlobProto(num=1, channels=1, height=2, width=2, data=[1, 2, 3, 4])
    old = schema.NetParameter(name="old")
    layer = old.layers.add()
    if version == "v0":
        layer.layer.name, layer.layer.type, layer.layer.num_output = "fc", "innerproduct", 2
        layer.layer.blobs.append(blob)
    else:
        layer.name, layer.type = "fc", schema.V1LayerParameter.INNER_PRODUCT
        layer.inner_product_param.num_output = 2
        layer.blobs.append(blob)
    (tmp_path / "old.caffemodel").write_bytes(old.SerializeToString())
    paths = [str(tmp_path / "old.caffemodel"), str(tmp_path / "new.caffemodel")]
    assert upgrade.net_binary(paths) == 0
    new = schema.NetParameter.FromString((tmp_path / "new.caffemodel").read_bytes())
    assert not new.layers and new.layer[0].type == "InnerProduct"
    assert new.layer[0].inner_product_param.num_output == 2 and new.layer[0].blobs[0] == blob
    before, after = (schema.read_weights(path) for path in paths)
    np.testing.assert_array_equal(before[0].blobs[0], after[0].blobs[0])


def test_upgrading_the_wrong_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "new")
    text = str(GOLDEN / "upgrade" / "v0.prototxt")
    assert upgrade.net_binary([text, out]) == 1
    assert "looks like a prototxt" in capsys.readouterr().err
    (tmp_path / "broken").write_bytes(b"\x0a\xff\xff\x00")
    assert upgrade.net_binary([str(tmp_path / "broken"), out]) == 1
    assert "damaged" in capsys.readouterr().err
    assert upgrade.net_text([str(tmp_path / "gone"), out]) == 1
    assert upgrade.solver_text([text, out]) == 1
    assert not os.path.exists(out)
