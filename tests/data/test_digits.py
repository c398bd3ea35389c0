"""The embedded digits: the same bits everywhere, ten balanced classes, and the command."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from pycaffe_fire.backend.cpu import library
from pycaffe_fire.cli import fire_data
from pycaffe_fire.data import digits
from pycaffe_fire.data.datum import datum_image, parse_datum
from pycaffe_fire.data.db import open_database
from pycaffe_fire.data.kernels import DrawStrokes
from pycaffe_fire.data.writer import DatabaseWriter


def test_always_the_same_images() -> None:
    images, labels = digits.render("train", 0, 64)
    found = hashlib.sha256(images.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()
    assert found == "37aa20d8015e6d39256ae7a2d3e46b82b74cfd6b335026e2eacfb2d7875c6a0a"
    part, part_labels = digits.render("train", 60, 4)
    assert np.array_equal(part, images[60:]) and np.array_equal(part_labels, labels[60:])


def test_numpy_draws_the_same(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = digits.render("test", 5, 8)
    monkeypatch.setattr(library, "available", lambda: False)
    again, labels_again = digits.render("test", 5, 8)
    assert np.array_equal(again, images) and np.array_equal(labels_again, labels)


def test_strokes_have_the_bits_of_numpy(isa: str) -> None:
    """Before they are rounded to bytes, too."""
    ends = np.random.default_rng(3).uniform(-5, 20, (5, 7, 2, 2))
    ends[:, 1, 1] = ends[:, 1, 0]  # a piece of no length
    radius = np.linspace(0.1, 9, 5)
    for size in (1, 5, 16):
        expected = np.empty((5, size, size))
        digits._draw_numpy(ends, radius, expected)
        for threads in (1, 2, 3):
            out = np.full_like(expected, np.nan)
            DrawStrokes(
                threads=threads, ends=ends, radius=radius, out=out, count=5, pieces=7, size=size
            ).run()
            assert np.array_equal(out, expected)


def test_classes_are_balanced_and_splits_differ() -> None:
    images, labels = digits.render("train", 0, 2000)
    assert images.shape == (2000, 28, 28) and images.dtype == np.uint8
    assert np.bincount(labels, minlength=10).min() > 150
    assert not np.array_equal(images[:10], digits.render("test", 0, 10)[0])


def test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(digits, "SPLITS", {"train": 30, "test": 20})
    assert fire_data.main(["digits", str(tmp_path / "out")]) == 0
    images, labels = digits.render("train", 0, 30)
    db = open_database(tmp_path / "out" / "digits_train_lmdb")
    assert len(db) == 30 and db.key(29) == b"00000029"
    datum = parse_datum(db.record(29), "db")
    assert datum.label == labels[29] and np.array_equal(datum_image(datum, "db")[0], images[29])
    assert fire_data.main(["digits", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.count("left alone") == 2


def test_command_reports_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with DatabaseWriter(tmp_path / "digits_train_lmdb") as writer:
        writer.put(b"a", b"b")
    assert fire_data.main(["digits", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "digits_train_lmdb: holds 1 records" in error and error.count("\n") == 1
    (tmp_path / "file").write_text("")
    assert fire_data.main(["digits", str(tmp_path / "file")]) == 1
    assert "cannot be written: File exists; check folder" in capsys.readouterr().err


def test_help_shows_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fire_data.main(["--help"])
    assert "fire_data digits data" in capsys.readouterr().out.splitlines()[1]
