"""caffe test -per_class: accuracies of classes and the confusion matrix, on paper and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.cli import caffe

CLASSES, SAMPLES = 4, 24
NET = """
layer { name: "in" type: "HDF5Data" top: "x" top: "y"
  hdf5_data_param { source: "list.txt" batch_size: 8 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "y" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "x" bottom: "y" top: "accuracy"
  accuracy_param { ignore_label: 3 } }
layer { name: "top2" type: "Accuracy" bottom: "x" bottom: "y" top: "top2"
  accuracy_param { top_k: 2 } }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    scores = rng.integers(0, 4, (SAMPLES, CLASSES)).astype(np.float32)  # with ties
    labels = rng.integers(0, CLASSES, SAMPLES).astype(np.float32)
    with h5py.File("data.h5", "w") as file:
        file["x"], file["y"] = scores, labels
    Path("list.txt").write_text("data.h5\n")
    Path("net.prototxt").write_text(NET)
    Net("net.prototxt", schema.TEST).save("net.caffemodel")
    Path("labels.txt").write_text("ant\nbee\ncat\ndog\n")
    return tmp_path


def run(*flags: str) -> int:
    given = ["-model", "net.prototxt", "-weights", "net.caffemodel", "-iterations", "3"]
    return caffe.main(["test", *given, *flags])


def scored(*flags: str) -> Any:
    assert run("-json", "scores.json", *flags) == 0
    return json.loads(Path("scores.json").read_text())


def test_the_matrix_agrees_with_the_accuracy_layer(folder: Path) -> None:
    found = scored("-per_class", "-labels", "labels.txt")
    (only,) = found["per_class"]  # the second Accuracy layer compares the same blobs
    assert found["classes"] == ["ant", "bee", "cat", "dog"] and only["layer"] == "accuracy"
    matrix = np.array(only["confusion"])
    with h5py.File("data.h5") as file:
        scores, labels = file["x"][()], file["y"][()].astype(int)
    counted = labels != 3  # which is ignored
    assert matrix.sum() == only["samples"] == counted.sum()
    np.testing.assert_array_equal(
        matrix.sum(axis=1), np.bincount(labels[counted], minlength=CLASSES)
    )
    own = scores[np.arange(SAMPLES), labels]
    right = ((scores >= own[:, None]).sum(axis=1) == 1) & counted  # ties count against the label
    assert 0 < np.trace(matrix) == right.sum()
    assert only["accuracy"] == pytest.approx(right.sum() / counted.sum())
    assert only["class_accuracy"][3] is None
    for label in range(3):
        share = right[labels == label].mean()
        assert only["class_accuracy"][label] == pytest.approx(share)
    for label, iou in enumerate(only["class_iou"]):
        union = matrix[label].sum() + matrix[:, label].sum() - matrix[label, label]
        assert iou == pytest.approx(matrix[label, label] / union)
    assert only["mean_iou"] == pytest.approx(np.mean(only["class_iou"]))
    wrong = counted & ~right
    predictions = [
        max((c for c in range(CLASSES) if c != labels[n]), key=lambda c: (scores[n, c], -c))
        for n in np.flatnonzero(wrong)
    ]
    expected = np.zeros_like(matrix)
    np.add.at(expected, (labels[wrong], predictions), 1)
    np.testing.assert_array_equal(matrix - np.diag(np.diag(matrix)), expected)


def test_on_standard_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-per_class", "-labels", "labels.txt") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("accuracy: ") and "samples" in lines[0]
    assert [line.split()[0] for line in lines[2:6]] == ["ant", "bee", "cat", "dog"]
    assert lines[5].split()[1] == "-" and lines[5].split()[3] == "0"
    assert [line.split()[0] for line in lines[-4:]] == ["ant", "bee", "cat", "dog"]


def test_json_without_classes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = scored()
    assert set(found["outputs"]) == {"loss", "accuracy", "top2"} and found["per_class"] == []
    assert capsys.readouterr().out == ""


def test_refusals(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("labels.txt").write_text("ant\nbee\n")
    assert run("-per_class", "-labels", "labels.txt") == 1
    assert "has 2 names" in capsys.readouterr().err
    assert run("-per_class", "-labels", "none.txt") == 1
    assert "none.txt" in capsys.readouterr().err
    net = 'layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 } } }'
    Path("net.prototxt").write_text(net)
    assert run("-per_class") == 1
    assert "add an Accuracy layer" in capsys.readouterr().err
