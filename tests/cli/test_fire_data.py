"""fire_data's mistakes are one sentence and status 1, like those of every command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.cli.fire_data import main


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
