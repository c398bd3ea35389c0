"""What layers keep from one pass for the next, such as an LSTM's hidden states, for snapshots."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence

import numpy as np

from ..backend.tensor import FLOAT32, Array, on_host
from ..layers import Layer
from ..net import Net
from ..parallel.leaves import Leaves

State = dict[str, dict[str, list[tuple[list[int], str]]]]  # by layer, by leaf: shapes and bytes


class RecurrentState:
    """The recurrent states of a solver's nets over all leaves and ranks; something Carried.

    Test nets with such states run all passes on every rank, so theirs are the same everywhere.
    """

    def __init__(self, leaves: Leaves, test_nets: Sequence[Net]) -> None:
        self._communicator = leaves.communicator
        self._nets = [("train", net) for net in leaves.nets]
        self._nets += [(f"test {i}", net) for i, net in enumerate(test_nets)]

    def __bool__(self) -> bool:
        return any(True for _ in self._layers())

    def _layers(self) -> Iterator[tuple[str, Layer]]:
        for which, net in self._nets:
            for layer in net.layers:
                if layer.memory is not None:
                    yield f"{which} {layer.name}", layer

    def state(self) -> State:
        """For all ranks to call together."""
        mine: State = {}
        for name, layer in self._layers():
            leaves = mine.setdefault(name, {})
            for leaf, arrays in (layer.memory or {}).items():
                leaves[str(leaf)] = [_pack(array) for array in arrays]
        everyone: State = {}
        for part in reversed(self._communicator.gather(mine)):
            for name, leaves in part.items():
                everyone.setdefault(name, {}).update(leaves)
        return everyone

    def restore(self, state: State) -> None:
        for name, layer in self._layers():
            layer.memory = {
                int(leaf): [layer.xp.asarray(_unpack(*packed)) for packed in arrays]
                for leaf, arrays in state.get(name, {}).items()
            }


def _pack(array: Array) -> tuple[list[int], str]:
    found = np.ascontiguousarray(on_host(array), FLOAT32)
    return list(found.shape), b64encode(found.tobytes()).decode()


def _unpack(shape: list[int], content: str) -> Array:
    return np.frombuffer(b64decode(content), FLOAT32).reshape(shape).copy()
