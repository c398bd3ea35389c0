"""pycaffe's draw: nets as drawings. SVG and pixels are drawn here, without Graphviz.

`get_pydot_graph` is for those who want Graphviz's own layout; it needs pydot.
"""

from __future__ import annotations

import os

from ...errors import FireError, NetError
from ...schema.files import replacing
from ...schema.proto import NetParameter
from ..proto import caffe_pb2 as caffe_pb2
from .boxes import Shapes, chart, of_phase
from .drawing import DIRECTIONS, Drawing, drawing, to_pixels, to_svg
from .labels import (
    BLOB_STYLE,
    LAYER_STYLE_DEFAULT,
    NEURON_LAYER_STYLE,
    choose_color_by_layertype,
    get_edge_label,
    get_layer_label,
    get_layer_lr_mult,
    get_pooling_types_dict,
)
from .pydot_graph import get_pydot_graph

__all__ = [
    "BLOB_STYLE",
    "LAYER_STYLE_DEFAULT",
    "NEURON_LAYER_STYLE",
    "choose_color_by_layertype",
    "draw_net",
    "draw_net_to_file",
    "get_edge_label",
    "get_layer_label",
    "get_layer_lr_mult",
    "get_pooling_types_dict",
    "get_pydot_graph",
    "svg",
]

# Endings of file names to Pillow's names.
_PIXELS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "gif": "GIF", "bmp": "BMP", "pdf": "PDF"}


def svg(
    caffe_net: NetParameter,
    rankdir: str = "TB",
    phase: int | None = None,
    display_lrm: bool = False,
    shapes: Shapes | None = None,
) -> str:
    """A NetParameter as an SVG document; `shapes` of blobs are shown where given."""
    return to_svg(_drawing(caffe_net, rankdir, phase, display_lrm, shapes), caffe_net.name)


def draw_net(
    caffe_net: NetParameter,
    rankdir: str = "LR",
    ext: str = "png",
    phase: int | None = None,
    display_lrm: bool = False,
) -> bytes:
    """A NetParameter as a drawing file's contents; `phase` leaves out the other's layers."""
    kind = ext.lower()
    if kind == "svg":
        return svg(caffe_net, rankdir, phase, display_lrm).encode()
    if kind in _PIXELS:
        return to_pixels(_drawing(caffe_net, rankdir, phase, display_lrm, None), _PIXELS[kind])
    if kind in ("dot", "gv", "raw"):
        graph = get_pydot_graph(caffe_net, rankdir, phase=phase, display_lrm=display_lrm)
        text: str = graph.to_string()
        return text.encode()
    raise FireError(
        f'drawings cannot be drawn as "{ext}"; known: svg, {", ".join(_PIXELS)}, and dot with pydot'
    )


def draw_net_to_file(
    caffe_net: NetParameter,
    filename: str | os.PathLike[str],
    rankdir: str = "LR",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Write `draw_net` to a file; the end of its name says which kind of drawing."""
    kind = os.path.splitext(os.fspath(filename))[1][1:]
    content = draw_net(caffe_net, rankdir, kind, phase, display_lrm)
    with replacing(filename, FireError) as temporary:
        temporary.write_bytes(content)


def _drawing(
    net: NetParameter, rankdir: str, phase: int | None, display_lrm: bool, shapes: Shapes | None
) -> Drawing:
    if rankdir not in DIRECTIONS:
        raise NetError(f'rankdir must be one of {", ".join(DIRECTIONS)}, got "{rankdir}"')
    return drawing(chart(of_phase(net, phase), shapes, display_lrm), rankdir)
