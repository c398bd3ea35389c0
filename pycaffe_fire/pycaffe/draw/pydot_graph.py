"""A net as a pydot graph, for Graphviz to lay out."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...errors import BackendError
from ...schema.proto import LayerParameter, NetParameter
from .boxes import COLOURS, describe, family, of_phase
from .labels import get_edge_label

_BLOB = {"shape": "octagon", "style": "filled", "fillcolor": "#E0E0E0"}


class MissingPydotError(BackendError, ImportError):
    """pydot is not installed."""


def get_pydot_graph(
    caffe_net: NetParameter,
    rankdir: str = "LR",
    label_edges: bool = True,
    phase: int | None = None,
    display_lrm: bool = False,
) -> Any:
    """Layers as boxes, blobs as octagons; arrows say how many channels a layer makes."""
    try:
        pydot = import_module("pydot")
    except ImportError:
        raise MissingPydotError(
            "get_pydot_graph needs pydot (pip install pydot) and, to lay graphs out, Graphviz; "
            "draw_net draws SVG, PNG and PDF without them"
        ) from None
    graph = pydot.Dot(caffe_net.name or "Net", graph_type="digraph", rankdir=rankdir)
    blobs: set[str] = set()
    for layer in of_phase(caffe_net, phase).layer:
        node = f"{layer.name}_{layer.type}"
        label = f"{layer.name}\\n{describe(layer)}"
        if display_lrm and layer.param:
            label += f"\\nlr_mult {', '.join(f'{spec.lr_mult:g}' for spec in layer.param)}"
        colour = COLOURS[family(layer)]
        graph.add_node(
            pydot.Node(_quoted(node), label=_quoted(label), shape="box", style="filled",
                       fillcolor=_quoted(colour))
        )  # fmt: skip
        blobs.update(layer.bottom, layer.top)
        for name in layer.bottom:
            graph.add_edge(pydot.Edge(_quoted(f"{name}_blob"), _quoted(node), label='""'))
        for name in layer.top:
            text = _edge_text(layer) if label_edges else '""'
            graph.add_edge(pydot.Edge(_quoted(node), _quoted(f"{name}_blob"), label=text))
    for name in sorted(blobs):
        style = {key: _quoted(value) for key, value in _BLOB.items()}
        graph.add_node(pydot.Node(_quoted(f"{name}_blob"), label=_quoted(name), **style))
    return graph


def _edge_text(layer: LayerParameter) -> str:
    return _quoted(get_edge_label(layer).strip('"'))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
