"""Bad records: named and fatal by default, or skipped, counted, and the same for every reader."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.order import SequentialOrder
from pycaffe_fire.data.source import DatabaseSource
from pycaffe_fire.data.transformer import Transformer
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.errors import DataError


@pytest.fixture
def database(tmp_path: Path) -> Any:
    """10 records; 3 is garbage, 4 has another shape, 7 has a label of its own."""
    with DatabaseWriter(tmp_path / "db") as writer:
        for i in range(10):
            image = np.full((1, 4, 4), i, np.uint8)
            record = encode_datum(image, 99 if i == 7 else i)
            if i == 3:
                record = b"\xff\xff"
            if i == 4:
                record = encode_datum(np.zeros((1, 4, 5), np.uint8), 4)
            writer.put(b"key%d" % i, record)
    return tmp_path / "db"


def source(path: Path, transform_param: Any, **options: Any) -> Any:
    plain = Transformer(transform_param(), False, 0)
    return DatabaseSource(path, "LMDB", plain, SequentialOrder(), **options)


def read(source: Any, samples: range) -> Any:
    data, label = np.empty((len(samples), 1, 4, 4), np.float32), np.empty(len(samples), np.float32)
    source.fill(samples, data, label)
    return data[:, 0, 0, 0].tolist(), label.tolist()


def test_fail_is_the_default(database: Any, transform_param: Any) -> None:
    with pytest.raises(DataError, match="record 'key3': is not a Datum"):
        read(source(database, transform_param), range(10))


@pytest.mark.parametrize("native", [True, False])
def test_skipped_records_are_replaced_and_counted(
    database: Any,
    transform_param: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    native: bool,
) -> None:
    if not native:
        monkeypatch.setattr("pycaffe_fire.backend.cpu.library.available", lambda: False)
    records = source(database, transform_param, policy="skip", classes=50)
    with caplog.at_level(logging.WARNING, "pycaffe_fire"):
        data, label = read(records, range(20))
    good = [0, 1, 2, 5, 5, 5, 6, 8, 8, 9]
    assert data == good * 2 and label == good * 2
    assert len(records.bad) == 3
    assert len(caplog.records) == 3  # once each, though met twice
    assert "label 99, outside the 50 classes" in caplog.text
    assert read(records, range(3, 4))[0] == [5]  # whatever else is in the batch


def test_labels_outside_the_classes(database: Any, transform_param: Any) -> None:
    records = source(database, transform_param, classes=7)
    assert read(records, range(3))[1] == [0, 1, 2]
    with pytest.raises(DataError, match=r"'key7': has label 99, outside the 7 classes \(0 to 6\)"):
        read(records, range(7, 8))


def test_nothing_left(tmp_path: Path, transform_param: Any) -> None:
    with DatabaseWriter(tmp_path / "bad") as writer:
        writer.put(b"a", b"\xff")
    with pytest.raises(DataError, match="no usable record is left; the last one: .*'a'"):
        source(tmp_path / "bad", transform_param, policy="skip")


def test_an_unknown_policy(database: Any, transform_param: Any) -> None:
    with pytest.raises(DataError, match='unknown policy "ignore" .* known: fail, skip'):
        source(database, transform_param, policy="ignore")
