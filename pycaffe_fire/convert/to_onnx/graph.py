"""An ONNX graph under construction: nodes, constants, weights, names and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dims import Dim, Shape, merged
from ..libraries import need

Array = NDArray[Any]
_AXES_ARE_INPUTS = 18  # from this opset on all reductions take their axes as an input
END = 2**31 - 1  # beyond the end of any axis


@dataclass(frozen=True)
class Tensor:
    """A value in the graph."""

    name: str
    shape: Shape


class Graph:
    """Nodes in order and named arrays; `op` adds a node and gives back the names it makes.

    `scope` is the name of the layer being converted: new names begin with it.
    """

    def __init__(self, opset: int, outer: Graph | None = None) -> None:
        self.opset = opset
        self.helper = need("onnx.helper")
        self.nodes: list[Any] = []
        self.arrays: dict[str, Array] = outer.arrays if outer else {}
        self.scope: str = outer.scope if outer else ""
        self._names: set[str] = outer._names if outer else set()
        self._nodes: set[str] = outer._nodes if outer else set()
        self._constants: dict[Any, str] = outer._constants if outer else {}
        self._weights: dict[Any, str] = outer._weights if outer else {}

    # Names.

    def unique(self, name: str) -> str:
        """This name of a tensor, or one like it that is still free."""
        return _free(name, self._names)

    def rename(self, old: str, new: str, since: int) -> None:
        """Let the node that makes `old` (number `since` or later), and its readers, say `new`."""
        for node in self.nodes[since:]:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == old:
                        names[i] = new
        self._names.discard(old)

    def makes(self, name: str, since: int) -> bool:
        """Is this the output of a node from number `since` on?"""
        return any(name in node.output for node in self.nodes[since:])

    # Nodes.

    def ops(self, kind: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """A node with several outputs."""
        made = [self.unique(f"{self.scope}/{kind.lower()}") for _ in range(outputs)]
        name = _free(self.scope, self._nodes)
        self.nodes.append(self.helper.make_node(kind, list(inputs), made, name=name, **attributes))
        return made

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output."""
        return self.ops(kind, inputs, 1, **attributes)[0]

    # Arrays.

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """A small array; equal ones are one."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.unique(f"{self.scope}/constant")
            self.arrays[self._constants[key]] = array
        return self._constants[key]

    def integers(self, values: Iterable[int]) -> str:
        return self.constant([int(value) for value in values], np.int64)

    def weight(self, name: str, array: Array, owner: Any = None) -> str:
        """A layer's weights; those of one `owner` in one shape are there once."""
        key = (id(owner), array.shape) if owner is not None else None
        if key is not None and key in self._weights:
            return self._weights[key]
        made = self.unique(name)
        self.arrays[made] = array
        if key is not None:
            self._weights[key] = made
        return made

    # What many layers need.

    def cast(self, x: str, dtype: Any) -> str:
        return self.op("Cast", x, to=self.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def scaled(self, x: str, factor: float, offset: float = 0.0) -> str:
        """factor * x + offset, without the steps that change nothing."""
        if factor != 1:
            x = self.op("Mul", x, self.constant(factor))
        return self.op("Add", x, self.constant(offset)) if offset else x

    def reduce(self, kind: str, x: str, axes: Sequence[int], keepdims: bool = True) -> str:
        """ReduceSum and its like over the given axes."""
        keep = int(keepdims)
        if kind == "ReduceSum" or self.opset >= _AXES_ARE_INPUTS:
            return self.op(kind, x, self.integers(axes), keepdims=keep)
        return self.op(kind, x, axes=list(axes), keepdims=keep)

    def reshape(self, x: str, source: Sequence[Dim], target: Sequence[Dim]) -> str:
        """x (of shape `source`) under another shape, for every batch size."""
        if [(int(d), d.symbol) for d in source] == [(int(d), d.symbol) for d in target]:
            return x
        dims = [int(dim) for dim in target]
        varying = [axis for axis, dim in enumerate(target) if dim.varies]
        for axis in varying[1:] if len(varying) > 1 else ():
            same = axis < len(source) and source[axis].symbol == target[axis].symbol
            dims[axis] = 0 if same else -1
        if varying:
            first = varying[0]
            copies = len(varying) > 1 and source[first].symbol == target[first].symbol
            dims[first] = 0 if copies else -1
        return self.op("Reshape", x, self.integers(dims))

    def flat(self, x: Tensor, start: int, end: int | None = None) -> tuple[str, Shape]:
        """x with its axes from `start` to before `end` as one, and its shape then."""
        end = len(x.shape) if end is None else end
        shape = (*x.shape[:start], merged(x.shape[start:end]), *x.shape[end:])
        return self.reshape(x.name, x.shape, shape), shape

    def sizes(self, x: str, shape: Sequence[Dim]) -> str:
        """The shape `shape` as a tensor; what varies is taken from x at the same axis."""
        if not any(dim.varies for dim in shape):
            return self.integers(shape)
        parts, whole = [], self.op("Shape", x)
        for axis, dim in enumerate(shape):
            one = self.integers([dim])
            if dim.varies:
                one = self.op("Gather", whole, self.integers([axis]), axis=0)
            parts.append(one)
        return self.op("Concat", *parts, axis=0)

    def slice(self, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
        return self.op(
            "Slice", x, *(self.integers([n]) for n in (start, end, axis, step))
        )  # fmt: skip

    def rows_where(self, x: str, wanted: str) -> str:
        """The rows of x where a vector is true; OpenCV 5 has no Compress."""
        places = self.op("Reshape", self.op("NonZero", wanted), self.integers([-1]))
        return self.op("Gather", x, places, axis=0)

    def zeros(self, x: str, shape: Sequence[Dim]) -> str:
        """Zeros of a shape that may vary as x does."""
        if not any(dim.varies for dim in shape):
            return self.constant(np.zeros([int(d) for d in shape], np.float32))
        zero = self.helper.make_tensor("zero", 1, [1], [0.0])
        return self.op("ConstantOfShape", self.sizes(x, shape), value=zero)


def _free(name: str, taken: set[str]) -> str:
    made, number = name, 1
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    taken.add(made)
    return made
