"""A net as boxes and arrows: one box per layer, with the in-place layers after it inside.

Labels that many layers read from far away become a note in the reader's box instead of an arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ... import schema
from ...layers import LAYERS, layer_class
from ...layers.split import Split
from ...net.graph import filter_net
from ...schema.proto import LayerParameter, NetParameter

FAR = 3  # ranks that an arrow from a data layer may cross

Shapes = Mapping[str, Sequence[int]]

COLOURS = {
    "data": "#fff3c4",
    "convolution": "#cfe3ff",
    "pooling": "#c9f0e1",
    "product": "#e3d5fb",
    "joint": "#e8eaee",
    "loss": "#ffd3cf",
    "score": "#ffe3c2",
    "other": "#f4f5f7",
}


@dataclass
class Box:
    """One box: its title, the lines under it, its colour's family, and the layers in it."""

    title: str
    lines: list[str]
    family: str
    layers: list[str] = field(default_factory=list)


@dataclass
class Chart:
    """Boxes in the order of layers, and arrows between them by number; they only go forward."""

    boxes: list[Box] = field(default_factory=list)
    arrows: list[tuple[int, int]] = field(default_factory=list)


def of_phase(net: NetParameter, phase: int | None) -> NetParameter:
    """The net's layers of one phase; without a phase, all of them."""
    if phase is None:
        return net
    state = schema.NetParameter()
    state.CopyFrom(net)
    state.state.phase = phase
    return filter_net(state)


def family(layer: LayerParameter) -> str:
    """Which colour a layer has."""
    if layer.type not in LAYERS and layer.type.endswith("Loss"):
        return "loss"
    found = layer_class(layer.type).family
    return "data" if found == "other" and not layer.bottom else found


def describe(layer: LayerParameter) -> str:
    """A layer's type with what matters most of it: `Convolution 64 of 7x7, stride 2, pad 3`."""
    return f"{layer.type} {layer_class(layer.type).describe(layer)}".rstrip()


def chart(net: NetParameter, shapes: Shapes | None = None, rates: bool = False) -> Chart:
    """The boxes and arrows of a NetParameter's layers, with tops' shapes and lr_mult on request."""
    return _Builder(shapes or {}, rates).build(net)


class _Builder:
    def __init__(self, shapes: Shapes, rates: bool) -> None:
        self.shapes, self.rates = shapes, rates
        self.chart = Chart()
        self.makers: dict[str, list[int]] = {}  # alternatives of other phases make the same top
        self.read: set[str] = set()
        self.ranks: list[int] = []
        self.sources: set[int] = set()

    def build(self, net: NetParameter) -> Chart:
        for layer in net.layer:
            if issubclass(layer_class(layer.type), Split):
                self._alias(layer)
            elif not self._joins(layer):
                self._add(layer)
        return self.chart

    def _alias(self, layer: LayerParameter) -> None:
        for top in layer.top:
            self.makers[top] = self.makers.get(layer.bottom[0], [])

    def _joins(self, layer: LayerParameter) -> bool:
        """In-place layers stand in the box of the layer before, unless others read its result."""
        name = layer.bottom[0] if len(layer.bottom) == 1 else ""
        makers = self.makers.get(name, [])
        if list(layer.top) != [name] or name in self.read or len(makers) != 1:
            return False
        box = self.chart.boxes[makers[0]]
        box.lines.append(describe(layer) + self._rates(layer))
        box.layers.append(layer.name)
        return True

    def _rates(self, layer: LayerParameter) -> str:
        if not self.rates or not layer.param:
            return ""
        return f" (lr_mult {', '.join(f'{spec.lr_mult:g}' for spec in layer.param)})"

    def _add(self, layer: LayerParameter) -> None:
        number = len(self.chart.boxes)
        lines = [describe(layer) + self._rates(layer)]
        phases = [rule.phase for rule in layer.include if rule.HasField("phase")]
        if phases:
            lines[0] += f", {' and '.join(schema.Phase.Name(phase) for phase in phases)} only"
        makers = [(name, m) for name in layer.bottom for m in self.makers.get(name, [])]
        self.read.update(layer.bottom)
        near = [m for _, m in makers if m not in self.sources]
        rank = 1 + max((self.ranks[m] for m in near), default=-1)
        far = {name: m for name, m in makers if m in self.sources and rank - self.ranks[m] > FAR}
        arrows = {m for name, m in makers if name not in far}
        self.chart.arrows += sorted((m, number) for m in arrows)
        if far:
            lines.append(f"reads {', '.join(far)}")
        shapes = ["x".join(map(str, self.shapes[top])) for top in layer.top if self.shapes.get(top)]
        lines += [f"gives {', '.join(shapes)}"] if shapes else []
        self.chart.boxes.append(Box(layer.name, lines, family(layer), [layer.name]))
        self.ranks.append(1 + max((self.ranks[m] for m in arrows), default=-1))
        if not layer.bottom:
            self.sources.add(number)
        for top in layer.top:
            alternative = top in self.makers and top not in self.read
            self.makers[top] = [*self.makers[top], number] if alternative else [number]
