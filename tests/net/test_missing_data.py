"""Advice about data that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pycaffe_fire import schema
from pycaffe_fire.net.missing_data import advice, missing_sources


def net(
    phase: str, source: Any, crop: int = 0, kind: str = "Data", field: str = "data_param"
) -> Any:
    made = schema.NetParameter()
    made.state.phase = getattr(schema, phase)
    layer = made.layer.add(name="d", type=kind)
    getattr(layer, field).source = str(source)
    getattr(layer, field).batch_size = 32
    if crop:
        layer.transform_param.crop_size = crop
    return made


def test_what_is_there_is_not_missed(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    nets = [net("TRAIN", tmp_path / "here"), net("TEST", tmp_path / "gone")]
    assert [w.source for w in missing_sources(nets)] == [str(tmp_path / "gone")]
    assert missing_sources([net("TRAIN", ""), schema.NetParameter()]) == []


def test_images() -> None:
    missing = missing_sources([net("TRAIN", "a_lmdb", 224), net("TEST", "b_lmdb", 224)])
    told = advice(missing, "fire_train --solver s")
    assert told[0] == "try the net without data: fire_train --solver s --synthetic"
    assert told[1].startswith("training reads the LEVELDB a_lmdb: batches of 32 images")
    assert told[2].startswith("testing reads")


def test_the_digits_are_drawn() -> None:
    told = advice(missing_sources([net("TRAIN", "no/where/digits_train_lmdb")]), "x")
    assert told[-1] == "make the digits with: fire_data digits no/where"


def test_unknown_sizes_are_asked_for() -> None:
    missing = missing_sources([net("TRAIN", "a.txt", kind="HDF5Data", field="hdf5_data_param")])
    told = advice(missing, "x")
    assert told[0].endswith("x --synthetic CHANNELS,HEIGHT,WIDTH")
    assert "list a.txt" in told[1]
    assert not any("convert_imageset" in line for line in told)
