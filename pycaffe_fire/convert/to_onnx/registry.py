"""One function per layer type: it is handed a graph and a layer, and names the layer's tops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ...backend.blob import Blob
from ...errors import ConvertError, LayerError
from ...layers import Layer
from ...registry import Registry
from ..dims import Shape
from ..weights import blob_name
from .graph import Array, Graph, Tensor


@dataclass
class Part:
    """A layer of a net that runs, with the tensors of its bottoms and the shapes of its tops."""

    layer: Layer
    bottoms: list[Tensor]
    tops: list[Shape]
    blobs: list[Blob]  # its weights, as host arrays
    bottom_blobs: Sequence[Blob]
    top_blobs: Sequence[Blob]
    detection: str  # how DetectionOutput is to be written

    @property
    def param(self) -> Any:
        return self.layer.param

    @property
    def x(self) -> Tensor:
        """The first bottom."""
        return self.bottoms[0]

    def array(self, index: int) -> Array:
        """A weight blob's values."""
        return np.asarray(self.blobs[index].data)

    def weight(self, graph: Graph, index: int, *shape: int) -> str:
        """A weight blob as a tensor, perhaps under another shape; shared ones are shared."""
        array = self.array(index)
        name = f"{self.layer.name}.{blob_name(self.layer.type, index, len(self.blobs))}"
        return graph.weight(
            name, array.reshape(shape) if shape else array, self.layer.blobs[index].value
        )

    def fail(self, message: str) -> NoReturn:
        raise LayerError(self.layer.name, self.layer.type, message)


Converter = Callable[[Graph, Part], str | list[str]]
CONVERTERS: Registry[Converter] = Registry("layer type for ONNX", ConvertError)
converts = CONVERTERS.register
