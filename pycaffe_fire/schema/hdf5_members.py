"""What may be read of an HDF5 file: what lies in the file itself, and no more of it than is there.

Links and storage in other files would let a file name any other on the machine; datasets that claim
more than was ever written would fill the memory with nothing.
"""

from __future__ import annotations

import os
from typing import Any

import h5py

_BEST_COMPRESSION = 1100  # deflate cannot shrink data further than this
_CHECKSUM = 4  # bytes of fletcher32
_ROOM = 64 << 20  # bytes that anything may take


class MemberError(Exception):
    """Something in an HDF5 file that is not read; readers turn it into a user's error."""


def member(group: Any, name: str) -> Any:
    """The group or dataset of this name, None if there is none; a MemberError if it lies in
    another file."""
    found = group
    for part in filter(None, name.split("/")):
        if not isinstance(found, h5py.Group):
            return None
        link = found.get(part, getlink=True)
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise MemberError(f'"{name}" is a link to another place, which is not followed')
        found = found[part]
    if isinstance(found, h5py.Dataset):
        if found.external or found.is_virtual:
            raise MemberError(f'dataset "{name}" lies in other files, which are not read')
        check_claim(found)
    return found


def check_claim(dataset: Any) -> None:
    """A MemberError if a dataset claims to hold what cannot be in the file."""
    stored = dataset.id.get_storage_size() * (_BEST_COMPRESSION if dataset.chunks else 1)
    if (dataset.size or 0) * dataset.dtype.itemsize > stored:
        raise MemberError(f'"{dataset.name}" claims more than the file holds')
    if dataset.fletcher32:
        dataset.id.chunk_iter(lambda chunk: _check_chunk(dataset, chunk.size))


def _check_chunk(dataset: Any, size: int) -> None:
    """libhdf5 (2.0) takes the checksum off the end of a chunk without looking whether it is there,
    and reads what lies before the chunk in memory."""
    if size <= _CHECKSUM:
        raise MemberError(f'"{dataset.name}" has a chunk of {size} bytes, too few for its checksum')


def room_for(path: str) -> int:
    """How many bytes may be made of a file when all of it is loaded."""
    return 4 * os.path.getsize(path) + _ROOM
