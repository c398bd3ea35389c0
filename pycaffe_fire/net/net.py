"""Caffe's Net: forward and backward over ranges of layers, weights in and out, pycaffe's face."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .. import schema
from ..backend.base import Backend
from ..backend.tensor import Array
from ..blob import Blob
from ..defaults import default_backend, seed_for
from ..errors import NetError, WeightsError
from ..layers import Context
from ..registry import did_you_mean
from . import debug
from .memory import share_gradients
from .wiring import Wiring

log = logging.getLogger("pycaffe_fire")


class Net(Wiring):
    """A net built from a prototxt file (or a NetParameter), ready to run.

    `Net(file, phase)`, `Net(file, phase, weights=file)` and pycaffe's old `Net(file, weights,
    phase)` all work. `blobs` and `params` map names to blobs whose `data` and `diff` are arrays.
    """

    def __init__(
        self,
        network: Any,
        phase: Any = None,
        weights: Any = None,
        level: int = 0,
        stages: Iterable[str] = (),
        *,
        backend: Backend | None = None,
        context: Context | None = None,
        lender: Net | None = None,
        source: str = "",
    ) -> None:
        if isinstance(phase, str):  # the old order: file, weights, phase
            phase, weights = weights, phase
        param = schema.read_net(network) if isinstance(network, str) else network
        source = network if isinstance(network, str) else source
        if phase is not None:
            param.state.phase = phase
            param.state.level = level
            param.state.stage.extend(stages or ())
        backend = backend or default_backend()
        backend.activate()
        super().__init__(param, backend, context or Context(seed_for()), lender, source)
        face = self.backend.face
        self.blobs = {name: face(blob) for name, blob in self.blobs.items()}
        self.params: dict[str, list[Blob]] = {
            layer.name: [face(blob) for blob in layer.blobs] for layer in self.layers if layer.blobs
        }
        self.debug_info: bool = self.param.debug_info
        self._standalone = context is None
        self._losses = [
            [(blob, weight) for blob, weight in zip(top, layer.loss_weights, strict=True) if weight]
            for top, layer in zip(self.tops, self.layers, strict=True)
        ]
        for i in range(len(self.layers)):
            self._seed_losses(i)
        if weights:
            self.copy_from(weights)

    # Running.

    def _seed_losses(self, index: int) -> None:
        """The gradient of a loss is its weight."""
        for blob, weight in self._losses[index]:
            blob.diff[...] = weight

    def _plan(self, index: int) -> None:
        self.layers[index].plan(self.bottoms[index], self.tops[index])
        self._seed_losses(index)  # a new shape has a new gradient

    def run_forward(self, start: int = 0, end: int | None = None) -> float:
        """Run layers start..end (inclusive) and return the weighted sum of their losses."""
        self.backend.activate()
        last = len(self.layers) - 1 if end is None else end
        loss = 0.0
        for i in range(start, last + 1):
            layer, bottom, top = self.layers[i], self.bottoms[i], self.tops[i]
            if layer.stale(bottom):
                self._plan(i)
            leader = self.leader_of.get(i, -1)
            if leader >= start and self.layers[leader].leads:
                continue  # its leader, in this range, did it
            layer.leads = i in self.groups and self.groups[i][-1] <= last
            layer.forward(bottom, top)
            for blob, weight in self._losses[i]:
                loss += weight * self.backend.total(blob.data)
            if self.debug_info:
                debug.forward(self, i)
        return loss

    def run_backward(
        self,
        start: int | None = None,
        end: int = 0,
        after_layer: Callable[[int], None] | None = None,
    ) -> None:
        """Run layers start..end (inclusive, downwards) backward, telling `after_layer` of each."""
        self.backend.activate()
        first = len(self.layers) - 1 if start is None else start
        for i in range(first, end - 1, -1):
            leader = self.layers[self.leader_of[i]] if i in self.leader_of else None
            done = leader is not None and leader.leads and leader.absorbs_backward
            if self.need_backward[i] and not done:
                for tensor in self.unwritten[i] if i < first else ():
                    tensor.clear()
                self.layers[i].backward(self.tops[i], self.propagate_down[i], self.bottoms[i])
                if self.debug_info:
                    debug.backward(self, i)
            if after_layer is not None:
                after_layer(i)
        if self.debug_info and start is None and end == 0:
            debug.all_params(self)

    def forward_backward(self) -> float:
        """One training pass; gradients are added to what the parameters' diffs hold."""
        loss = self.run_forward()
        self.run_backward()
        return loss

    def share_gradients(self) -> None:
        """Let blobs whose gradients are never alive together use the same memory."""
        share_gradients(self)

    def reshape(self) -> None:
        """Propagate changed input shapes through all layers."""
        for i in range(len(self.layers)):
            self._plan(i)

    def clear_param_diffs(self) -> None:
        self.parameters.clear_gradients()
        for layer in self.layers:
            layer.fades.clear()

    def absorb(self, sums: Array, leaves: int) -> None:
        """Take running averages' new values out of flat summed gradients; see Layer.remember."""
        places = {id(p.blob): (p.start, p.start + p.blob.count) for p in self.parameters.items}
        for layer in self.layers:
            for index in list(layer.fades):
                blob = layer.blobs[index]
                start, stop = places[id(blob)]
                layer.absorb(index, (sums[start:stop] / leaves).reshape(blob.shape))
                sums[start:stop] = 0

    def close(self) -> None:
        """Stop the layers' background work."""
        for layer in self.layers:
            layer.close()

    # pycaffe's face.

    def forward(
        self,
        blobs: Sequence[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **inputs: Any,
    ) -> dict[str, Any]:
        """Set inputs given by name, run layers start..end, return outputs and asked-for blobs."""
        self._set(inputs, self.inputs, "input", lambda blob: blob.data)
        first = self._index(start) if start is not None else 0
        last = self._index(end) if end is not None else len(self.layers) - 1
        wanted = {*(self.tops_of(end) if end is not None else self.outputs), *(blobs or ())}
        self.before_run()
        self.run_forward(first, last)
        if self._standalone and first == 0:
            self.context.step += 1
        self.after_run()
        return {name: self._blob(name).data for name in sorted(wanted)}

    def backward(
        self,
        diffs: Sequence[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **outputs: Any,
    ) -> dict[str, Any]:
        """Set output gradients given by name, run layers start..end backward, return diffs."""
        self._set(outputs, self.outputs, "output", lambda blob: blob.diff)
        first = self._index(start) if start is not None else len(self.layers) - 1
        last = self._index(end) if end is not None else 0
        self._check_cut(first, last)
        names = [b.name for b in self.bottoms[last]] if end is not None else self.inputs
        self.before_run()
        self.run_backward(first, last)
        self.after_run()
        return {name: self._blob(name).diff for name in sorted({*names, *(diffs or ())})}

    def _check_cut(self, first: int, last: int) -> None:
        """Layers that ran forward as one op have no gradients between them to start from."""
        for leader, group in self.groups.items():
            fused = self.layers[leader].leads and self.layers[leader].absorbs_backward
            members = [leader, *group]
            if fused and len({last <= i <= first for i in members}) > 1:
                names = " and ".join(f'"{self.layers[i].name}"' for i in members)
                raise NetError(
                    f"backward cannot be cut between {names}, which ran forward as one op; run "
                    f"forward in the same two parts first"
                )

    def _set(
        self,
        values: dict[str, Any],
        known: list[str],
        what: str,
        field: Callable[[Blob], Any],
    ) -> None:
        for name, value in values.items():
            if name not in known:
                raise NetError(
                    f'"{name}" is not an {what} of this net{did_you_mean(name, known)}; '
                    f"its {what}s: {', '.join(known) or 'none'}"
                )
            target, array = field(self.blobs[name]), np.asarray(value)
            if array.shape[:1] != target.shape[:1] or array.size != target.size:
                raise NetError(
                    f'{what} "{name}" has shape {list(target.shape)}, got {list(array.shape)}; '
                    f"reshape the blob first"
                )
            target[...] = array.reshape(target.shape)

    def before_run(self) -> None:
        """Believe what was written into arrays that the caller holds."""
        for tensor in list(self.backend.exported):
            tensor.before_run()

    def after_run(self) -> None:
        """Bring arrays that the caller holds up to date."""
        for tensor in list(self.backend.exported):
            tensor.after_run()

    def _index(self, layer: str) -> int:
        names = [candidate.name for candidate in self.layers]
        if layer not in names:
            raise NetError(f'no layer "{layer}" in this net{did_you_mean(layer, names)}')
        return names.index(layer)

    def tops_of(self, layer: str) -> list[str]:
        return [blob.name for blob in self.tops[self._index(layer)]]

    def _blob(self, name: str) -> Blob:
        if name not in self.blobs:
            raise NetError(f'no blob "{name}" in this net{did_you_mean(name, list(self.blobs))}')
        return self.blobs[name]

    # Weights.

    def copy_from(self, path: str) -> None:
        """Copy weights by layer name from a .caffemodel; layers the net lacks are ignored."""
        mine = {layer.name: layer for layer in reversed(self.layers)}
        fitting: list[tuple[Blob, Array]] = []
        problems = []
        for source in schema.read_weights(path):
            layer = mine.get(source.name)
            if layer is None or not source.blobs:
                continue
            if len(layer.blobs) != len(source.blobs):
                problems.append(
                    f'layer "{layer.name}": {len(source.blobs)} weight blob(s) in the file, '
                    f"{len(layer.blobs)} in the net"
                )
                continue
            for i, (blob, array) in enumerate(zip(layer.blobs, source.blobs, strict=True)):
                if not array.size and blob.count:
                    continue  # HDF5 files leave out blobs that another layer owns
                if not _fits(array.shape, blob.shape):
                    problems.append(
                        f'layer "{layer.name}" blob {i}: {list(array.shape)} in the file, '
                        f"{list(blob.shape)} in the net"
                    )
                else:
                    fitting.append((blob, array))
        if problems:
            raise WeightsError(
                f"{path} does not fit the net: {'; '.join(problems)}. To learn such a layer anew, "
                f"rename it in the prototxt"
            )
        for blob, array in fitting:
            self.backend.face(blob).data[...] = array.reshape(blob.shape)

    def save(self, path: str, diffs: bool = False) -> None:
        """Write all weights to a .caffemodel (or .h5) that Caffe reads too."""
        schema.write_weights(path, self.to_proto(), self.layer_weights(diffs), diffs)

    def to_proto(self) -> Any:
        """The net as it runs, without weights."""
        param = schema.NetParameter()
        param.CopyFrom(self.param)
        return param

    def layer_weights(self, diffs: bool = False) -> list[Any]:
        """Every layer with its weight arrays, for writing."""
        faces = [[self.backend.face(blob) for blob in layer.blobs] for layer in self.layers]
        return [
            schema.LayerWeights(
                layer.name, layer.type, [b.data for b in blobs], [b.diff for b in blobs if diffs]
            )
            for layer, blobs in zip(self.layers, faces, strict=True)
        ]

    def __repr__(self) -> str:
        weights = sum(p.blob.count for p in self.parameters.items)
        return f"<Net {self.name!r}: {len(self.layers)} layers, {weights:,} weights>"


def _fits(file: tuple[int, ...], net: tuple[int, ...]) -> bool:
    """Equal shapes; leading ones of legacy 4-D blobs (1 x 1 x N x K) do not count."""

    def core(shape: tuple[int, ...]) -> tuple[int, ...]:
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        return shape

    return file == net or (len(file) == 4 and core(file) == core(net))
