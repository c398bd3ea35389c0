"""Writing a database so that it either exists complete or not at all.

Records go to a hidden folder beside the target, which is renamed when everything is on disk; a
killed writer leaves only that folder, and the next writer of the same target removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import lmdb

from ..errors import DataError
from .db import check_backend, import_plyvel

_COMMIT_RECORDS = 1000
_COMMIT_BYTES = 64 << 20
_LMDB_KEY = 511  # bytes a key may have


class _Store(Protocol):
    """A new database in an existing folder."""

    def write(self, records: list[tuple[bytes, bytes]]) -> None:
        """Add records; a key written twice keeps the last value."""

    def close(self) -> None:
        """Hand everything to the operating system; safe to call twice."""


class _LmdbStore:
    def __init__(self, folder: Path) -> None:
        self._map_size = 2 * _COMMIT_BYTES
        self._env: Any = lmdb.open(
            str(folder), map_size=self._map_size, sync=False, metasync=False, lock=False
        )

    def write(self, records: list[tuple[bytes, bytes]]) -> None:
        while True:
            try:
                with self._env.begin(write=True) as transaction:
                    transaction.cursor().putmulti(records)
                return
            except lmdb.MapFullError:  # the transaction is gone; enlarge and write it again
                self._map_size *= 2
                self._env.set_mapsize(self._map_size)

    def close(self) -> None:
        self._env.close()


class _LevelStore:
    """With the block and buffer sizes that Caffe's own writer uses."""

    def __init__(self, folder: Path, name: str) -> None:
        self._db: Any = import_plyvel(name).DB(
            str(folder), create_if_missing=True, block_size=65536, write_buffer_size=_COMMIT_BYTES
        )

    def write(self, records: list[tuple[bytes, bytes]]) -> None:
        with self._db.write_batch() as batch:
            for key, value in records:
                batch.put(key, value)

    def close(self) -> None:
        self._db.close()


class DatabaseWriter:
    """Context manager: `put` records, and the database appears under `path` on a clean exit."""

    def __init__(self, path: str | os.PathLike[str], backend: str = "LMDB") -> None:
        self.path = Path(path)
        self._backend = check_backend(os.fspath(path), backend)
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0
        self._alive: int | None = None

    def __enter__(self) -> DatabaseWriter:
        if self.path.exists():
            raise DataError(f"{self.path}: exists already; delete it or choose another name")
        with self._explaining("cannot be written"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(self.path)
            self._folder = _partial(self.path)
            self._folder.mkdir()
            try:
                with contextlib.suppress(OSError):  # no locks here: nobody tidies up after us
                    self._alive = _lock(self._folder)
                self._store = self._open_store()
            except BaseException:
                self._clean_up()
                raise
        return self

    @property
    def _parent(self) -> Path:
        return self.path.parent

    def _open_store(self) -> _Store:
        if self._backend == "LMDB":
            return _LmdbStore(self._folder)
        return _LevelStore(self._folder, str(self.path))

    @contextlib.contextmanager
    def _explaining(self, what: str) -> Any:
        try:
            yield
        except DataError:
            raise
        except (OSError, lmdb.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"{self.path}: {what}: {reason}; check folder and space") from None
        except Exception as error:  # plyvel's own, which is there only if plyvel is
            if type(error).__module__.partition(".")[0] != "plyvel":
                raise
            raise DataError(f"{self.path}: {what}: {error}") from None

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record; a key written twice keeps the last value."""
        if self._backend == "LMDB" and len(key) > _LMDB_KEY:
            raise DataError(
                f"{self.path}: the key {key[:80]!r}... has {len(key)} bytes, LMDB takes "
                f"{_LMDB_KEY}; use shorter paths or leveldb"
            )
        self._pending.append((key, value))
        self._pending_bytes += len(key) + len(value)
        if len(self._pending) >= _COMMIT_RECORDS or self._pending_bytes >= _COMMIT_BYTES:
            self._commit()

    def _commit(self) -> None:
        if self._pending:
            with self._explaining("writing failed"):
                self._store.write(self._pending)
            self._pending.clear()
            self._pending_bytes = 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._store.close()
            self._clean_up()

    def _clean_up(self) -> None:
        if self._alive is not None:
            os.close(self._alive)
        shutil.rmtree(self._folder, ignore_errors=True)  # gone already when it was renamed

    def _finish(self) -> None:
        self._commit()
        with self._explaining("writing failed"):
            self._store.close()
            (self._folder / _OWNER).unlink(missing_ok=True)
            for file in self._folder.iterdir():
                _sync(file)
            _sync(self._folder)
            self._folder.rename(self.path)
            _sync(self._parent)


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A hidden folder to fill, which takes the name `path` at the end and vanishes on an error."""
    final = Path(path)
    if final.exists():
        raise DataError(f"{final}: exists already; delete it or choose another name")
    partial, alive = _partial(final), None
    try:
        final.absolute().parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(final)
        partial.mkdir()
        with contextlib.suppress(OSError):  # no locks here: nobody tidies up after us
            alive = _lock(partial)
        yield partial
        (partial / _OWNER).unlink(missing_ok=True)
        _sync(partial)
        partial.rename(final)
    except OSError as error:
        raise DataError(
            f"{final}: cannot be written: {error.strerror}; check folder and space"
        ) from None
    finally:
        if alive is not None:
            os.close(alive)
        shutil.rmtree(partial, ignore_errors=True)  # gone already when it was renamed


def _partial(path: Path) -> Path:
    return path.parent / f".{path.name}.{uuid.uuid4().hex}.partial"


def _remove_leftovers(path: Path) -> None:
    """Delete what writers of the same target left when they were killed."""
    for folder in path.parent.glob(f".{path.name}.*.partial"):
        with contextlib.suppress(OSError):  # locked: its writer is alive and keeps it
            os.close(_lock(folder))
            shutil.rmtree(folder, ignore_errors=True)


_OWNER = "owner"  # locked by a living writer, so that a dead one's folder can be told apart


def _lock(folder: Path) -> int:
    descriptor = os.open(folder / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
