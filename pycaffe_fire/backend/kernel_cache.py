"""Where compiled kernels are kept: the user's cache folder, under names made of what they are.

So an uninstall leaves nothing beside the package, a read-only installation has a cache, and an
upgrade compiles only the kernels that it changes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

PACKAGE = __name__.partition(".")[0]


def cache_folder() -> Path:
    """The user's cache folder for this package, as the platform has it."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "pycaffe_fire"


def kernel_folder() -> Path:
    """Where compiled kernels are kept: there, or where numba's own setting says."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or cache_folder() / "kernels")


@contextlib.contextmanager
def held(path: Path) -> Iterator[bool]:
    """Is the lock `path` ours meanwhile? Else another process, or thread, has it.

    The file goes with the lock. Where the file system knows no locks, everybody has it: then
    kernels may be compiled more than once, with the same result.
    """
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:
        yield True
        return
    try:
        ours = _lock(descriptor)
        yield ours
        if ours:
            with contextlib.suppress(OSError):
                path.unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
    return True


def fingerprint(*things: Any) -> str:
    """Of functions, their code, and all functions and constants of this package that it names."""
    found = hashlib.sha256()
    seen: dict[int, Any] = {}  # kept, so that no two of them have the same id
    waiting = list(reversed(things))
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        text, parts = _describe(thing)
        if not isinstance(thing, (int, float, str, bytes)):
            seen[id(thing)] = thing
        found.update(f"{type(thing).__name__} {text}\0".encode())
        waiting += reversed(list(parts))
    return found.hexdigest()[:24]


def _describe(thing: Any) -> tuple[str, Iterable[Any]]:
    """A thing's own text, and what it is made of."""
    if hasattr(thing, "made_of"):
        return "", thing.made_of()
    if isinstance(thing, FunctionType):
        return "", _function(thing)
    if isinstance(thing, CodeType):
        return f"{thing.co_code.hex()} {thing.co_names}", thing.co_consts
    if isinstance(thing, type) and thing.__module__.startswith(PACKAGE):
        return thing.__qualname__, [v for v in vars(thing).values() if isinstance(v, FunctionType)]
    if isinstance(thing, dict):
        return "", [part for pair in sorted(thing.items()) for part in pair]
    if isinstance(thing, (set, frozenset)):
        return "", sorted(thing, key=repr)
    if isinstance(thing, (list, tuple)):
        return str(len(thing)), thing
    if hasattr(thing, "__name__"):  # a module, a built-in function, another library's class
        return f"{getattr(thing, '__module__', '')}.{thing.__name__}", ()
    return repr(thing), ()


def _function(function: FunctionType) -> Iterator[Any]:
    yield function.__code__
    yield function.__defaults__
    for cell in function.__closure__ or ():
        yield cell.cell_contents
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield function.__globals__[name]


def _names(code: CodeType) -> set[str]:
    inner = [_names(part) for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*inner)


def keep_kernels_in_cache_folder(numba: Any) -> None:
    """Let numba keep what it compiles of this package there, or where NUMBA_CACHE_DIR says."""
    caching = numba.core.caching

    class UserCache(caching._CacheLocator):  # type: ignore[misc, name-defined]
        """numba's interface: where a kernel is kept, and what it depends on."""

        def __init__(self, digest: str) -> None:
            self._digest = digest

        def get_cache_path(self) -> str:
            return numba.config.CACHE_DIR or str(kernel_folder())

        def get_source_stamp(self) -> str:
            return self._digest

        def get_disambiguator(self) -> str:
            return self._digest

        @classmethod
        def from_function(cls, function: Callable[..., Any], file: str) -> UserCache | None:
            digest = getattr(function, "fingerprint", None)
            if digest is None:
                return None  # another package's
            made = cls(digest)
            try:
                made.ensure_cache_path()
            except OSError:
                return None  # numba looks for another place
            return made

    caching.CacheImpl._locator_classes = [UserCache, *caching.CacheImpl._locator_classes]
