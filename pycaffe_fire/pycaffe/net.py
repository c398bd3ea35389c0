"""pycaffe's Net: names, forward and backward by layer name, batches, arrays as input."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .. import schema
from ..backend.base import Backend
from ..backend.blob import Blob
from ..backend.tensor import Array
from ..errors import ArgumentError, BlobNameError
from ..layers import Context, Layer
from ..layers.memory_data import MemoryData
from ..net.net import Hook
from ..net.net import Net as CoreNet
from ..net.weights import layer_weights
from ..net.wiring import Wiring
from ..registry import did_you_mean
from . import batches, notebook
from .settings import default_backend, new_context
from .sharing import share_weights

Arrays = dict[str, Array]


class Net(CoreNet):
    """A net built from a prototxt file (or a NetParameter), as pycaffe's scripts use it.

    `Net(file, phase)`, `Net(file, phase, level, stages, weights)` and pycaffe's old `Net(file,
    weights, phase)` all work. `blobs` and `params` map names to blobs whose `data` and `diff` are
    arrays. Without a backend and a context the process-wide settings decide.
    """

    def __init__(
        self,
        network_file: Any,
        phase: Any = None,
        level: int = 0,
        stages: Iterable[str] | None = None,
        weights: str | os.PathLike[str] | None = None,
        *,
        backend: Backend | None = None,
        context: Context | None = None,
        lender: Wiring | None = None,
        source: str = "",
    ) -> None:
        if isinstance(phase, str | os.PathLike):  # the old order: file, weights, phase
            phase, weights, level = level, phase, 0
        if isinstance(network_file, str | os.PathLike):
            source = os.fspath(network_file)
            param = schema.read_net(source)
        else:
            param = network_file if context else _own_copy(network_file)
        if phase is not None:
            param.state.phase = phase
            param.state.level = level
            param.state.stage.extend(stages or ())
        super().__init__(
            param, backend or default_backend(), context or new_context(), lender, source
        )
        if weights:
            self.copy_from(weights)
        if lender is None:  # whose weights change with every step of its training
            self.plan_inference()

    # Names.

    @cached_property
    def layer_dict(self) -> OrderedDict[str, Layer]:
        return OrderedDict((layer.name, layer) for layer in self.layers)

    @cached_property
    def bottom_names(self) -> OrderedDict[str, list[str]]:
        """The names of every layer's bottoms."""
        return self._blob_names_of(self.bottoms)

    @cached_property
    def top_names(self) -> OrderedDict[str, list[str]]:
        """The names of every layer's tops."""
        return self._blob_names_of(self.tops)

    def _blob_names_of(self, blobs: list[list[Blob]]) -> OrderedDict[str, list[str]]:
        pairs = zip(self.layers, blobs, strict=True)
        return OrderedDict((layer.name, [blob.name for blob in each]) for layer, each in pairs)

    @property
    def blob_loss_weights(self) -> OrderedDict[str, float]:
        """How much every blob counts in the loss."""
        weights = OrderedDict.fromkeys(self.blobs, 0.0)
        for layer, top in zip(self.layers, self.tops, strict=True):
            weights.update((b.name, w) for b, w in zip(top, layer.loss_weights, strict=True) if w)
        return weights

    # pycaffe's own view of the net: blobs and layers by number.

    @cached_property
    def _blobs(self) -> list[Blob]:
        """All blobs, those of losses without a named top included."""
        distinct = {id(blob): blob for top in self.tops for blob in top}
        return [self.backend.host_view(blob) for blob in distinct.values()]

    @cached_property
    def _numbers(self) -> dict[int, int]:
        distinct = dict.fromkeys(id(blob) for top in self.tops for blob in top)
        return {blob: number for number, blob in enumerate(distinct)}

    @property
    def _blob_names(self) -> list[str]:
        return [blob.name for blob in self._blobs]

    @property
    def _layer_names(self) -> list[str]:
        return [layer.name for layer in self.layers]

    @property
    def _inputs(self) -> list[int]:
        return [self._blob_names.index(name) for name in self.inputs]

    @property
    def _outputs(self) -> list[int]:
        return [self._blob_names.index(name) for name in self.outputs]

    def _bottom_ids(self, layer: int) -> list[int]:
        return [self._numbers[id(blob)] for blob in self.bottoms[layer]]

    def _top_ids(self, layer: int) -> list[int]:
        return [self._numbers[id(blob)] for blob in self.tops[layer]]

    # Running.

    def before_forward(self, hook: Hook) -> None:
        """Call `hook` with a layer's index before its every forward."""
        self.run_one_by_one()  # a hook may change blobs between layers
        self.hooks.before_forward.append(hook)

    def after_forward(self, hook: Hook) -> None:
        self.run_one_by_one()  # a hook may change blobs between layers
        self.hooks.after_forward.append(hook)

    def before_backward(self, hook: Hook) -> None:
        self.run_one_by_one()  # a hook may change blobs between layers
        self.hooks.before_backward.append(hook)

    def after_backward(self, hook: Hook) -> None:
        self.run_one_by_one()  # a hook may change blobs between layers
        self.hooks.after_backward.append(hook)

    def forward(
        self,
        blobs: Iterable[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **inputs: Any,
    ) -> Arrays:
        """Set inputs given by name, run layers start..end, return outputs and asked-for blobs."""
        first = self._index(start) if start is not None else 0
        last = self._index(end) if end is not None else len(self.layers) - 1
        names = {*(self.tops_of(end) if end is not None else self.outputs), *(blobs or ())}
        wanted = {name: self._blob(name) for name in sorted(names)}
        given = self._checked(inputs, self.inputs, "input")
        if self.inference is not None and start is None and end is None:
            self.inference.forget()
        for name, array in given.items():
            self._set_input(name, array)
        self._forward(first, last)
        return {name: blob.data for name, blob in wanted.items()}

    def _set_input(self, name: str, array: np.ndarray[Any, Any]) -> None:
        """No view of the blob outlives this: one that did could be written to during the pass, so
        that its value would have to be set aside."""
        target = self.blobs[name].data
        target[...] = array.reshape(target.shape)

    def backward(
        self,
        diffs: Iterable[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **outputs: Any,
    ) -> Arrays:
        """Set output gradients given by name, run layers start..end backward, return diffs."""
        for name, array in self._checked(outputs, self.outputs, "output").items():
            target = self.blobs[name].diff
            target[...] = array.reshape(target.shape)
        first = self._index(start) if start is not None else len(self.layers) - 1
        last = self._index(end) if end is not None else 0
        names = [b.name for b in self.bottoms[last]] if end is not None else self.inputs
        wanted = {name: self._blob(name) for name in sorted({*names, *(diffs or ())})}
        self._backward(first, last)
        return {name: blob.diff for name, blob in wanted.items()}

    def _forward(self, start: int, end: int) -> float:
        """Run layers by number and return the loss; the data has moved on afterwards."""
        self.before_run()
        try:
            loss = self.run_forward(start, end)
            if start == 0:
                self.context.step += 1
        finally:  # also when interrupted: arrays that the caller holds must go on to be the blobs'
            self.after_run()
        return loss

    def _backward(self, start: int, end: int) -> None:
        self.before_run()
        try:
            self.run_backward(start, end)
        finally:
            self.after_run()

    def clear_param_diffs(self) -> None:
        """Set all gradients of weights to zero, in arrays that the caller holds as well."""
        self.clear_gradients()
        for blobs in self.params.values():
            for blob in blobs:
                blob.diff[...] = 0

    def _checked(self, values: dict[str, Any], known: list[str], what: str) -> Arrays:
        """Arrays for blobs, whose names and shapes must fit."""
        arrays = {name: np.asarray(value) for name, value in values.items()}
        for name, array in arrays.items():
            if name not in known:
                raise BlobNameError(
                    f'"{name}" is not an {what} of this net{did_you_mean(name, known)}; '
                    f"its {what}s: {', '.join(known) or 'none'}"
                )
            blob = self.blobs[name]
            if array.shape[:1] != blob.shape[:1] or array.size != blob.count:
                raise ArgumentError(
                    f'{what} "{name}" has shape {list(blob.shape)}, got {list(array.shape)}; '
                    f"reshape the blob first"
                )
        return arrays

    def before_run(self) -> None:
        """Believe what was written into arrays that the caller holds."""
        for tensor in list(self.backend.exported):
            tensor.before_run()

    def after_run(self) -> None:
        """Bring arrays that the caller holds up to date."""
        for tensor in list(self.backend.exported):
            tensor.after_run()

    def _index(self, layer: str) -> int:
        names = self._layer_names
        if layer not in names:
            raise ArgumentError(f'no layer "{layer}" in this net{did_you_mean(layer, names)}')
        return names.index(layer)

    def tops_of(self, layer: str) -> list[str]:
        return [blob.name for blob in self.tops[self._index(layer)]]

    def _blob(self, name: str) -> Blob:
        return self.blobs[name]

    # Whole arrays.

    def forward_all(self, blobs: Sequence[str] | None = None, **inputs: Any) -> Arrays:
        """Forward over arrays of any length, batch by batch; the last batch is padded."""
        return batches.forward_all(self, blobs, inputs)

    def forward_backward_all(
        self, blobs: Sequence[str] | None = None, diffs: Sequence[str] | None = None, **arrays: Any
    ) -> tuple[Arrays, Arrays]:
        """Forward and backward over arrays for inputs and for outputs' gradients, in batches."""
        return batches.forward_backward_all(self, blobs, diffs, arrays)

    def set_input_arrays(self, data: Any, labels: Any) -> None:
        """Feed a net whose first layer is MemoryData."""
        layer = self.layers[0] if self.layers else None
        if not isinstance(layer, MemoryData):
            found = f'is layer "{layer.name}" ({layer.type})' if layer else "has no layers"
            raise ArgumentError(
                f"set_input_arrays needs a net whose first layer is of type MemoryData; this one's "
                f"{found}. Write to net.blobs[...].data instead"
            )
        layer.set_arrays(data, labels)

    # Weights shared or in HDF5.

    def share_with(self, other: Net) -> None:
        """From now on use the weights of another net's layers, those of the same name."""
        for net in (self, other):
            net.stop_inference()
        share_weights(self, other)

    def save_hdf5(self, path: str | os.PathLike[str], write_diff: bool = False) -> None:
        """Write all weights to an HDF5 file, whatever its name."""
        from ..schema import hdf5  # takes longer to load than a small net

        hdf5.write_weights(path, layer_weights(self, write_diff), write_diff)

    def load_hdf5(self, path: str | os.PathLike[str]) -> None:
        """Copy weights by layer name from an HDF5 file."""
        self.copy_from(os.fspath(path))

    # In a notebook.

    @property
    def written(self) -> Any:
        """The net's parameters before anything was added to them."""
        return self._written

    def _repr_svg_(self) -> str:
        return notebook.svg(self)

    def _repr_html_(self) -> str:
        return notebook.html(self)


def _own_copy(net: Any) -> Any:
    """The caller's NetParameter, perhaps of another caffe_pb2, stays as it is."""
    return schema.upgrade_net(schema.NetParameter.FromString(net.SerializeToString()))
