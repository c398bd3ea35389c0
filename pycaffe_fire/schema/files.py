"""Files on disk: recognizing what one is, and writing one completely or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import FireError

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"

# First bytes of files that people hand over by mistake.
_SIGNATURES = (
    (HDF5_SIGNATURE, "an HDF5 file"),
    (b"version https://git-lfs", "a git-lfs pointer (run `git lfs pull` to fetch the real file)"),
    (b"PK\x03\x04", "a zip archive (.npz or PyTorch)"),
    (b"\x1f\x8b", "a gzip archive (unpack it first)"),
    (b"BZh", "a bzip2 archive (unpack it first)"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x03", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"%PDF", "a PDF"),
)

# What `replacing` puts before a name while it writes; where it is used twice, twice.
_TEMPORARY = re.compile(r"^(\.\d+(-[0-9a-f]{16})?\.tmp\.)+")


def describe(head: bytes) -> str:
    """What a file with these first bytes looks like, for use after 'looks like'."""
    known = _signature(head)
    if known:
        return known
    if is_text(head):
        return "a prototxt" if b"{" in head or b":" in head else "a text file"
    # Caffe's messages give themselves away by the tags of their first fields.
    if head[:1] == b"\x08":
        second = _skip_small_varint(head)
        return "a .solverstate" if second in (b"\x12", b"\x1a", b"\x20") else "a BlobProto or Datum"
    if head[:1] in (b"\x0a", b"\x12", b"\xa2"):
        return "a .caffemodel"
    return "binary data of another kind"


def is_foreign(head: bytes) -> bool:
    """Whether a file with these first bytes cannot be a protobuf message of Caffe's."""
    return bool(_signature(head)) or is_text(head)


def _signature(head: bytes) -> str:
    if not head:
        return "an empty file"
    for signature, what in _SIGNATURES:
        if head.startswith(signature):
            return what
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1000].lower()
    if text.startswith(b"<") and (b"<html" in text or b"<!doctype" in text):
        return "an HTML page (a download that went wrong?)"
    return ""


def is_text(head: bytes) -> bool:
    """Whether these bytes could be a prototxt in any encoding that extends ASCII."""
    return not any(byte < 32 and byte not in b"\t\n\v\f\r\x1b" for byte in head)


def _skip_small_varint(head: bytes) -> bytes:
    """The tag byte after a varint field with a one-byte tag."""
    at = 1
    while at < len(head) and head[at] & 0x80:
        at += 1
    return head[at + 1 : at + 2]


def read_head(path: str | os.PathLike[str], error: type[FireError], what: str) -> bytes:
    """The first bytes of an existing regular file; anything else is `error`."""
    name = os.fspath(path)
    if os.path.isdir(name):
        raise error(f"{name}: is a directory; give the {what} file itself")
    if os.path.exists(name) and not os.path.isfile(name):
        # Opening a pipe would wait for its writer.
        raise error(f"{name}: is not a regular file")
    try:
        with open(name, "rb") as file:
            return file.read(4096)
    except FileNotFoundError:
        raise error(f"{name}: no such file; give the path of a {what} file") from None
    except OSError as problem:
        raise error(f"{name}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:  # a zero character
        raise error(f"{name!r}: is not the name of a file: {problem}") from None


@contextmanager
def replacing(path: str | os.PathLike[str], error: type[FireError]) -> Iterator[Path]:
    """A temporary path to write to; on success it is synced and takes `path`'s place at once.

    Its name ends as `path` does. Where `path` is itself such a name, errors name the file that is
    meant in the end.
    """
    final = Path(path)
    temporary: Path | None = None
    try:
        temporary = new_file_beside(final)
        yield temporary
        _sync(temporary)
        os.replace(temporary, final)
        with suppress(OSError):  # not every file system lets folders be synced
            _sync(final.parent)
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno else problem
        meant = final.with_name(meant_by(final.name))
        raise error(f"{meant}: cannot be written: {reason}; check folder and space") from problem
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def new_file_beside(final: Path) -> Path:
    """A new, empty file to write in the place of another; nobody can have guessed its name."""
    name = f".{os.getpid()}-{secrets.token_hex(8)}.tmp.{final.name}"
    temporary = final.with_name(name)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    os.close(os.open(temporary, flags, 0o666))
    return temporary


def meant_by(name: str) -> str:
    """The name of the file that is written under a temporary name; other names stay as they are."""
    return _TEMPORARY.sub("", name)


def _sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: str | os.PathLike[str], error: type[FireError]) -> str:
    """The SHA-256 of a file's bytes."""
    found = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                found.update(chunk)
    except OSError as problem:
        raise error(f"{os.fspath(path)}: cannot be read: {problem.strerror}") from problem
    return found.hexdigest()
