"""Where compiled kernels are kept: the user's cache folder, under a name made of their source.

So an uninstall leaves nothing beside the package, a read-only installation has a cache, and an
upgrade that changes no kernel compiles nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
# Kernels everywhere in the package are made of these.
SHARED = ("backend/compiled.py", "backend/random.py", "backend/kernels/*.py")


def cache_folder() -> Path:
    """The user's cache folder for this package, as the platform has it."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "pycaffe_fire"


@cache
def digest(file: Path) -> str:
    """Of all source that kernels in `file` may be compiled from."""
    files = {file, *(path for pattern in SHARED for path in PACKAGE.glob(pattern))}
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def keep_kernels_in_cache_folder(numba: Any) -> None:
    """Let numba keep what it compiles of this package there, unless NUMBA_CACHE_DIR is set."""
    if numba.config.CACHE_DIR:
        return
    caching = numba.core.caching

    class UserCache(caching._CacheLocator):  # type: ignore[misc, name-defined]
        """numba's interface: where the kernels of one file are, and what they depend on."""

        def __init__(self, function: Callable[..., Any], file: Path) -> None:
            self._file, self._line = file, function.__code__.co_firstlineno

        def get_cache_path(self) -> str:
            return str(cache_folder() / "kernels" / f"{self._file.stem}-{digest(self._file)}")

        def get_source_stamp(self) -> str:
            return digest(self._file)

        def get_disambiguator(self) -> str:
            return str(self._line)

        @classmethod
        def from_function(cls, function: Callable[..., Any], file: str) -> UserCache | None:
            path = Path(file).resolve()
            if not path.is_relative_to(PACKAGE) or not path.exists():
                return None
            made = cls(function, path)
            try:
                made.ensure_cache_path()
            except OSError:
                return None  # numba looks for another place
            return made

    caching.CacheImpl._locator_classes = [UserCache, *caching.CacheImpl._locator_classes]
