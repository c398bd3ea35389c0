"""pycaffe's forward_all and forward_backward_all: arrays of any length, one batch after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.tensor import Array
from ..errors import ArgumentError

if TYPE_CHECKING:
    from .net import Arrays, Net


class Collector:
    """Copies of named arrays, batch by batch, and at the end each as one array."""

    def __init__(self, names: Iterable[str], size: int) -> None:
        self._size = size
        self._parts: dict[str, list[Array]] = {name: [] for name in names}

    def add(self, batch: Arrays) -> None:
        for name, array in batch.items():
            self._parts[name].append(np.array(array))

    def all(self, count: int | None) -> Arrays:
        """The first `count` samples of each (None: all); what has no samples, one per batch."""
        return {name: self._joined(parts, count) for name, parts in self._parts.items()}

    def _joined(self, parts: list[Array], count: int | None) -> Array:
        if all(part.ndim and len(part) == self._size for part in parts):
            return np.concatenate(parts)[:count] if parts else np.empty(0, np.float32)
        return np.stack(parts)


def forward_all(net: Net, blobs: Sequence[str] | None, inputs: dict[str, Any]) -> Arrays:
    _require(net, inputs, net.inputs, "inputs")
    outs = Collector({*net.outputs, *(blobs or ())}, batch_size(net))
    _check_shapes(net, inputs)
    for batch in batches_of(net, inputs):
        outs.add(net.forward(blobs=blobs, **batch))
    return outs.all(_length(inputs))


def forward_backward_all(
    net: Net, blobs: Sequence[str] | None, diffs: Sequence[str] | None, arrays: dict[str, Any]
) -> tuple[Arrays, Arrays]:
    _require(net, arrays, [*net.inputs, *net.outputs], "inputs and outputs")
    count = _length(arrays)
    _check_shapes(net, arrays)
    forward = {name: arrays[name] for name in net.inputs if name in arrays}
    backward = {name: arrays[name] for name in net.outputs if name in arrays}
    size = batch_size(net)
    outs = Collector({*net.outputs, *(blobs or ())}, size)
    grads = Collector({*net.inputs, *(diffs or ())}, size)
    nothing: Arrays = {}
    pairs = zip_longest(batches_of(net, forward), batches_of(net, backward), fillvalue=nothing)
    for ins, tops in pairs:
        outs.add(net.forward(blobs=blobs, **ins))
        grads.add(net.backward(diffs=diffs, **tops))
    return outs.all(count), grads.all(count)


def batch_size(net: Net) -> int:
    """How many samples the net takes at once, as its first blob has it."""
    return next(iter(net.blobs.values())).num if net.blobs else 0


def _require(net: Net, arrays: dict[str, Any], known: Sequence[str], what: str) -> None:
    if not arrays or not set(arrays) <= set(known):
        raise ArgumentError(
            f"expects arrays for the net's {what} ({', '.join(known) or 'it has none'}), got "
            f"{', '.join(arrays) or 'none'}"
        )


def _check_shapes(net: Net, arrays: dict[str, Any]) -> None:
    """Refuse an array by the shape that the caller knows, not by that of a batch of it."""
    for name, array in arrays.items():
        sample, given = net.blobs[name].shape[1:], np.shape(array)
        if np.prod(sample) != np.prod(given[1:]):
            raise ArgumentError(
                f'array "{name}" has shape {list(given)}, but a sample of blob "{name}" is '
                f"{list(sample)}: give [N, {', '.join(map(str, sample))}], or reshape the blob"
            )


def _length(arrays: dict[str, Any]) -> int:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ArgumentError(f"arrays must have the same number of samples, got {listed}")
    return next(iter(lengths.values()))


def batches_of(net: Net, arrays: dict[str, Any]) -> Iterator[dict[str, Array]]:
    """Batches of the net's size; zeros fill up the last one."""
    if not arrays:
        return
    size, count = batch_size(net), _length(arrays)
    whole = {name: np.asarray(array) for name, array in arrays.items()}
    for start in range(0, count, size):
        batch = {name: array[start : start + size] for name, array in whole.items()}
        short = size - (min(start + size, count) - start)
        if short:
            batch = {
                name: np.concatenate([part, np.zeros((short, *part.shape[1:]), part.dtype)])
                for name, part in batch.items()
            }
        yield batch
