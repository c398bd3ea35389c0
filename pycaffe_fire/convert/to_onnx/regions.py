"""ROIPooling and ROIAlign, which ONNX has, and PSROIPooling from running sums, which it has
not."""

from __future__ import annotations

import numpy as np

from ...layers.psroi_pooling import MIN_SIDE
from ..dims import Dim, Shape, number
from .graph import Graph, Tensor
from .registry import Part, converts


def _rows(graph: Graph, regions: Tensor) -> str:
    return graph.reshape(regions.name, regions.shape, (regions.shape[0], Dim(5)))


@converts("ROIPooling")
def roi_pooling(graph: Graph, part: Part) -> str:
    param = part.param.roi_pooling_param
    return graph.op(
        "MaxRoiPool", part.x.name, _rows(graph, part.bottoms[1]),
        pooled_shape=[int(size) for size in part.tops[0][2:]],
        spatial_scale=float(param.spatial_scale),
    )  # fmt: skip


@converts("ROIAlign")
def roi_align(graph: Graph, part: Part) -> str:
    param = part.param.roi_align_param
    rois = _rows(graph, part.bottoms[1])
    image = graph.op("Reshape", graph.slice(rois, 1, 0, 1), graph.integers([-1]))
    boxes = graph.slice(rois, 1, 1, 5)
    if param.roi_end_mode:
        boxes = graph.op("Add", boxes, graph.constant(np.array([[0, 0, 1, 1]])))
    corner = {"coordinate_transformation_mode": "output_half_pixel"} if graph.opset >= 16 else {}
    return graph.op(
        "RoiAlign", part.x.name, boxes, graph.cast(image, np.int64), mode="avg",
        output_height=int(param.pooled_h), output_width=int(param.pooled_w),
        sampling_ratio=max(0, int(param.sampling_ratio)),
        spatial_scale=float(param.spatial_scale), **corner,
    )  # fmt: skip


def _rounded(graph: Graph, x: str) -> str:
    """To the nearest integer, halves away from 0."""
    whole = graph.op("Floor", graph.op("Add", graph.op("Abs", x), graph.constant(0.5)))
    return graph.op("Mul", graph.op("Sign", x), whole)


def _edges(
    graph: Graph, part: Part, ends: tuple[str, str], limit: int, shape: list[int]
) -> list[str]:
    """First and last + 1 pixel of each bin along one axis, as integers of the given shape."""
    param = part.param.psroi_pooling_param
    group, scale = int(param.group_size), graph.constant(param.spatial_scale)
    low = graph.op("Mul", _rounded(graph, ends[0]), scale)
    high = graph.op("Mul", graph.scaled(_rounded(graph, ends[1]), 1, 1.0), scale)
    side = graph.op("Max", graph.op("Sub", high, low), graph.constant(MIN_SIDE))
    size = graph.op("Div", side, graph.constant(group))
    steps = np.arange(group + 1, dtype=np.float32)
    found = []
    for step, rounding in ((steps[:-1], "Floor"), (steps[1:], "Ceil")):
        at = graph.op("Add", graph.op("Mul", size, graph.constant(step[None])), low)
        edge = graph.op(
            "Clip", graph.op(rounding, at), graph.constant(0), graph.constant(limit)
        )  # fmt: skip
        found.append(graph.op("Reshape", graph.cast(edge, np.int64), graph.integers(shape)))
    return [found[0], graph.op("Max", found[0], found[1])]


def _running_sums(graph: Graph, x: Tensor) -> str:
    """Sums of all pixels above and to the left, with a row and a column of zeros; flat."""
    y = graph.cast(x.name, np.float64)
    for axis in (2, 3):
        y = graph.op("CumSum", y, graph.constant(axis, np.int64))
    zero = graph.constant(0, np.float64)
    y = graph.op("Pad", y, graph.integers([0, 0, 1, 1, 0, 0, 0, 0]), zero)
    return graph.op("Reshape", y, graph.integers([-1]))


@converts("PSROIPooling")
def psroi_pooling(graph: Graph, part: Part) -> str:
    """Bin (i, j) averages channel (c k + i) k + j: four cells of the running sums."""
    param, x = part.param.psroi_pooling_param, part.x
    group, shape = int(param.group_size), x.shape
    rois = _rows(graph, part.bottoms[1])
    image, *corners = graph.ops("Split", [rois, graph.integers([1] * 5)], 5, axis=1)
    left, top, right, bottom = corners
    rows = _edges(graph, part, (top, bottom), number(shape[2]), [-1, 1, group, 1])
    columns = _edges(graph, part, (left, right), number(shape[3]), [-1, 1, 1, group])
    sums, planes = _running_sums(graph, x), _planes(graph, image, part, shape)
    cells = [[_cell(graph, sums, planes, row, column, shape) for column in columns] for row in rows]
    inside = graph.op("Sub", cells[1][1], cells[0][1])
    outside = graph.op("Sub", cells[1][0], cells[0][0])
    total = graph.op("Sub", inside, outside)
    area = graph.op(
        "Mul", graph.op("Sub", rows[1], rows[0]), graph.op("Sub", columns[1], columns[0])
    )  # fmt: skip
    divisor = graph.cast(graph.op("Max", area, graph.constant(1, np.int64)), np.float64)
    return graph.cast(graph.op("Div", total, divisor), np.float32)


def _planes(graph: Graph, image: str, part: Part, shape: Shape) -> str:
    """Which plane of the map each bin of each region reads: regions x outputs x k x k."""
    out = part.tops[0]
    channels = np.arange(number(shape[1])).reshape([1, *(int(size) for size in out[1:])])
    images = graph.op("Reshape", graph.cast(image, np.int64), graph.integers([-1, 1, 1, 1]))
    first = graph.op("Mul", images, graph.constant(number(shape[1]), np.int64))
    return graph.op("Add", first, graph.constant(channels, np.int64))


def _cell(graph: Graph, sums: str, plane: str, row: str, column: str, shape: Shape) -> str:
    at = plane
    for size, place in ((number(shape[2]) + 1, row), (number(shape[3]) + 1, column)):
        at = graph.op("Add", graph.op("Mul", at, graph.constant(size, np.int64)), place)
    return graph.op("Gather", sums, at, axis=0)
