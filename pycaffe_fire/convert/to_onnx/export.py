"""A net layer by layer into a graph, and the graph into a model with inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...backend.blob import Blob
from ...errors import ConvertError
from ...layers import Layer
from ...net.net import Net
from ...version import VERSION
from ..dims import NeedsFixedError, Shape, Sizes
from ..libraries import need
from ..preprocessing import Preprocessing
from .detection import DETECTIONS, NMS, OPENCV
from .graph import Array, Graph, Tensor
from .registry import CONVERTERS, Part

OPSETS = range(13, 22)
DEFAULT_OPSET = 17
HALF_FROM = 256  # arrays of fewer numbers stay float32
_FLOAT = 1  # TensorProto.FLOAT
_UNTOLD = ("Filter",)  # how many samples their tops have shows when the net runs


def ir_version(opset: int) -> int:
    """The oldest format version that belongs to an opset; 8 for those before 19."""
    return 8 if opset < 19 else 9 if opset < 21 else 10


@dataclass(frozen=True)
class Options:
    """How a model is to be written."""

    opset: int = DEFAULT_OPSET
    detection: str = NMS
    embed_preprocessing: bool = False
    float16: bool = False  # store weights in 16 bits; arithmetic stays in 32

    def __post_init__(self) -> None:
        if self.opset not in OPSETS:
            raise ConvertError(
                f"opset must be {OPSETS[0]} to {OPSETS[-1]} ({DEFAULT_OPSET} if not given), got "
                f"{self.opset}"
            )
        if self.detection not in (NMS, OPENCV):
            raise ConvertError(f'detection must be {NMS} or {OPENCV}, got "{self.detection}"')


@dataclass
class Exported:
    """A model without initializers, those, and where the tops of the net's layers are in it."""

    model: Any
    arrays: dict[str, Array]
    tops: dict[tuple[int, int], str]  # (layer, top) to a tensor's name
    shapes: dict[str, list[Any]]  # of the tensors in `tops`
    fixed_batch: list[str] = field(default_factory=list)  # why the batch size cannot vary


def export(net: Net, options: Options, preprocessing: Preprocessing | None = None) -> Exported:
    """The net as an ONNX model; `net` must not fuse layers."""
    prepared = preprocessing or Preprocessing()
    try:
        return _Export(net, options, prepared, Sizes(net)).run()
    except NeedsFixedError as why:
        made = _Export(net, options, prepared, Sizes(net, vary=False)).run()
        made.fixed_batch.append(str(why))
        return made


def _passes(layer: Layer) -> bool:
    """Are its tops its bottom?"""
    dropout = layer.param.dropout_param
    whole = dropout.scale_train or not dropout.dropout_ratio
    return layer.type == "Split" or (layer.type == "Dropout" and whole)


class _Export:
    def __init__(
        self, net: Net, options: Options, preprocessing: Preprocessing, sizes: Sizes
    ) -> None:
        self.net, self.options, self.preprocessing = net, options, preprocessing
        self.onnx = need("onnx")
        self.graph = Graph(options.opset)
        self.sizes = sizes
        self.tensors: dict[str, Tensor] = {}  # of blobs, as the layers so far leave them
        self.tops: dict[tuple[int, int], str] = {}
        self.shapes: dict[str, list[Any]] = {}
        self.inputs: list[Any] = []
        self.untold: set[str] = set()
        self.last = {  # the last layer that changes a blob
            blob.name: i
            for i, tops in enumerate(net.tops)
            for blob in tops
            if not _passes(net.layers[i])
        }
        for name in net.blobs:
            self.graph.unique(name)

    def run(self) -> Exported:
        self._refuse_unknown()
        for index, layer in enumerate(self.net.layers):
            self.graph.scope = layer.name
            if layer.type == "Input":
                for top in self.net.tops[index]:
                    self._add_input(top.name)
            else:
                self._add_layer(index)
        outputs = [self._output(name) for name in self.net.outputs]
        if self.options.float16:
            self._store_halves()
        model = self._model(outputs)
        return Exported(
            model, self.graph.arrays, self.tops, self.shapes, list(self.sizes.refused)
        )  # fmt: skip

    def _refuse_unknown(self) -> None:
        unknown = [layer for layer in self.net.layers if layer.type not in CONVERTERS]
        strange = [layer for layer in unknown if layer.type != "Input"]
        if strange:
            names = ", ".join(f'"{layer.name}" ({layer.type})' for layer in strange)
            raise ConvertError(f"no converter to ONNX for {names}")

    # Inputs.

    def _add_input(self, name: str) -> None:
        shape = self.sizes[name]
        self.inputs.append(self._info(name, list(self._dims(shape))))
        self.tensors[name] = Tensor(name, shape)
        first = self.net.inputs and name == self.net.inputs[0]
        if self.options.embed_preprocessing and first:
            self.preprocessing.check(name, tuple(int(d) for d in shape))
            self.tensors[name] = Tensor(self._preprocessed(name, shape), shape)

    def _preprocessed(self, name: str, shape: Shape) -> str:
        graph, prepared = self.graph, self.preprocessing
        x = name
        if prepared.swaps(tuple(int(d) for d in shape)):
            x = graph.op("Gather", x, graph.integers([2, 1, 0]), axis=1)
        if prepared.mean is not None:
            x = graph.op("Sub", x, graph.constant(prepared.spread_mean()))
        return graph.scaled(x, prepared.scale)

    # Layers.

    def _add_layer(self, index: int) -> None:
        layer, graph = self.net.layers[index], self.graph
        bottoms, tops = self.net.bottoms[index], self.net.tops[index]
        part = Part(
            layer,
            [self.tensors[blob.name] for blob in bottoms],
            [self.sizes[blob.name] for blob in tops],
            self._weights(index),
            bottoms,
            tops,
            self.options.detection,
        )
        since = len(graph.nodes)
        made = CONVERTERS[layer.type](graph, part)
        names = [made] if isinstance(made, str) else made
        if layer.type in _UNTOLD or any(blob.name in self.untold for blob in bottoms):
            self.untold |= {blob.name for blob in tops}
        for number, (blob, name) in enumerate(zip(tops, names, strict=True)):
            if graph.makes(name, since):
                name = self._rename(index, blob, name, since)
                self.shapes[name] = self._top_dims(layer.type, blob.name)
            self.tensors[blob.name] = Tensor(name, self.sizes[blob.name])
            self.tops[index, number] = name

    def _weights(self, index: int) -> list[Blob]:
        host_view = self.net.backend.host_view
        return [host_view(blob) for blob in self.net.layers[index].blobs]

    def _rename(self, index: int, blob: Blob, made: str, since: int) -> str:
        """A blob's last version has its name; those before have their layer's, too."""
        name = blob.name
        if self.last[name] != index:
            name = self.graph.unique(f"{name}/{self.net.layers[index].name}")
        self.graph.rename(made, name, since)
        return name

    def _top_dims(self, kind: str, blob: str) -> list[Any]:
        dims = self._dims(self.sizes[blob])
        if kind == "DetectionOutput":
            dims[2] = DETECTIONS
        return [None for _ in dims] if blob in self.untold else dims

    def _dims(self, shape: Shape) -> list[Any]:
        return [dim.symbol or int(dim) for dim in shape]

    def _info(self, name: str, dims: list[Any]) -> Any:
        return self.onnx.helper.make_tensor_value_info(name, _FLOAT, dims)

    # The model.

    def _output(self, blob: str) -> Any:
        """A blob that no layer reads; if no node makes it under its name, one is added."""
        tensor = self.tensors[blob]
        if tensor.name != blob:
            self.graph.nodes.append(
                self.onnx.helper.make_node("Identity", [tensor.name], [blob], name=f"{blob}/output")
            )
        dims = self.shapes.get(tensor.name) or self._top_dims("", blob)
        return self._info(blob, dims)

    def _store_halves(self) -> None:
        """Weights in 16 bits, each cast to 32 by a node at the graph's start."""
        casts = []
        for name, array in list(self.graph.arrays.items()):
            if array.dtype == np.float32 and array.size >= HALF_FROM:
                half = self.graph.unique(f"{name}.float16")
                with np.errstate(over="ignore"):
                    stored = array.astype(np.float16)
                if not np.isfinite(stored).all() and np.isfinite(array).all():
                    raise ConvertError(f'"{name}" has values beyond what float16 can hold')
                self.graph.arrays[half] = stored
                del self.graph.arrays[name]
                casts.append(
                    self.onnx.helper.make_node("Cast", [half], [name], name=half, to=_FLOAT)
                )
        self.graph.nodes[:0] = casts

    def _model(self, outputs: list[Any]) -> Any:
        helper = self.onnx.helper
        named = {info.name for info in outputs}
        inner = [self._info(n, dims) for n, dims in self.shapes.items() if n not in named]
        graph = helper.make_graph(
            self.graph.nodes, self.net.name or "net", self.inputs, outputs, value_info=inner
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.options.opset)]
        )
        model.ir_version = ir_version(self.options.opset)
        model.producer_name, model.producer_version = "pycaffe_fire", VERSION
        helper.set_model_props(model, self._metadata())
        return model

    def _metadata(self) -> dict[str, str]:
        made = self.preprocessing.metadata()
        made["preprocessing"] = "embedded" if self.options.embed_preprocessing else "outside"
        return made
