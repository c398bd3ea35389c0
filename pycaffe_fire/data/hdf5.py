"""HDF5 files named in a list, as Caffe's HDF5Data layer reads them: row after row, file by file.

Shuffling keeps to that: every epoch has its own order of files, and every file its own of rows.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..backend import random
from ..errors import DataError

if TYPE_CHECKING:
    import h5py  # loaded where a file is opened: few nets need it, and it is slow to load

Rows: TypeAlias = "NDArray[np.float32] | _RowsOnDisk"
_KEPT = 2  # files in memory: one in use, and one more while threads cross from file to file


class HDF5Source:
    """Rows of the datasets `names` (one per top); sample g is row g modulo all rows there are.

    `shuffle` is the key of the random stream that orders files and rows, if they are shuffled.
    """

    def __init__(
        self, list_file: str | os.PathLike[str], names: Sequence[str], shuffle: int | None = None
    ) -> None:
        self._names = list(names)
        self._shuffle = shuffle
        self._files = _read_list(os.fspath(list_file))
        self.shapes: list[tuple[int, ...]] = []
        rows = [self._inspect(file) for file in self._files]
        self._rows = rows
        self._count = sum(rows)
        if not self._count:
            raise DataError(f"{os.fspath(list_file)}: its files hold no rows")
        self._lock = threading.RLock()
        self._recent: dict[int, list[Rows]] = {}

    def __len__(self) -> int:
        return self._count

    def _inspect(self, file: str) -> int:
        """The number of rows of a file, after checking that it fits the first."""
        counts = {}
        shapes = []
        with _open(file) as content, _explaining(file):
            for name in self._names:
                dataset = _dataset(content, file, name)
                counts[name] = dataset.shape[0]
                shapes.append(tuple(dataset.shape[1:]))
        if len(set(counts.values())) > 1:
            text = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise DataError(f"{file}: datasets differ in their number of rows: {text}")
        self.shapes = self.shapes or shapes
        for name, shape, first in zip(self._names, shapes, self.shapes, strict=True):
            if shape != first:
                raise DataError(
                    f'{file}: rows of dataset "{name}" have shape {shape}, '
                    f"in {self._files[0]} {first}"
                )
        return int(next(iter(counts.values())))

    def fill(self, samples: range, *arrays: NDArray[np.float32]) -> None:
        """Write the samples' rows, one array per name."""
        done = 0
        while done < len(samples):
            epoch, at = divmod(samples.start + done, self._count)
            files = self._file_order(epoch)
            ends = list(accumulate(self._rows[file] for file in files))
            turn = bisect_right(ends, at)
            file, start = files[turn], at - (ends[turn - 1] if turn else 0)
            count = min(len(samples) - done, ends[turn] - at)
            rows = self._row_order(epoch, file, slice(start, start + count))
            for source, target in zip(self._content(file), arrays, strict=True):
                target[done : done + count] = source[rows]
            done += count

    def _file_order(self, epoch: int) -> list[int]:
        if self._shuffle is None:
            return list(range(len(self._files)))
        words = random.bits(self._shuffle, 2 * epoch, 0, len(self._files))
        return [int(i) for i in np.argsort(words, kind="stable")]

    def _row_order(self, epoch: int, file: int, part: slice) -> slice | NDArray[np.int64]:
        if self._shuffle is None:
            return part
        words = random.bits(self._shuffle, 2 * epoch + 1, file, self._rows[file])
        return np.argsort(words, kind="stable")[part]

    def _content(self, number: int) -> list[Rows]:
        with self._lock:
            if number not in self._recent:
                while len(self._recent) >= _KEPT:
                    del self._recent[next(iter(self._recent))]
                self._recent[number] = self._load(self._files[number])
            return self._recent[number]

    def _load(self, file: str) -> list[Rows]:
        """The file's datasets in memory, or where they lie if they are much larger than it."""
        from ..schema.hdf5_members import room_for

        with _open(file) as content:
            sizes = [_dataset(content, file, name).size for name in self._names]
            if 4 * sum(sizes) > room_for(file):
                return [_RowsOnDisk(file, name, self._lock) for name in self._names]
            with _explaining(file):
                return [
                    _dataset(content, file, name).astype(np.float32)[...] for name in self._names
                ]


class _RowsOnDisk:
    """A dataset that is read row by row, because all of it would fill the memory."""

    def __init__(self, file: str, name: str, lock: threading.RLock) -> None:
        self._file, self._name, self._lock = file, name, lock

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        with self._lock, _open(self._file) as content, _explaining(self._file):
            dataset = _dataset(content, self._file, self._name)
            if isinstance(rows, slice):
                return np.asarray(dataset[rows], np.float32)
            wanted, places = np.unique(rows, return_inverse=True)
            return np.asarray(dataset[wanted], np.float32)[places]


@contextmanager
def _explaining(file: str) -> Iterator[None]:
    """What h5py says of damaged files, in one sentence."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
        if isinstance(error, DataError):
            raise
        reason = " ".join(str(error).split())
        raise DataError(f"{file}: cannot be read, it is damaged: {reason}") from None


def _read_list(list_file: str) -> list[str]:
    try:
        lines = Path(list_file).read_text().splitlines()
    except UnicodeDecodeError:
        raise DataError(
            f"{list_file}: is not a list of HDF5 files; source names a text file that has the path "
            "of one HDF5 file on every line"
        ) from None
    except OSError as error:
        raise DataError(
            f"{list_file}: the list of HDF5 files cannot be read: {error.strerror}"
        ) from None
    files = [line.strip() for line in lines if line.strip()]
    if any("\0" in file for file in files):
        raise DataError(f"{list_file}: is not a list of HDF5 files: there are zeros in it")
    if not files:
        raise DataError(f"{list_file}: names no HDF5 files; write one path per line")
    return files


def _open(file: str) -> h5py.File:
    if not os.path.exists(file):
        raise DataError(f"{file}: no such HDF5 file (looked from {os.getcwd()}); check the list")
    import h5py

    try:
        return h5py.File(file, "r", locking="best-effort")
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{file}: cannot be opened as HDF5: {reason}") from None


def _dataset(content: h5py.File, file: str, name: str) -> h5py.Dataset:
    import h5py

    from ..schema.hdf5_members import MemberError, member

    try:
        dataset = member(content, name)
    except MemberError as problem:
        raise DataError(f"{file}: {problem}") from None
    if not isinstance(dataset, h5py.Dataset):
        known = ", ".join(sorted(content)) or "none"
        raise DataError(f'{file}: has no dataset "{name}"; it has: {known}')
    if dataset.shape is None or dataset.ndim < 1 or dataset.dtype.kind not in "fiu":
        raise DataError(
            f'{file}: dataset "{name}" must hold rows of numbers, '
            f"not {dataset.dtype} of shape {dataset.shape}"
        )
    return dataset
