"""Weights, solver states and mean files: what Caffe writes is read, and Caffe reads what we write.

Files are recognized by their contents when read; a name that ends in .h5 asks for HDF5 when
written. h5py is only loaded for those, since it takes longer than reading a small net.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from os.path import exists
from typing import TypeVar

from ..errors import WeightsError
from . import binary
from .binary import read_blob, write_blob
from .files import HDF5_SIGNATURE, read_head
from .proto import NetParameter
from .records import LayerWeights, SolverStateFile

__all__ = [
    "LayerWeights",
    "SolverStateFile",
    "read_blob",
    "read_state",
    "read_weights",
    "write_blob",
    "write_state",
    "write_weights",
]

T = TypeVar("T")


def read_weights(path: str | PathLike[str]) -> list[LayerWeights]:
    """All layers in a .caffemodel of any age or a .caffemodel.h5, those without blobs too."""
    try:
        return _read_weights(path)
    except WeightsError:
        state = _if_good(lambda: _read_state(path, history=True))
        if state is None:
            raise
    weights = f", or give its weights {state.learned_net}" if state.learned_net else ""
    raise WeightsError(
        f"{fspath(path)} is a solver state, not weights; resume from it with --snapshot{weights}"
    )


def read_state(path: str | PathLike[str], history: bool = True) -> SolverStateFile:
    """A .solverstate or .solverstate.h5; quicker without its history."""
    try:
        return _read_state(path, history)
    except WeightsError:
        if not _if_good(lambda: _read_weights(path)):
            raise
    state = fspath(path).replace(".caffemodel", ".solverstate")
    beside = f", or resume from {state}" if state != fspath(path) and exists(state) else ""
    raise WeightsError(
        f"{fspath(path)} holds weights, not a solver state; start from them with --weights{beside}"
    )


def write_weights(
    path: str | PathLike[str],
    net: NetParameter,
    layers: list[LayerWeights],
    diffs: bool = False,
    half: bool = False,
) -> None:
    """Writes the net's layers, each with the blobs given under its name and, if asked, their
    diffs; completely or not at all. Blobs in `net` itself are not looked at. With `half` a
    .caffemodel holds 16 bits a number, which only NVIDIA Caffe and we read."""
    by_name = {layer.name: layer for layer in layers}
    unknown = by_name.keys() - {layer.name for layer in net.layer}
    if unknown:
        names = ", ".join(sorted(unknown))
        raise WeightsError(f"{fspath(path)}: weights for layers the net does not have: {names}")
    for layer in layers:
        if diffs and len(layer.diffs) != len(layer.blobs):
            counts = f"{len(layer.blobs)} blobs and {len(layer.diffs)} diffs"
            raise WeightsError(f'{fspath(path)}: layer "{layer.name}" has {counts}')
    if fspath(path).endswith(".h5"):
        from . import hdf5

        blank = [LayerWeights(layer.name, layer.type, []) for layer in net.layer]
        hdf5.write_weights(path, [by_name.get(layer.name, layer) for layer in blank], diffs)
        return
    binary.write_weights(path, net, by_name, diffs, half)


def write_state(path: str | PathLike[str], state: SolverStateFile) -> None:
    """Writes a .solverstate or .solverstate.h5."""
    if fspath(path).endswith(".h5"):
        from . import hdf5

        hdf5.write_state(path, state)
        return
    binary.write_state(path, state)


def _read_weights(path: str | PathLike[str]) -> list[LayerWeights]:
    if _is_hdf5(path, ".caffemodel"):
        from . import hdf5

        return hdf5.read_weights(path)
    return binary.read_weights(path)


def _read_state(path: str | PathLike[str], history: bool) -> SolverStateFile:
    if _is_hdf5(path, ".solverstate"):
        from . import hdf5

        return hdf5.read_state(path, history)
    return binary.read_state(path, history)


def _if_good(read: Callable[[], T]) -> T | None:
    """What a file holds if it is of the other kind: the error can then name the mistake."""
    try:
        return read()
    except WeightsError:
        return None


def _is_hdf5(path: str | PathLike[str], what: str) -> bool:
    return read_head(path, WeightsError, what).startswith(HDF5_SIGNATURE)
