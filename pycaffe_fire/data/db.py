"""Databases of key/value records, read by position: LMDB, and LevelDB where plyvel is installed.

Reading never writes beside the data unless a lock file can be made, and any number of threads and
processes may read at once. Records are numbered in key order, as Caffe's cursor walks them.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from ..errors import DataError
from ..installation import install_hint
from . import last_words

_WALK = 4096  # keys indexed at a time: a sequential run starts at once, however large the database


class Database(ABC):
    """An ordered, read-only collection of records."""

    def __init__(self, path: str, count: int) -> None:
        self.path = path
        self._count = count
        self._lock = threading.Lock()
        # Keys end to end in one buffer: a list of a million small objects would take twice as much.
        self._keys = bytearray()
        self._ends = array("Q", [0])

    def __len__(self) -> int:
        return self._count

    def key(self, index: int) -> bytes:
        """The key of record `index`; the index of keys is built as far as it is needed."""
        if not 0 <= index < self._count:
            raise IndexError(f"record {index} of {self._count}")
        if index + 1 >= len(self._ends):
            with self._lock:
                self._extend(index + 1)
        return bytes(self._keys[self._ends[index] : self._ends[index + 1]])

    def _extend(self, known: int) -> None:
        missing = known - (len(self._ends) - 1)
        if missing <= 0:  # another thread was faster
            return
        last = bytes(self._keys[self._ends[-2] :]) if len(self._ends) > 1 else None
        for key in itertools.islice(self._walk(last), -(-missing // _WALK) * _WALK):
            self._keys += key
            self._ends.append(len(self._keys))
        if len(self._ends) <= known:
            raise DataError(
                f"{self.path}: holds fewer keys than the {self._count} it announces; "
                "the database is damaged, make it again"
            )

    def record(self, index: int) -> memoryview:
        """The value of record `index`, without a copy; valid as long as this database is kept."""
        value = self._get(self.key(index))
        if value is None:
            raise DataError(f"{self.path}: the record of key {self.key(index)!r} has disappeared")
        return memoryview(value)

    @abstractmethod
    def _walk(self, after: bytes | None) -> Iterator[bytes]:
        """Keys in order, from the one after `after` on, without touching values."""

    @abstractmethod
    def _get(self, key: bytes) -> Any:
        """The value as a buffer, or None."""


_LEAST_NODE = 10  # bytes that the smallest record takes in a file: a node's head and its place


class LmdbDatabase(Database):
    """LMDB: values are views into the memory map.

    The library trusts the file it maps. What can be known beforehand is checked here: the file's
    size, also while it is read, the number of records, and where a value claims to lie.
    """

    def __init__(self, path: str) -> None:
        self._env = _open_environment(path)
        self._local = threading.local()
        file = os.path.join(path, "data.mdb")
        self._descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        last_words.speak_of(lambda one: one.path if isinstance(one, LmdbDatabase) else None)
        super().__init__(path, 0)
        with self._explaining():
            page = self._env.stat()["psize"]
            self._needed = (self._env.info()["last_pgno"] + 1) * page
            self._check_size()
            self._shared = self._env.begin(buffers=True)
            self._count = self._env.stat()["entries"]
            flags = self._env.open_db(txn=self._shared).flags(self._shared)
        if self._count * _LEAST_NODE > self._needed or flags.get("dupsort"):
            raise DataError(f"{path}: is damaged, or not one of Caffe's; make it again")
        self._mapped = last_words.mapped_range(file)

    @contextmanager
    def _explaining(self, key: bytes | None = None) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            raise self._damaged(error, key) from None

    def _damaged(self, error: lmdb.Error, key: bytes | None) -> DataError:
        record = "" if key is None else f", record {key.decode(errors='replace')!r}"
        return DataError(
            f"{self.path}{record}: the database is damaged ({error}); copy it again or make it "
            "again"
        )

    def _check_size(self) -> None:
        found = os.fstat(self._descriptor).st_size
        if found < self._needed:  # reading past the end of the map would kill the process
            raise DataError(
                f"{self.path}: truncated: data.mdb has {found:,} bytes of {self._needed:,}; "
                "copy it again or make it again"
            )

    def _walk(self, after: bytes | None) -> Iterator[bytes]:
        self._check_size()
        with self._explaining(after):
            cursor = self._shared.cursor()
            if after is not None and not (cursor.set_key(after) and cursor.next()):
                return
            for found in cursor.iternext(keys=True, values=False):
                key = bytes(found)
                if after is not None and key <= after:
                    raise lmdb.CorruptedError("keys out of order")
                yield key
                after = key

    def _get(self, key: bytes) -> Any:
        self._check_size()
        try:
            transaction = self._transaction()
            if transaction is not None:
                value = transaction.get(key)
            else:
                with self._lock:
                    value = self._shared.get(key)
            if value is not None and not self._is_mapped(value):
                raise lmdb.CorruptedError("its value lies outside the file")
            return value
        except lmdb.Error as error:
            raise self._damaged(error, key) from None

    def _is_mapped(self, value: memoryview) -> bool:
        if not len(value) or self._mapped is None:
            return bool(len(value) <= self._needed)
        start = np.frombuffer(value, np.uint8).__array_interface__["data"][0]
        return bool(
            self._mapped[0] <= start and start + len(value) <= self._mapped[0] + self._needed
        )

    def _transaction(self) -> Any:
        """This thread's own read transaction; None when the lock file has no slot left for it."""
        if not hasattr(self._local, "transaction"):
            try:
                self._local.transaction = self._env.begin(buffers=True)
            except lmdb.ReadersFullError:
                self._local.transaction = None
        return self._local.transaction


class LevelDatabase(Database):
    """LevelDB, which wants to lock and tidy what it opens: it is given a folder of links instead.

    Table files never change once written, so links to them plus copies of the small bookkeeping
    files are a snapshot: the original stays untouched and any number of processes can read it.
    """

    def __init__(self, path: str) -> None:
        plyvel = import_plyvel(path)
        self._error: type[Exception] = plyvel.Error
        self._folder = tempfile.TemporaryDirectory(prefix="pycaffe_fire-leveldb-")
        for entry in sorted(os.scandir(path), key=lambda e: e.name):
            target = os.path.join(self._folder.name, entry.name)
            if entry.name.endswith((".ldb", ".sst")):
                os.symlink(os.path.realpath(entry.path), target)
            elif entry.name.startswith(("CURRENT", "MANIFEST")) or entry.name.endswith(".log"):
                shutil.copyfile(entry.path, target)
        try:
            # Blocks are checked before the library follows the pointers in them.
            self._db = plyvel.DB(self._folder.name, paranoid_checks=True)
            count = sum(1 for _ in self._iterate())
        except plyvel.Error as error:
            raise DataError(
                f"{path}: cannot be read as LevelDB: {self._reason(error, path)}"
            ) from None
        if not count:  # the library does not tell the two apart
            raise DataError(f"{path}: is empty or damaged; make the database again")
        super().__init__(path, count)

    def _walk(self, after: bytes | None) -> Iterator[bytes]:
        return iter(
            self._iterate(start=after, include_start=False)
            if after is not None
            else self._iterate()
        )

    def _iterate(self, **where: Any) -> Any:
        return self._db.iterator(include_value=False, verify_checksums=True, **where)

    def _get(self, key: bytes) -> Any:
        try:
            return self._db.get(key, verify_checksums=True)
        except self._error as error:
            name = key.decode(errors="replace")
            raise DataError(
                f"{self.path}, record {name!r}: is damaged: {self._reason(error, self.path)}"
            ) from None

    def _reason(self, error: Exception, path: str) -> str:
        text = error.args[0] if error.args else ""
        text = text.decode(errors="replace") if isinstance(text, bytes) else str(error)
        return text.replace(self._folder.name, path)


def import_plyvel(path: str) -> Any:
    """The LevelDB library; `path` is the database it is wanted for."""
    try:
        return importlib.import_module("plyvel")
    except ImportError:
        raise DataError(
            f"{path}: LevelDB needs the plyvel library, which is not installed; "
            f"run: {install_hint('leveldb')}"
        ) from None


def _open_environment(path: str) -> Any:
    try:
        try:
            env = lmdb.open(path, readonly=True, create=False, readahead=False, max_readers=1024)
        except lmdb.Error:
            # Perhaps no lock file can be made: a read-only folder, a file system without locks.
            # If the file itself is bad, the second attempt fails as well and says why.
            env = _open_unlocked(path)
        try:
            env.begin().abort()
        except lmdb.ReadersFullError:
            env.close()
            env = _open_unlocked(path)
    except lmdb.Error as error:
        raise DataError(f"{path}: {_explain(path, error)}") from None
    return env


def _open_unlocked(path: str) -> Any:
    return lmdb.open(path, readonly=True, create=False, readahead=False, lock=False)


def _explain(path: str, error: Exception) -> str:
    file = Path(path) / "data.mdb"
    if isinstance(error, lmdb.InvalidError | lmdb.CorruptedError | lmdb.VersionMismatchError):
        return "data.mdb is not an LMDB file (or is damaged); make the database again"
    if file.exists() and file.stat().st_size == 0:
        return "data.mdb is empty; the program that wrote it did not finish, make it again"
    if not os.access(file, os.R_OK):
        return "data.mdb cannot be read; check its permissions"
    return f"cannot be opened as LMDB: {error}"


def _check_folder(path: str, backend: str) -> None:
    folder = Path(path)
    if not folder.exists():
        raise DataError(
            f"{path}: no such database (looked from {os.getcwd()}); check the path, or make it "
            "with convert_imageset or fire_data"
        )
    if not folder.is_dir():
        raise DataError(f"{path}: is a file; name the folder of the {backend} database")
    kinds = {"LMDB": folder / "data.mdb", "LEVELDB": folder / "CURRENT"}
    if kinds[backend].exists():
        return
    other = "LEVELDB" if backend == "LMDB" else "LMDB"
    if kinds[other].exists():
        raise DataError(f"{path}: is a {other} database; set backend: {other} (not {backend})")
    raise DataError(f"{path}: has no {kinds[backend].name}, so it is not a {backend} database")


# LMDB refuses to open one file twice in a process, and a train and a test net may share theirs.
_open: weakref.WeakValueDictionary[tuple[str, str], Database] = weakref.WeakValueDictionary()
_open_lock = threading.Lock()


def check_backend(path: str, backend: str) -> str:
    """The backend's name in capitals."""
    if backend.upper() not in ("LMDB", "LEVELDB"):
        raise DataError(f'{path}: unknown database backend "{backend}"; known: lmdb, leveldb')
    return backend.upper()


def detect_backend(path: str | os.PathLike[str]) -> str:
    """Which kind of database lies there, for tools that are not told."""
    leveldb = Path(path, "CURRENT").exists() and not Path(path, "data.mdb").exists()
    return "LEVELDB" if leveldb else "LMDB"


def open_database(path: str | os.PathLike[str], backend: str = "LMDB") -> Database:
    """Open for reading; a database already open in this process is shared."""
    name = os.fspath(path)
    backend = check_backend(name, backend)
    identity = (os.path.realpath(name), backend)
    with _open_lock:
        database = _open.get(identity)
        if database is None:
            _check_folder(name, backend)
            database = LmdbDatabase(name) if backend == "LMDB" else LevelDatabase(name)
            if not len(database):
                raise DataError(f"{name}: holds no records; make the database again")
            _open[identity] = database
    return database
