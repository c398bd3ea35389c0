"""fire_data's mistakes are one sentence and status 1, like those of every command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pycaffe_fire.cli.fire_data import main

MODELS = Path(__file__).parents[2] / "models"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    try:
        status: Any = main(list(arguments))
    except SystemExit as stop:
        status = stop.code
    text = capsys.readouterr().err
    assert status == 1 and text.count("\n") == 1
    return text


@pytest.mark.parametrize("arguments", [[], ["digts", "x"], ["digits"], ["digits", "a", "--odd"]])
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: Any) -> None:
    text = said(capsys, *arguments)
    assert text.startswith("fire_data: ") and text.endswith("see fire_data --help\n")


def test_a_file_in_the_place_of_a_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "digits_train_lmdb").write_text("not a database")
    assert "digits_train_lmdb: is a file" in said(capsys, "digits", str(tmp_path))


def test_a_folder_of_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(5):
            Image.new("L", (8, 8), 9 * number).save(tmp_path / "images" / name / f"{number}.png")
    (tmp_path / "images" / "cat" / "notes.txt").write_text("x")
    out = str(tmp_path / "out")
    assert main(["folder", str(tmp_path / "images"), out, "--size", "4x6", "--gray"]) == 0
    text = capsys.readouterr().out
    assert "0  cat           4         1" in text and f"{out}/val_lmdb: 2 images, checked" in text
    assert "1 file is no image by its name: cat/notes.txt" in text
    assert "exists already" in said(capsys, "folder", str(tmp_path / "images"), out)
    assert "whole number" in said(capsys, "folder", "images", out, "--size", "big")


def test_a_deploy_net(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, out = str(MODELS / "googlenet" / "train_val.prototxt"), tmp_path / "deploy.prototxt"
    assert main(["deploy", net, "-o", str(out)]) == 0
    told = capsys.readouterr()
    assert told.out == f"{out}: 143 layers, gives prob\n" and "loss1/loss" in told.err
    assert main(["deploy", net]) == 0
    assert capsys.readouterr().out == out.read_text()
    assert "no such file" in said(capsys, "deploy", str(tmp_path / "none.prototxt"))
