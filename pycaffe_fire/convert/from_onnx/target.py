"""A Caffe net under construction: layers with weights, in what a dialect knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import schema
from ...errors import ConvertError
from ...registry import Registry
from ..dialects import Dialect
from .source import Array, Node, Shape, Source


class CannotError(Exception):
    """A node cannot be expressed; the text says why."""


class Target:
    """Layers so far, and which blob each tensor of the source is."""

    def __init__(self, source: Source, dialect: Dialect) -> None:
        self.source, self.dialect = source, dialect
        self.param = schema.NetParameter(name=source.model.graph.name or "net")
        self.weights: dict[str, list[Any]] = {}
        self.blobs: dict[str, str] = {}  # tensors to blobs
        self.pads: dict[str, tuple[str, list[int]]] = {}  # padded tensors: what, by how much
        self._names: set[str] = set(source.shapes)
        self._layers: set[str] = set()
        self.readers = source.readers()
        versions = {each.domain: each.version for each in source.model.opset_import}
        self.opset: int = versions.get("", versions.get("ai.onnx", 1))

    # Tensors.

    def shape(self, tensor: str) -> Shape:
        return self.source.shapes[tensor]

    def constant(self, node: Node, index: int, what: str = "") -> Array:
        """An input that must be constant."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        if name not in self.source.constants or not name:
            raise CannotError(f"its {what or f'input {index}'} is not constant")
        return self.source.constants[name]

    def is_constant(self, tensor: str) -> bool:
        return tensor in self.source.constants

    def blob(self, tensor: str) -> str:
        """The blob of a tensor; padding that no layer could take becomes a layer now."""
        if tensor in self.pads:
            source, pads = self.pads.pop(tensor)
            self.blobs[tensor] = self.pad(source, tensor, pads)
        if tensor not in self.blobs:
            raise CannotError(f'"{tensor}" is constant, or comes from a node that has no layer')
        return self.blobs[tensor]

    def unpadded(self, tensor: str) -> tuple[str, list[int]]:
        """(blob, pads) of a tensor whose zero padding its one reader may do itself."""
        if tensor in self.pads and self.readers[tensor] == 1:
            source, pads = self.pads[tensor]
            return self.blob(source), pads
        return self.blob(tensor), [0, 0, 0, 0]

    def alias(self, tensor: str, of: str) -> None:
        self.blobs[tensor] = self.blob(of)
        self.source.shapes.setdefault(tensor, self.shape(of))

    # Layers.

    def fresh(self, name: str) -> str:
        """A blob name of no tensor."""
        made, number = name, 1
        while made in self._names:
            number += 1
            made = f"{name}_{number}"
        self._names.add(made)
        return made

    def layer(
        self, kind: str, name: str, bottoms: list[str], tops: list[str], *weights: Array
    ) -> Any:
        """Add a layer; the caller fills in its parameters."""
        if not self.dialect.knows(kind):
            raise CannotError(f'needs a {kind} layer, which "{self.dialect.name}" does not know')
        label, number = name, 1
        while label in self._layers:
            number += 1
            label = f"{name}_{number}"
        self._layers.add(label)
        made = self.param.layer.add(name=label, type=kind, bottom=bottoms, top=tops)
        if weights:
            self.weights[label] = [np.ascontiguousarray(w, np.float32) for w in weights]
        return made

    def one(self, kind: str, node: Node, *weights: Array, tensor: str = "") -> Any:
        """A layer from a node's first input (or another tensor) to its first output."""
        bottom = self.blob(tensor or node.inputs[0])
        return self.onto(kind, node, bottom, *weights)

    def onto(self, kind: str, node: Node, bottom: str, *weights: Array) -> Any:
        """A layer from a blob to a node's first output."""
        made = self.layer(kind, node.name, [bottom], [node.outputs[0]], *weights)
        self.blobs[node.outputs[0]] = node.outputs[0]
        return made

    def step(self, kind: str, node: Node, bottoms: list[str], *weights: Array) -> tuple[str, Any]:
        """A layer on the way to a node's output: its top and itself."""
        top = self.fresh(f"{node.outputs[0]}_{kind.lower()}")
        return top, self.layer(kind, top, bottoms, [top], *weights)

    def power(self, node: Node, blob: str, power: float, scale: float, shift: float) -> str:
        top, layer = self.step("Power", node, [blob])
        param = layer.power_param
        param.power, param.scale, param.shift = power, scale, shift
        return top

    def pad(self, tensor: str, top: str, pads: list[int]) -> str:
        """Zeros around an image: a convolution of each channel with a kernel that is 1 once."""
        channels = self.shape(tensor)[1]
        kernel = np.ones((channels, 1, 1, 1), np.float32)
        weights, pad = even_pads(kernel, pads, (1, 1))
        layer = self.layer("Convolution", top, [self.blob(tensor)], [top], weights)
        param = layer.convolution_param
        param.num_output = param.group = channels
        param.bias_term = False
        param.kernel_h, param.kernel_w = weights.shape[2:]
        param.pad_h, param.pad_w = pad
        return top

    def cut(self, node: Node, blob: str, axis: int, start: int, end: int, size: int) -> str:
        """The part from `start` to `end` of an axis; a Silence layer takes the rest."""
        points = [point for point in (start, end) if 0 < point < size]
        if not points:
            return blob
        tops = [self.fresh(f"{node.outputs[0]}_part") for _ in range(len(points) + 1)]
        wanted = tops[1] if start else tops[0]
        layer = self.layer("Slice", tops[0], [blob], tops)
        layer.slice_param.axis = axis
        layer.slice_param.slice_point.extend(points)
        self.layer("Silence", f"{tops[0]}_rest", [top for top in tops if top != wanted], [])
        return wanted

    def name(self, node: Node, blob: str) -> None:
        """Let a node's first output be this blob, under the output's name where it can be."""
        tensor = node.outputs[0]
        if blob not in self.source.shapes:  # a step's top: nobody else knows its name
            for layer in self.param.layer:
                for ends in (layer.bottom, layer.top):
                    ends[:] = [tensor if name == blob else name for name in ends]
            self.blobs[tensor] = tensor
            return
        if tensor not in self.source.outputs:
            self.blobs[tensor] = blob
            return
        self.layer("Split", node.name, [blob], [tensor])
        self.blobs[tensor] = tensor


def even_pads(
    kernel: Array, pads: list[int], dilation: tuple[int, int]
) -> tuple[Array, tuple[int, int]]:
    """(kernel, pad): uneven pads become even where the kernel gets zeros on the smaller side."""
    grow, even = [(0, 0)] * (kernel.ndim - 2), []
    for axis in range(kernel.ndim - 2):
        before, after = pads[axis], pads[axis + kernel.ndim - 2]
        most = max(before, after)
        if (most - before) % dilation[axis] or (most - after) % dilation[axis]:
            raise CannotError(f"its pads {pads} are uneven, and its dilation does not divide that")
        grow[axis] = ((most - before) // dilation[axis], (most - after) // dilation[axis])
        even.append(most)
    return np.pad(kernel, [(0, 0), (0, 0), *grow]), (even[0], even[-1])


OPS: Registry[Any] = Registry("ONNX op", ConvertError)
reads = OPS.register
