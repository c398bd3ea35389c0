"""Weights in and out of a net: copied by layer name; all that does not fit is named at once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike

from .. import schema
from ..backend.blob import Blob
from ..backend.tensor import Array
from ..errors import WeightsError
from ..layers import Layer
from .wiring import Wiring

log = logging.getLogger("pycaffe_fire")

REMEDY = (
    "To train such a layer from scratch, rename it in the prototxt; to copy only what fits, use "
    "--ignore-mismatch (in Python: ignore_mismatch=True)"
)


def copy_weights(
    net: Wiring,
    paths: Iterable[str | PathLike[str]],
    ignore_mismatch: bool,
    allow_empty: bool = False,
) -> None:
    """Copy all files that fit, later ones over earlier ones, or nothing if anything does not.

    With `ignore_mismatch` blobs that do not fit stay as they are, with a warning. A file of which
    nothing belongs to this net is an error unless `allow_empty`.
    """
    sources = ((path, schema.read_weights(path)) for path in paths)
    copy_layer_weights(net, sources, ignore_mismatch, allow_empty)


def copy_layer_weights(
    net: Wiring,
    sources: Iterable[tuple[str | PathLike[str], Iterable[schema.LayerWeights]]],
    ignore_mismatch: bool = False,
    allow_empty: bool = False,
) -> None:
    """`copy_weights` for what has been read already; a source is its name and its layers."""
    layers = {layer.name: layer for layer in reversed(net.layers)}
    fitting: list[tuple[Blob, Array]] = []
    problems: list[str] = []
    for path, found in sources:
        strange = True
        for source in found:
            layer = layers.get(source.name)
            if layer is None:
                log.info("Ignoring source layer %s", source.name)
            elif source.blobs:
                strange = False
                fitting += _fitting(layer, source.blobs)
                problems += [f"{path}: {text}" for text in _misfits(layer, source.blobs)]
        if strange and any(layer.blobs for layer in net.layers):
            _tell_strange(f"{path}: no layer with weights has a name of this net's", allow_empty)
    if problems and not ignore_mismatch:
        raise WeightsError("\n  ".join(["these weights do not fit the net:", *problems, REMEDY]))
    if problems:
        log.warning("%s", "\n  ".join(["left out, because they do not fit the net:", *problems]))
    for blob, array in fitting:
        net.backend.host_view(blob).data[...] = array.reshape(blob.shape)


def _tell_strange(what: str, allowed: bool) -> None:
    if not allowed:
        raise WeightsError(
            f"{what}, so nothing would be copied; is it another net's file? To go on without it, "
            f"use --allow-empty-weights (in Python: allow_empty=True)"
        )
    log.warning("%s: nothing is copied", what)


def save_weights(net: Wiring, path: str, diffs: bool) -> None:
    """Write all weights to a .caffemodel (or .h5), with the net as it runs."""
    schema.write_weights(path, net.param, layer_weights(net, diffs), diffs)


def layer_weights(net: Wiring, diffs: bool = False) -> list[schema.LayerWeights]:
    """Every layer with its weight arrays, for writing."""
    faces = [[net.backend.host_view(blob) for blob in layer.blobs] for layer in net.layers]
    return [
        schema.LayerWeights(
            layer.name, layer.type, [b.data for b in blobs], [b.diff for b in blobs if diffs]
        )
        for layer, blobs in zip(net.layers, faces, strict=True)
    ]


def _fitting(layer: Layer, arrays: Sequence[Array]) -> Iterator[tuple[Blob, Array]]:
    for blob, array in zip(layer.blobs, arrays, strict=False):
        if _fits(array.shape, blob.shape):
            yield blob, array


def _misfits(layer: Layer, arrays: Sequence[Array]) -> Iterator[str]:
    if len(layer.blobs) != len(arrays):
        yield (
            f'layer "{layer.name}": {len(arrays)} weight blob(s) in the file, '
            f"{len(layer.blobs)} in the net"
        )
    for i, (blob, array) in enumerate(zip(layer.blobs, arrays, strict=False)):
        elsewhere = not array.size and blob.count  # HDF5 leaves out blobs that another layer owns
        if not elsewhere and not _fits(array.shape, blob.shape):
            yield (
                f'layer "{layer.name}" blob {i}: {list(array.shape)} in the file, '
                f"{list(blob.shape)} in the net"
            )


def _fits(file: tuple[int, ...], net: tuple[int, ...]) -> bool:
    """Equal shapes; leading ones of legacy 4-D blobs (1 x 1 x N x K) do not count, nor those of a
    single number, which Caffe writes without any shape."""

    def core(shape: tuple[int, ...]) -> tuple[int, ...]:
        while shape and shape[0] == 1:
            shape = shape[1:]
        return shape

    return file == net or ((len(file) == 4 or file == (1,)) and core(file) == core(net))
