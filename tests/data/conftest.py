"""Fixtures of the data tests: private copies of Caffe's own databases, and small made-up ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.writer import DatabaseWriter

GOLDEN = Path(__file__).parents[1] / "golden" / "data"


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of the golden data (opening LMDB makes a lock file), as working directory."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    monkeypatch.chdir(tmp_path / "golden")
    return tmp_path / "golden"


@pytest.fixture
def small_lmdb(tmp_path: Path) -> Any:
    """20 records of 3 x 10 x 12, random bytes, labels 0 to 19."""
    images = np.random.default_rng(0).integers(0, 256, (20, 3, 10, 12), dtype=np.uint8)
    with DatabaseWriter(tmp_path / "small_lmdb") as writer:
        for i, image in enumerate(images):
            writer.put(b"%08d" % i, encode_datum(image, i))
    return tmp_path / "small_lmdb", images


@pytest.fixture
def transform_param() -> Any:
    """Makes a TransformationParameter from keywords."""
    return schema.TransformationParameter
