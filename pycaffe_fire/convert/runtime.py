"""Models in onnxruntime: whole, or a piece at a time, which takes little memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend import available_cores
from . import onnx_file
from .isolation import Isolated
from .libraries import need

Array = NDArray[Any]

PIECE = 1 << 24  # bytes of weights and tensors that are looked at together
_NO_TENSORS = ("Sequence", "Optional")  # in names of ops: what they make is no array


def without_nodes(model: Any, kind: str) -> tuple[Any, set[str]]:
    """The model less the nodes of a kind that onnxruntime does not know, and the tensors that they
    made; where those are all its outputs, it has those of its last node."""
    lost = {name for node in model.graph.node if node.op_type == kind for name in node.output}
    if not lost:
        return model, lost
    made = type(model).FromString(model.SerializeToString())
    nodes = [node for node in made.graph.node if node.op_type != kind]
    outputs = [info for info in made.graph.output if info.name not in lost]
    if not outputs:
        make = need("onnx").helper.make_empty_tensor_value_info
        outputs = [make(name) for node in nodes[-1:] for name in node.output]
    for names, kept in ((made.graph.node, nodes), (made.graph.output, outputs)):
        del names[:]
        names.extend(kept)
    return made, lost


class OnnxRuntime(Isolated):
    """onnxruntime in a process of its own, with one model at a time."""

    def __init__(self) -> None:
        super().__init__("onnxruntime")

    def open_model(
        self,
        model: Any,
        arrays: Mapping[str, Array],
        every: Iterable[str] = (),
        optimised: bool = True,
    ) -> None:
        """Open a model, with more of its tensors as outputs; no file is read."""
        onnx = need("onnx")
        whole, lent = onnx.ModelProto(), {}
        whole.CopyFrom(model)
        for name, array in arrays.items():
            if array.nbytes > onnx_file.SMALL and array.dtype.isbuiltin:
                tensor = onnx_file.outside(onnx, name, array, "lent", (0, array.nbytes))
                lent[name] = array
            else:
                tensor = onnx.numpy_helper.from_array(array, name)
            whole.graph.initializer.append(tensor)
        known = {info.name for info in (*model.graph.output, *model.graph.input)}
        for name in every:
            if name not in known and name not in arrays:
                whole.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
        text = np.frombuffer(whole.SerializeToString(), np.uint8)
        level = "ORT_ENABLE_ALL" if optimised else "ORT_DISABLE_ALL"
        settings = {"level": level, "lent": list(lent), "entries": {}}
        self.open(settings | {"threads": available_cores()}, [text, *lent.values()])

    def open_file(self, path: str) -> None:
        """Open a model's file, with the optimisations of graphs but without another layout of the
        weights, which would be a copy more."""
        settings = {"level": "ORT_ENABLE_EXTENDED", "path": os.path.abspath(path)}
        entries = {"session.disable_prepacking": "1"}
        self.open(settings | {"threads": available_cores(), "entries": entries})


def return_memory() -> None:
    """Give what is free back to the system, where the C library can be told to: pieces of many
    sizes would leave it in scraps."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    trim(0)


class Pieces:
    """A model cut into runs of nodes, each a model of its own that takes what those before made.

    `sizes` are the bytes of tensors, as far as they are known.
    """

    def __init__(
        self,
        runtime: OnnxRuntime,
        model: Any,
        arrays: Mapping[str, Array],
        sizes: Mapping[str, int],
    ) -> None:
        self._runtime = runtime
        self._model, self._arrays, self._sizes = model, arrays, sizes
        graph = model.graph
        self._infos = {
            info.name: info.type.tensor_type
            for info in (*graph.input, *graph.value_info, *graph.output)
        }
        self._parts = list(self._cut())
        self._last = {  # the last piece that reads a tensor
            name: place
            for place, nodes in enumerate(self._parts)
            for node in nodes
            for name in _read_by(node)
        }

    def _cut(self) -> Iterator[list[Any]]:
        nodes = list(self._model.graph.node)
        if any(part in node.op_type for node in nodes for part in _NO_TENSORS):
            yield nodes
            return
        piece: list[Any] = []
        size, seen = 0, set[str]()
        for node in nodes:
            piece.append(node)
            weights = {name for name in _read_by(node) if name in self._arrays} - seen
            seen |= weights
            size += sum(self._arrays[name].nbytes for name in weights)
            size += sum(self._sizes.get(name, 0) for name in node.output)
            if size > PIECE:
                yield piece
                piece, size, seen = [], 0, set()
        if piece:
            yield piece

    def run(
        self, feeds: Mapping[str, Array], wanted: Iterable[str], optimised: bool
    ) -> Iterator[dict[str, Array]]:
        """Those of the wanted tensors that each piece makes, piece by piece."""
        alive, names = dict(feeds), set(wanted)
        for place, nodes in enumerate(self._parts):
            made = [name for node in nodes for name in node.output if name]
            outputs = [n for n in made if n in names or self._last.get(n, -1) > place]
            if outputs:
                found = self._run_piece(nodes, alive, outputs, optimised)
                alive.update(found)
                yield {name: found[name] for name in outputs if name in names}
                del found
            alive = {
                name: value for name, value in alive.items() if self._last.get(name, -1) > place
            }
            return_memory()

    def _run_piece(
        self, nodes: list[Any], alive: Mapping[str, Array], outputs: list[str], optimised: bool
    ) -> dict[str, Array]:
        onnx = need("onnx")
        read = {name for node in nodes for name in _read_by(node)}
        arrays = {name: array for name, array in self._arrays.items() if name in read}
        feeds = {name: value for name, value in alive.items() if name in read}
        model = onnx.ModelProto()
        for field, value in self._model.ListFields():  # all but the graph, which may be large
            if field.name != "graph":
                _copy_field(model, field, value)
        model.graph.name = self._model.graph.name
        model.graph.node.extend(nodes)
        model.graph.input.extend(self._info(name, value) for name, value in feeds.items())
        self._runtime.open_model(model, arrays, outputs, optimised)
        return dict(zip(outputs, self._runtime.run(outputs, feeds), strict=True))

    def _info(self, name: str, value: Array) -> Any:
        """What is known of a tensor's shape, as long as it is true of this value."""
        helper = need("onnx").helper
        dims: list[Any] = [None] * value.ndim
        known = self._infos[name].shape.dim if name in self._infos else ()
        if len(known) == value.ndim:
            for axis, dim in enumerate(known):
                fits = dim.dim_value == value.shape[axis]
                dims[axis] = dim.dim_param or (dim.dim_value if fits else None)
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), dims
        )  # fmt: skip


def _copy_field(model: Any, field: Any, value: Any) -> None:
    if hasattr(value, "extend") or hasattr(value, "add"):
        getattr(model, field.name).extend(value)
    else:
        setattr(model, field.name, value)


def _read_by(node: Any) -> set[str]:
    """The tensors that a node reads, also within the graphs that it runs."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {name for each in graph.node for name in each.output}
            own |= {info.name for info in (*graph.input, *graph.initializer)}
            names |= {name for each in graph.node for name in _read_by(each)} - own
            names |= {info.name for info in graph.output} - own
    return names
