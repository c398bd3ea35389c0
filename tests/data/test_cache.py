"""Records kept in memory: read once, up to a limit, and the same values with and without."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import host
from pycaffe_fire.data.cache import Cache
from pycaffe_fire.data.db import Database
from pycaffe_fire.data.order import ShuffledOrder
from pycaffe_fire.data.source import DatabaseSource
from pycaffe_fire.data.transformer import Transformer


def test_values_are_read_once_until_the_cache_is_full(caplog: pytest.LogCaptureFixture) -> None:
    reads = []

    def read(key: Any) -> Any:
        reads.append(key)
        return bytes(10)

    cache: Cache[Any] = Cache("some.db", limit=25)
    with caplog.at_level(logging.WARNING, "pycaffe_fire"):
        for key in (0, 1, 2, 3) * 3:
            assert cache.get(key, partial(read, key)) == bytes(10)
    assert len(cache) == 2
    assert reads == [0, 1, 2, 3, 2, 3, 2, 3]
    assert len(caplog.records) == 1
    assert "some.db: the cache is full with 2 records" in caplog.text


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_the_limit_is_half_of_the_free_memory(
    monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setattr(host, "free_bytes", lambda: 40 * processes)
    cache: Cache[Any] = Cache("some.db", processes=processes)
    for key in range(5):
        cache.get(key, lambda: np.zeros(2, np.float32))
    assert len(cache) == 2


@pytest.mark.parametrize("crop", [0, 6])
def test_a_database_is_read_once(
    small_lmdb: Any, transform_param: Any, monkeypatch: pytest.MonkeyPatch, crop: int
) -> None:
    path, _ = small_lmdb
    reads = []
    real = Database.record
    monkeypatch.setattr(Database, "record", lambda db, i: reads.append(i) or real(db, i))
    batches = []
    for cache in (None, Cache[bytes](os.fspath(path))):
        reads.clear()
        transformer = Transformer(transform_param(crop_size=crop, mirror=True), True, 5)
        source = DatabaseSource(path, "LMDB", transformer, ShuffledOrder(1), cache=cache)
        data, label = np.empty((60, *source.shape), np.float32), np.empty(60, np.float32)
        for start in range(0, 60, 5):
            source.fill(range(start, start + 5), data[start : start + 5], label[start : start + 5])
        batches.append((data, label))
        if cache:
            assert sorted(reads) == list(range(20))
    for plain, cached in zip(*batches, strict=True):
        np.testing.assert_array_equal(plain, cached)
