"""A net in numbers: shapes, parameters, memory and multiply-adds of every layer, and in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .. import schema
from ..backend.blob import Blob
from ..layers import Layer
from ..layers.feed import Feed
from .net import Net

BYTES = 4  # of a float32


@dataclass
class LayerFacts:
    """One layer; `memory` is in bytes, of the tops it makes; `multiply_adds` of one forward."""

    name: str
    type: str
    tops: list[list[int]]
    parameters: int
    memory: int
    multiply_adds: int


@dataclass
class DataFacts:
    """Where a data layer's samples come from and what is done to them, as its prototxt says."""

    layer: str
    source: str
    records: int | None
    batch: int
    transform: str


@dataclass
class NetFacts:
    """A net for a record of its run."""

    name: str
    layers: list[LayerFacts] = field(default_factory=list)
    data: list[DataFacts] = field(default_factory=list)
    prototxt: str = ""

    @property
    def samples(self) -> int:
        """In one pass of one leaf."""
        shapes = [shape for layer in self.layers for shape in layer.tops if shape]
        return shapes[0][0] if shapes else 1

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def multiply_adds(self) -> int:
        return sum(layer.multiply_adds for layer in self.layers)


def facts(net: Net) -> NetFacts:
    """What one leaf of the net computes; shared weights count where they come first."""
    seen: set[int] = set()
    rows = []
    for layer, bottoms, tops in zip(net.layers, net.bottoms, net.tops, strict=True):
        made = [blob for blob in tops if id(blob.value) not in seen]
        seen |= {id(blob.value) for blob in made}
        own = [blob for blob in layer.blobs if id(blob.value) not in seen]
        seen |= {id(blob.value) for blob in own}
        rows.append(
            LayerFacts(
                layer.name, layer.type, [list(blob.shape) for blob in tops],
                sum(blob.count for blob in own),
                BYTES * sum(blob.value.words for blob in made),
                layer.multiply_adds(bottoms, tops),
            )
        )  # fmt: skip
    sources = [_data(layer, tops) for layer, tops in zip(net.layers, net.tops, strict=True)]
    return NetFacts(net.name, rows, [s for s in sources if s], schema.to_text(net.to_proto()))


def _data(layer: Layer, tops: Sequence[Blob]) -> DataFacts | None:
    if type(layer).family != "data":
        return None
    param = type(layer).own_param(layer.param)
    transform = layer.param.transform_param
    return DataFacts(
        layer.name,
        getattr(param, "source", "") or f"made by {layer.type}",
        layer.records if isinstance(layer, Feed) else None,
        tops[0].shape[0] * layer.context.leaves if tops[0].shape else 0,
        " ".join(schema.to_text(transform).split()) if transform.ListFields() else "",
    )
