"""Drawings of nets: every layer is there, nothing overlaps, arrows lead where blobs go."""

from __future__ import annotations

import io
import re
import sys
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from pycaffe_fire import schema
from pycaffe_fire.errors import FireError
from pycaffe_fire.pycaffe import draw
from pycaffe_fire.pycaffe.draw.boxes import chart
from pycaffe_fire.pycaffe.draw.drawing import drawing
from pycaffe_fire.pycaffe.draw.layout import lay_out

MODELS = Path(__file__).parents[2] / "models"


def net(text: str) -> Any:
    return schema.parse_text(text, schema.NetParameter(), "test")


def googlenet() -> Any:
    return schema.read_net(str(MODELS / "googlenet" / "train_val.prototxt"))


def small() -> Any:
    return net(
        'name: "n" layer { name: "d" type: "Data" top: "x" top: "y" include { phase: TRAIN } }'
        'layer { name: "t" type: "Data" top: "x" top: "y" include { phase: TEST } }'
        'layer { name: "c<1>" type: "Convolution" bottom: "x" top: "c" param { lr_mult: 2 }'
        "  convolution_param { num_output: 8 kernel_size: 3 stride: 2 pad: 1 } }"
        'layer { name: "r" type: "ReLU" bottom: "c" top: "c" }'
        'layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { kernel_h: 2 } }'
        'layer { name: "late" type: "ReLU" bottom: "c" top: "c" }'
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "p" bottom: "y" top: "loss" }'
    )


def test_boxes_and_arrows() -> None:
    made = chart(small())
    assert [box.title for box in made.boxes] == ["d", "t", "c<1>", "p", "late", "loss"]
    assert made.boxes[0].lines == ["Data, TRAIN only"]
    assert made.boxes[2].lines == ["Convolution 8 of 3x3, stride 2, pad 1", "ReLU"]
    # An in-place layer that others do not see stands alone; labels close by get arrows.
    assert made.arrows == [(0, 2), (1, 2), (2, 3), (2, 4), (0, 5), (1, 5), (3, 5)]
    assert [box.family for box in made.boxes[2:]] == ["convolution", "pooling", "other", "loss"]


def test_labels_from_afar_are_notes() -> None:
    made = chart(googlenet())
    losses = [box for box in made.boxes if box.family == "loss"]
    assert len(losses) == 3 and all("reads label" in box.lines for box in losses)


def test_shapes_and_rates_on_request() -> None:
    made = chart(small(), {"c": (2, 8, 5, 5)}, rates=True)
    assert made.boxes[2].lines[0].endswith("(lr_mult 2)")
    assert "gives 2x8x5x5" in made.boxes[2].lines


@pytest.mark.parametrize("rankdir", ["TB", "BT", "LR", "RL"])
def test_nothing_overlaps_and_arrows_touch_their_boxes(rankdir: str) -> None:
    made = chart(googlenet())
    drawn = drawing(made, rankdir)
    for a, b in combinations(drawn.boxes, 2):
        apart_x = a.x + a.width < b.x or b.x + b.width < a.x
        apart_y = a.y + a.height < b.y or b.y + b.height < a.y
        assert apart_x or apart_y, (a.box.title, b.box.title)
    for box in drawn.boxes:
        assert box.x >= 0 and box.x + box.width <= drawn.width
        assert box.y >= 0 and box.y + box.height <= drawn.height
    for (start, end), curve in zip(made.arrows, drawn.curves, strict=True):
        for n, (x, y) in ((start, curve[0]), (end, curve[-1])):
            box = drawn.boxes[n]
            assert box.x - 0.1 <= x <= box.x + box.width + 0.1
            assert box.y - 0.1 <= y <= box.y + box.height + 0.1


@pytest.mark.parametrize("rankdir", ["LR", "RL"])
def test_wide_nets_wrap(rankdir: str) -> None:
    made = chart(googlenet())
    plain, wrapped = drawing(made, rankdir, longest=1e9), drawing(made, rankdir)
    assert plain.width > 7000 and max(wrapped.width, wrapped.height) < 2700
    assert drawing(made, "TB").width < 1500  # high, which is read by scrolling
    # Arrows to another row stay inside, and off the boxes of the rows that they leave.
    for curve in wrapped.curves:
        assert all(0 <= x <= wrapped.width and 0 <= y <= wrapped.height for x, y in curve)
    small = chart(net('layer { name: "d" type: "Data" top: "x" }'))
    assert drawing(small, rankdir).boxes == drawing(small, rankdir, longest=1e9).boxes


def test_arrows_around_the_end_of_a_row_cross_no_box() -> None:
    made = chart(googlenet())
    drawn = drawing(made, "LR")
    for (start, end), curve in zip(made.arrows, drawn.curves, strict=True):
        for x, y in curve:
            for number, box in enumerate(drawn.boxes):
                inside = box.x < x < box.x + box.width and box.y < y < box.y + box.height
                assert not inside or number in (start, end), box.box.title


def test_chains_are_straight_and_branches_do_not_cross() -> None:
    sizes = [(60.0, 20.0)] * 7
    found = lay_out(sizes, [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5), (0, 6)])
    x = [centre[0] for centre in found.centres]
    assert x[1] == x[3] and x[2] == x[4]
    assert (x[1] < x[2]) == (x[3] < x[4])
    assert lay_out([], []).size == (0, 0)


def test_svg_is_well_formed_and_complete() -> None:
    text = draw.draw_net(small(), "TB", "svg").decode()
    root = ElementTree.fromstring(text)
    names = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "c<1>" in names and "loss" in names
    assert len(re.findall("<path", text)) == len(chart(small()).arrows)
    assert draw.svg(small()) == text


def test_a_phase_leaves_out_the_other() -> None:
    text = draw.draw_net(small(), "LR", "svg", schema.TEST).decode()
    assert ">t</text>" in text and ">d</text>" not in text
    assert len(small().layer) == 7  # the caller's net is as it was


@pytest.mark.parametrize("ending", ["png", "jpg", "pdf", "svg"])
def test_files(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"net.{ending}"
    draw.draw_net_to_file(small(), path, "TB")
    if ending in ("png", "jpg"):
        image = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
        colours = {colour for _, colour in image.getcolors(1 << 20) or []}
        assert min(image.size) > 100 and len(colours) > 20
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FireError, match='"xyz"; known: svg, png'):
        draw.draw_net_to_file(small(), tmp_path / "net.xyz")
    with pytest.raises(FireError, match="rankdir must be one of"):
        draw.draw_net(small(), "DOWN")
    monkeypatch.setitem(sys.modules, "pydot", None)
    with pytest.raises(ImportError, match="pip install pydot"):
        draw.get_pydot_graph(small(), "LR")


class FakePydot:
    """Notes what is asked of pydot."""

    class Dot:
        def __init__(self, name: str, **options: Any) -> None:
            self.nodes: list[Any] = []
            self.edges: list[Any] = []

        def add_node(self, node: Any) -> None:
            self.nodes.append(node)

        def add_edge(self, edge: Any) -> None:
            self.edges.append(edge)

    @staticmethod
    def Node(name: str, **style: Any) -> tuple[str, Any]:
        return name, style

    @staticmethod
    def Edge(start: str, end: str, label: str) -> tuple[str, str, str]:
        return start, end, label


def test_pydot_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydot", FakePydot)
    graph = draw.get_pydot_graph(small(), "LR", phase=schema.TRAIN)
    assert len(graph.nodes) == 6 + 5
    assert ('"c<1>_Convolution"', '"c_blob"', '"8"') in graph.edges
    assert ('"x_blob"', '"c<1>_Convolution"', '""') in graph.edges
