"""Caffe's HDF5 forms of weights (/data/<layer>/<index>) and solver states (/history/<index>)."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np

from ..errors import WeightsError
from .files import replacing
from .hdf5_members import MemberError, member, room_for
from .records import NO_LOSS, LayerWeights, SolverStateFile
from .wire import Floats

T = TypeVar("T")
PathLike = str | os.PathLike[str]

_MAX_DEPTH = 32


def read_weights(path: PathLike) -> list[LayerWeights]:
    """All layers in a .caffemodel.h5."""

    def read(file: Any) -> list[LayerWeights]:
        group = _child(file, "data", h5py.Group, "weights")
        return [LayerWeights(name, "", _arrays(g)) for name, g in _layers(group, "", 0)]

    return _opened(path, read)


def read_state(path: PathLike, history: bool) -> SolverStateFile:
    """A .solverstate.h5; without its history if that is not wanted."""

    def read(file: Any) -> SolverStateFile:
        iteration, step = (
            int(np.ravel(_stored(_child(file, name, h5py.Dataset, "a solver state")))[0])
            for name in ("iter", "current_step")
        )
        group = _child(file, "history", h5py.Group, "a solver state")
        net = _stored(_own(file, "learned_net")) if "learned_net" in file else b""
        learned_net = net.decode("utf-8", "replace") if isinstance(net, bytes) else str(net)
        extra = bytes(_stored(_own(file, "fire_extra"))) if "fire_extra" in file else b""
        arrays = _arrays(group) if history else []
        loss, event = (
            np.ravel(_stored(_own(file, name)))[0] if name in file else default
            for name, default in (("minimum_loss", NO_LOSS), ("iter_last_event", 0))
        )
        return SolverStateFile(iteration, learned_net, arrays, step, extra, float(loss), int(event))

    return _opened(path, read)


def write_weights(path: PathLike, layers: list[LayerWeights], diffs: bool) -> None:
    """Writes a .caffemodel.h5; every layer has a group, as in Caffe."""
    with replacing(path, WeightsError) as temporary, _created(temporary) as file:
        file.create_group("data")
        for layer in layers:
            try:
                _write_arrays(file.require_group(f"data/{layer.name}"), layer.blobs)
                if diffs:
                    _write_arrays(file.require_group(f"diff/{layer.name}"), layer.diffs)
            except (ValueError, TypeError):
                raise WeightsError(
                    f'{os.fspath(path)}: HDF5 cannot hold a layer named "{layer.name}" beside the '
                    "others; rename it or write a .caffemodel"
                ) from None


def write_state(path: PathLike, state: SolverStateFile) -> None:
    """Writes a .solverstate.h5."""
    with replacing(path, WeightsError) as temporary, _created(temporary) as file:
        file["iter"] = np.array([state.iter], np.int32)
        # Caffe reads it as a C string: the final zero is part of the type.
        name = state.learned_net.encode()
        file["learned_net"] = np.array(name, f"S{len(name) + 1}")
        file["current_step"] = np.array([state.current_step], np.int32)
        if state.minimum_loss != NO_LOSS:
            file["minimum_loss"] = np.array([state.minimum_loss], np.float32)
            file["iter_last_event"] = np.array([state.iter_last_event], np.int32)
        _write_arrays(file.create_group("history"), state.history)
        if state.extra:
            file["fire_extra"] = np.frombuffer(state.extra, np.uint8)


class _Sink:
    """A file for the HDF5 library to write. The library does not survive a write that fails: it
    crashes the process later. So it never hears of one; `error` is the first."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell
        self.read, self.readinto = file.read, file.readinto
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left and self.error is None:
                left = left[self._file.write(left) :]
        except OSError as error:
            self.error = error
        return size

    def truncate(self, size: int) -> int:
        try:
            return self._file.truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size

    def flush(self) -> None:
        """Nothing is held back."""


@contextmanager
def _created(path: Path) -> Iterator[Any]:
    """A new HDF5 file; whatever could not be written of it is an OSError when it is closed."""
    with io.FileIO(path, "w+") as file:
        sink = _Sink(file)
        try:
            with h5py.File(sink, "w") as made:
                yield made
        finally:
            if sink.error is not None:
                raise sink.error


def _opened(path: PathLike, read: Callable[[Any], T]) -> T:
    name = os.fspath(path)
    try:
        with h5py.File(name, "r") as file:
            return read(file)
    except (WeightsError, MemberError) as problem:
        raise WeightsError(f"{name}: {problem}") from None
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, IndexError) as problem:
        reason = " ".join(str(problem).split())
        raise WeightsError(f"{name}: a damaged HDF5 file: {reason}") from None


def _child(group: Any, name: str, kind: type, what: str) -> Any:
    child = member(group, name)
    if not isinstance(child, kind):
        raise WeightsError(f'an HDF5 file, but not {what}: there is no "{name}" in it')
    return child


def _layers(group: Any, prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Groups that stand for layers. A slash in a layer's name makes groups within groups, so a
    group that holds only groups is part of a name."""
    if depth > _MAX_DEPTH:
        raise WeightsError("groups are nested too deep for layer names")
    for name in _names(group):
        child = _own(group, name)
        if not isinstance(child, h5py.Group):
            continue
        inner = [key for key in _names(child) if isinstance(_own(child, key), h5py.Group)]
        if len(inner) < len(child) or not inner:
            yield prefix + name, child
        if inner:
            yield from _layers(child, f"{prefix}{name}/", depth + 1)


def _arrays(group: Any) -> list[Floats]:
    """Datasets 0, 1, ...; a gap is a blob that another layer owns."""
    indices = sorted(int(name) for name in _names(group) if name.isdecimal())
    if indices and indices[-1] > 2 * len(group) + 1000:
        raise WeightsError(f'"{group.name}" has no blobs before number {indices[-1]}')
    missing: Floats = np.empty(0, np.float32)
    arrays = [missing] * (indices[-1] + 1 if indices else 0)
    for i in indices:
        arrays[i] = np.asarray(_stored(_own(group, str(i))), np.float32)
    return arrays


def _names(group: Any) -> list[str]:
    names = list(group)
    if not all(isinstance(name, str) for name in names):  # h5py gives bytes that are no UTF-8
        raise WeightsError(f'a damaged HDF5 file: a name in "{group.name}" is no text')
    return names


def _own(group: Any, name: str) -> Any:
    found = member(group, name)
    if found is None:
        raise WeightsError(f'there is no "{name}" in "{group.name}"')
    return found


def _stored(dataset: Any) -> Any:
    """A dataset's value, unless it is far larger than the file that it is in."""
    if not isinstance(dataset, h5py.Dataset):
        raise WeightsError(f'"{dataset.name}" is not a dataset')
    if dataset.size * max(4, dataset.dtype.itemsize) > room_for(dataset.file.filename):
        raise WeightsError(f'"{dataset.name}" is compressed to a fraction; unpack it with h5repack')
    return dataset[()]


def _write_arrays(group: Any, arrays: list[Floats]) -> None:
    for i, array in enumerate(arrays):
        group.create_dataset(str(i), data=np.asarray(array, np.float32))
