"""Layers that write do so where the user is, or where the user said."""

from __future__ import annotations

from pathlib import Path

import pytest

import pycaffe_fire as caffe
from pycaffe_fire.errors import LayerError
from pycaffe_fire.layers.outputs import refusal


@pytest.mark.parametrize("name", ["../out.h5", "/out.h5", "inside/../../out.h5", "link/out.h5"])
def test_a_net_cannot_write_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    for folder in (work / "inside", other):
        folder.mkdir(parents=True)
    (work / "link").symlink_to(other)
    monkeypatch.chdir(work)
    text = f"""layer {{ name: "d" type: "Input" top: "d" top: "l" input_param {{
        shape {{ dim: 2 dim: 3 }} shape {{ dim: 2 }} }} }}
        layer {{ name: "out" type: "HDF5Output" bottom: "d" bottom: "l"
        hdf5_output_param {{ file_name: "{name}" }} }}"""
    (work / "net.prototxt").write_text(text)
    with pytest.raises(LayerError, match="lies outside the working directory"):
        caffe.Net("net.prototxt", caffe.TEST)
    assert not list(other.iterdir())


def test_a_folder_that_the_user_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert refusal("x/out.h5", "") == ""
    assert "outside" in refusal(str(tmp_path / "out" / "x"), "")
    assert refusal(str(tmp_path / "out" / "x"), str(tmp_path / "out")) == ""
    assert "outside" in refusal(str(tmp_path / "outer" / "x"), str(tmp_path / "out"))
