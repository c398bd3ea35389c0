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
from pathlib import Path
from types import TracebackType
from typing import Any

import lmdb

from pycaffe_fire.errors import DataError

_COMMIT_RECORDS = 1000
_COMMIT_BYTES = 64 << 20


class DatabaseWriter:
    """Context manager: `put` records, and the LMDB appears under `path` on a clean exit."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0
        self._map_size = 2 * _COMMIT_BYTES
        self._alive: int | None = None

    def __enter__(self) -> DatabaseWriter:
        if self.path.exists():
            raise DataError(f"{self.path}: exists already; delete it or choose another name")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()
            self._folder = self._parent / f".{self.path.name}.{uuid.uuid4().hex}.partial"
            self._folder.mkdir()
            with contextlib.suppress(OSError):  # no locks here: then nobody tidies up after us
                self._alive = _lock(self._folder)
            self._env: Any = lmdb.open(
                str(self._folder), map_size=self._map_size, sync=False, metasync=False, lock=False
            )
        except (OSError, lmdb.Error) as error:
            raise DataError(f"{self.path}: cannot be written: {error}") from None
        return self

    @property
    def _parent(self) -> Path:
        return self.path.parent

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record; a key written twice keeps the last value."""
        self._pending.append((key, value))
        self._pending_bytes += len(key) + len(value)
        if len(self._pending) >= _COMMIT_RECORDS or self._pending_bytes >= _COMMIT_BYTES:
            self._commit()

    def _commit(self) -> None:
        while self._pending:
            try:
                with self._env.begin(write=True) as transaction:
                    transaction.cursor().putmulti(self._pending)
                self._pending.clear()
                self._pending_bytes = 0
            except lmdb.MapFullError:  # the transaction is gone; enlarge and write it again
                self._map_size *= 2
                self._env.set_mapsize(self._map_size)
            except lmdb.Error as error:
                raise DataError(f"{self.path}: writing failed: {error}") from None

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
            self._env.close()
            if self._alive is not None:
                os.close(self._alive)
            shutil.rmtree(self._folder, ignore_errors=True)  # gone already when it was renamed

    def _finish(self) -> None:
        self._commit()
        try:
            self._env.sync(True)
            self._env.close()
            (self._folder / _OWNER).unlink(missing_ok=True)
            _sync_folder(self._folder)
            self._folder.rename(self.path)
            _sync_folder(self._parent)
        except (OSError, lmdb.Error) as error:
            raise DataError(f"{self.path}: writing failed: {error}") from None

    def _remove_leftovers(self) -> None:
        for folder in self._parent.glob(f".{self.path.name}.*.partial"):
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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
