"""Databases through transformer and loader: Caffe's batches, and independence of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend import random
from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.loader import Loader
from pycaffe_fire.data.order import SequentialOrder, ShuffledOrder, leaf_samples, leaf_schedule
from pycaffe_fire.data.source import DatabaseSource
from pycaffe_fire.data.transformer import Transformer
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.errors import DataError

CASES = [
    "plain", "meanvalues", "crop_meanfile_scale", "gray", "encoded", "rand_skip_free_multi_epoch",
    "leveldb",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_caffes_batches(golden: Path, case: Any) -> None:
    if case == "leveldb":
        pytest.importorskip("plyvel")
    expected = np.load(golden / f"{case}.npz")
    net = schema.parse_text(str(expected["prototxt"]), schema.NetParameter(), case)
    layer = net.layer[0]
    backend = schema.DataParameter.DB.Name(layer.data_param.backend)
    transformer = Transformer(layer.transform_param, train=False, key=0)
    source = DatabaseSource(layer.data_param.source, backend, transformer, SequentialOrder())
    size = layer.data_param.batch_size
    with Loader(source, leaf_schedule(size, 1, [0]), size) as loader:
        for i in range(3):
            batch = loader.next()
            assert np.array_equal(batch.data, expected[f"data{i}"])
            assert np.array_equal(batch.label, expected[f"label{i}"])


@pytest.mark.parametrize("order", [SequentialOrder(3), ShuffledOrder(9)])
def test_the_same_for_any_threads_and_leaves(
    small_lmdb: Any, transform_param: Any, order: Any
) -> None:
    path, _ = small_lmdb
    param = transform_param(crop_size=6, mirror=True)
    source = DatabaseSource(path, "LMDB", Transformer(param, True, random.key(1, "d")), order)
    data, label = np.empty((48, 3, 6, 6), np.float32), np.empty(48, np.float32)
    source.fill(range(48), data, label)
    for threads, leaves in ((1, 1), (4, 2), (2, 4)):
        size = 16 // leaves
        own = list(range(leaves))
        with Loader(source, leaf_schedule(16, leaves, own), size, threads=threads) as loader:
            for item in [(p, leaf) for p in range(3) for leaf in own]:
                samples = leaf_samples(*item, 16, leaves)
                batch = loader.next()
                assert batch.samples == samples
                assert np.array_equal(batch.data, data[samples.start : samples.stop])
                assert np.array_equal(batch.label, label[samples.start : samples.stop])


def test_records_and_labels(small_lmdb: Any, transform_param: Any) -> None:
    path, images = small_lmdb
    source = DatabaseSource(
        path, "LMDB", Transformer(transform_param(), True, 0), SequentialOrder(offset=18)
    )
    assert source.shape == (3, 10, 12) and source.shapes == [(3, 10, 12), ()] and len(source) == 20
    data, label = np.empty((4, 3, 10, 12), np.float32), np.empty(4, np.float32)
    source.fill(range(4), data, label)
    assert label.tolist() == [18, 19, 0, 1]
    assert np.array_equal(data, images[[18, 19, 0, 1]])


def make(path: Path, records: Any) -> Any:
    with DatabaseWriter(path) as writer:
        for i, record in enumerate(records):
            writer.put(b"key%d" % i, record)
    return path


def test_bad_records_are_named(tmp_path: Path, transform_param: Any) -> None:
    good = encode_datum(np.zeros((1, 4, 4), np.uint8), 0)
    other = encode_datum(np.zeros((1, 4, 5), np.uint8), 0)
    plain = Transformer(transform_param(), False, 0)
    out = np.empty((2, 1, 4, 4), np.float32)
    source = DatabaseSource(
        make(tmp_path / "a", [good, b"\xff\xff"]), "LMDB", plain, SequentialOrder()
    )
    with pytest.raises(DataError, match="a, record 'key1': is not a Datum"):
        source.fill(range(2), out)
    source = DatabaseSource(make(tmp_path / "b", [good, other]), "LMDB", plain, SequentialOrder())
    with pytest.raises(DataError, match=r"record 'key1': has shape \(1, 4, 5\), the first record"):
        source.fill(range(2), out)
    with pytest.raises(DataError, match="record 'key0': crop_size 9 is larger"):
        DatabaseSource(
            tmp_path / "b",
            "LMDB",
            Transformer(transform_param(crop_size=9), True, 0),
            SequentialOrder(),
        )


def test_labels_of_any_size(
    tmp_path: Path, transform_param: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = [-5, 0, 127, 128, 70_000, 2**31 - 1]
    path = make(tmp_path / "a", [encode_datum(np.zeros((1, 4, 4), np.uint8), n) for n in labels])
    plain = Transformer(transform_param(), False, 0)
    source = DatabaseSource(path, "LMDB", plain, SequentialOrder())
    for _ in range(2):
        data, label = np.empty((6, 1, 4, 4), np.float32), np.empty(6, np.float32)
        source.fill(range(6), data, label)
        assert label.tolist() == [float(np.float32(n)) for n in labels]
        monkeypatch.setattr("pycaffe_fire.backend.cpu.library.available", lambda: False)
