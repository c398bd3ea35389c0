"""An ONNX graph to be read: nodes in order, the shapes of all tensors, what is constant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConvertError
from .. import onnx_file
from ..libraries import need
from ..runtime import OnnxRuntime, without_nodes

Array = NDArray[Any]
Shape = tuple[int, ...]
DETECTIONS = "DetectionOutput"  # OpenCV's node, which onnxruntime does not know
_FREE = ("Shape", "Size")  # constant whatever their inputs hold


@dataclass
class Node:
    """A node with its attributes as plain values."""

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value


class Source:
    """A model with fixed input shapes: what is constant is folded, every shape is known."""

    def __init__(self, path: onnx_file.PathLike, input_shapes: Mapping[str, Sequence[int]]) -> None:
        self.path = path
        self.model, self.arrays = onnx_file.load(path)
        onnx = need("onnx")
        graph = self.model.graph
        given = [info for info in graph.input if info.name not in self.arrays]
        self.inputs = {info.name: self._shape(info, input_shapes) for info in given}
        self.outputs = [info.name for info in graph.output]
        self.nodes = self._ordered([self._node(onnx, node) for node in graph.node])
        self.constants: dict[str, Array] = dict(self.arrays)
        self.shapes: dict[str, Shape] = dict(self.inputs)

    def _shape(self, info: Any, given: Mapping[str, Sequence[int]]) -> Shape:
        if info.name in given:
            return tuple(given[info.name])
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        if dims and not dims[0]:
            dims[0] = 1
        if not all(size > 0 for size in dims):
            raise ConvertError(
                f'{self.path}: the input "{info.name}" {dims} has sizes that the model does not '
                f"tell (0); give them: --input-shape {info.name}=1,3,224,224"
            )
        return tuple(dims)

    @staticmethod
    def _node(onnx: Any, node: Any) -> Node:
        values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        label = node.name or (node.output[0] if node.output else node.op_type)
        op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        return Node(op, label, list(node.input), list(node.output), values)

    def _ordered(self, nodes: list[Node]) -> list[Node]:
        """Nodes so that each comes after those it reads; a cycle is an error."""
        known = {"", *self.inputs, *self.arrays}
        waiting, ordered = list(nodes), []
        while waiting:
            ready = [node for node in waiting if known.issuperset(node.inputs)]
            if not ready:
                made = {name for node in nodes for name in node.outputs}
                lost = next(
                    (n for node in waiting for n in node.inputs if n not in made | known), ""
                )
                reason = f'nothing makes "{lost}"' if lost else "its nodes form a cycle"
                raise ConvertError(f'{self.path}: {reason} (node "{waiting[0].name}")')
            ordered += ready
            for node in ready:
                known.update(node.outputs)
            done = {id(node) for node in ready}
            waiting = [node for node in waiting if id(node) not in done]
        missing = [name for name in self.outputs if name not in known]
        if missing:
            raise ConvertError(f'{self.path}: nothing makes the output "{missing[0]}"')
        return ordered

    def evaluate(self) -> None:
        """Run the model once: shapes of all tensors, values of those that are constant."""
        onnx = need("onnx")
        model, lost = without_nodes(self.model, DETECTIONS)
        names = [name for node in self.nodes for name in node.outputs if name and name not in lost]
        fixed = self._fixed()
        rng = np.random.default_rng(0)
        types = {name: self._type(onnx, name) for name in self.inputs}
        feeds = {
            name: rng.normal(size=shape).astype(types[name]) for name, shape in self.inputs.items()
        }
        try:
            with OnnxRuntime() as runtime:
                runtime.open_model(model, self.arrays, every=names, optimised=False)
                wanted = [name for name in names if name in fixed]
                shapes, constants = runtime.shapes(names, feeds, wanted)
        except ConvertError as problem:
            raise ConvertError(f"{self.path}: cannot be run: {problem}") from None
        self.shapes.update(shapes)
        self.constants.update(constants)
        for name, array in self.constants.items():
            self.shapes[name] = tuple(array.shape)

    def _type(self, onnx: Any, name: str) -> Any:
        kind = next(i.type.tensor_type.elem_type for i in self.model.graph.input if i.name == name)
        known = set(onnx.TensorProto.DataType.values()) - {0, onnx.TensorProto.STRING}
        if kind not in known:
            raise ConvertError(f'{self.path}: the input "{name}" is no tensor of numbers')
        return onnx.helper.tensor_dtype_to_np_dtype(kind)

    def _fixed(self) -> set[str]:
        fixed = {"", *self.arrays}
        for node in self.nodes:
            if node.op in _FREE or fixed.issuperset(node.inputs):
                fixed.update(node.outputs)
        return fixed

    def live(self) -> list[Node]:
        """Nodes whose outputs are not constant."""
        return [node for node in self.nodes if not self._fixed().issuperset(node.outputs)]

    def readers(self) -> Counter[str]:
        """How many nodes read each tensor; being an output counts as one."""
        count = Counter(name for node in self.nodes for name in node.inputs)
        count.update(self.outputs)
        return count
