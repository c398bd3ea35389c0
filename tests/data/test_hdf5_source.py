"""HDF5 lists: rows in order over several files, wrapping, and errors that name file and dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pycaffe_fire.data.hdf5 import HDF5Source
from pycaffe_fire.data.loader import Loader
from pycaffe_fire.data.order import leaf_schedule
from pycaffe_fire.errors import DataError


def make(folder: Path, counts: Any, **replace: Any) -> Any:
    names, at = [], 0
    for i, count in enumerate(counts):
        names.append(str(folder / f"part{i}.h5"))
        rows = np.arange(at, at + count)
        with h5py.File(names[-1], "w") as file:
            file["data"] = rows[:, None] * np.array([1.0, 10.0, 100.0])
            file["label"] = rows.astype(np.int32)
            for name, value in replace.items():
                if i == len(counts) - 1:
                    del file[name]
                    file[name] = value
        at += count
    (folder / "list.txt").write_text("\n".join(names) + "\n\n")
    return folder / "list.txt"


def test_rows_over_files_and_wrapping(tmp_path: Path) -> None:
    source = HDF5Source(make(tmp_path, [3, 1, 5]), ["data", "label"])
    assert source.shapes == [(3,), ()] and len(source) == 9
    data, label = np.empty((20, 3), np.float32), np.empty(20, np.float32)
    source.fill(range(7, 27), data, label)
    assert label.tolist() == [g % 9 for g in range(7, 27)]
    assert np.array_equal(data[:, 2], label * 100)


def test_through_the_loader(tmp_path: Path) -> None:
    source = HDF5Source(make(tmp_path, [3, 4]), ["label", "data"])
    with Loader(source, leaf_schedule(4, 2, [1]), 2, threads=3) as loader:
        got = [g for _ in range(10) for g in loader.next().data.tolist()]
    assert got == [g % 7 for p in range(10) for g in (4 * p + 2, 4 * p + 3)]


def test_bad_lists_and_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.txt: the list"):
        HDF5Source(tmp_path / "nowhere.txt", ["data"])
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(DataError, match="names no HDF5 files"):
        HDF5Source(tmp_path / "empty.txt", ["data"])
    (tmp_path / "l.txt").write_text(str(tmp_path / "gone.h5"))
    with pytest.raises(DataError, match=r"gone\.h5: no such HDF5 file"):
        HDF5Source(tmp_path / "l.txt", ["data"])
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["data"] = np.zeros((4, 3))
    with pytest.raises(DataError, match=r"rows\.h5: is not a list .* the path of one HDF5 file on"):
        HDF5Source(tmp_path / "rows.h5", ["data"])
    (tmp_path / "gone.h5").write_bytes(b"not hdf5")
    with pytest.raises(DataError, match=r"gone\.h5: cannot be opened as HDF5"):
        HDF5Source(tmp_path / "l.txt", ["data"])
    with pytest.raises(DataError, match='has no dataset "mask"; it has: data, label'):
        HDF5Source(make(tmp_path, [3]), ["data", "mask"])


@pytest.mark.parametrize(
    ("replace", "text"),
    [
        ({"label": np.zeros(2)}, "differ in their number of rows: data 4, label 2"),
        ({"data": np.zeros((4, 5))}, r'part1.h5: rows of dataset "data" have shape \(5,\), in'),
        (
            {"label": [b"a", b"b", b"c", b"d"]},
            'part1.h5: dataset "label" must hold rows of numbers',
        ),
    ],
)
def test_datasets_that_do_not_fit(tmp_path: Path, replace: Any, text: str) -> None:
    with pytest.raises(DataError, match=text):
        HDF5Source(make(tmp_path, [3, 4], **replace), ["data", "label"])


def test_no_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="hold no rows"):
        HDF5Source(make(tmp_path, [0]), ["data", "label"])
