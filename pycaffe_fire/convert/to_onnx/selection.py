"""Layers that move, pick or repeat elements."""

from __future__ import annotations

import numpy as np

from ...layers.rearrange import Rearrange
from ..dims import Dim, merged, number
from .graph import END, Graph
from .registry import Part, converts


@converts("Reshape", "Flatten")
def reshape(graph: Graph, part: Part) -> str:
    return graph.reshape(part.x.name, part.x.shape, part.tops[0])


@converts("Permute")
def permute(graph: Graph, part: Part) -> str:
    layer = part.layer
    assert isinstance(layer, Rearrange)
    return graph.op("Transpose", part.x.name, perm=list(layer.move(part.bottom_blobs[0]).order))


@converts("ShuffleChannel", "Reorg")
def rearrange(graph: Graph, part: Part) -> str:
    """Samples stay where they are; the rest of the axes is split, permuted and merged."""
    layer, batch = part.layer, part.x.shape[0]
    assert isinstance(layer, Rearrange)
    move = layer.move(part.bottom_blobs[0])
    split = (batch, *(Dim(size) for size in move.split[1:]))
    y = graph.op(
        "Transpose", graph.reshape(part.x.name, part.x.shape, split), perm=list(move.order)
    )
    return graph.reshape(y, tuple(split[axis] for axis in move.order), part.tops[0])


@converts("Flip")
def flip(graph: Graph, part: Part) -> str:
    param, x = part.param.flip_param, part.x
    y = x.name
    for axis, reverse in ((2, param.flip_height), (3, param.flip_width)):
        if reverse:
            y = graph.slice(y, axis, -1, -number(x.shape[axis]) - 1, -1)
    return graph.op("Identity", y) if y == x.name else y


@converts("Concat")
def concat(graph: Graph, part: Part) -> str:
    param = part.param.concat_param
    given = param.concat_dim if param.HasField("concat_dim") else param.axis
    if len(part.bottoms) == 1:
        return part.x.name
    axis = part.layer.axis(part.bottom_blobs[0], given)
    return graph.op("Concat", *(x.name for x in part.bottoms), axis=axis)


@converts("Slice")
def slices(graph: Graph, part: Part) -> list[str]:
    param, x = part.param.slice_param, part.x
    given = param.slice_dim if param.HasField("slice_dim") else param.axis
    axis = part.layer.axis(part.bottom_blobs[0], given)
    if len(part.tops) == 1:
        return [x.name]
    if not x.shape[axis].varies:
        sizes = graph.integers(top[axis] for top in part.tops)
        return graph.ops("Split", [x.name, sizes], len(part.tops), axis=axis)
    if not param.slice_point:
        count = {"num_outputs": len(part.tops)} if graph.opset >= 18 else {}
        return graph.ops("Split", [x.name], len(part.tops), axis=axis, **count)
    starts = [0, *param.slice_point]
    ends = [*param.slice_point, END]
    return [graph.slice(x.name, axis, a, b) for a, b in zip(starts, ends, strict=True)]


@converts("Crop")
def crop(graph: Graph, part: Part) -> str:
    param, (x, like) = part.param.crop_param, part.bottoms
    start = part.layer.axis(part.bottom_blobs[0], param.axis)
    given = list(param.offset)
    name = x.name
    for axis in range(start, len(x.shape)):
        offset = int((given if len(given) > 1 else (given or [0]) * len(x.shape))[
            axis - start if len(given) > 1 else 0
        ])  # fmt: skip
        size, whole = like.shape[axis], x.shape[axis]
        if not offset and (int(size), size.symbol) == (int(whole), whole.symbol):
            continue
        if not size.varies:
            name = graph.slice(name, axis, offset, offset + int(size))
            continue
        length = graph.op("Gather", graph.op("Shape", like.name), graph.integers([axis]), axis=0)
        first = graph.integers([offset])
        name = graph.op(
            "Slice", name, first, graph.op("Add", length, first), graph.integers([axis])
        )
    return name


@converts("Tile")
def tile(graph: Graph, part: Part) -> str:
    param = part.param.tile_param
    axis = part.layer.axis(part.bottom_blobs[0], param.axis)
    repeats = [param.tiles if i == axis else 1 for i in range(len(part.x.shape))]
    return graph.op("Tile", part.x.name, graph.integers(repeats))


@converts("ArgMax")
def argmax(graph: Graph, part: Part) -> str:
    """Of equals the last comes first, where TopK takes the first: so it looks from behind."""
    param, x, by_axis = part.param.argmax_param, part.x, part.param.argmax_param.HasField("axis")
    name, shape, axis = x.name, x.shape, 1
    if by_axis:
        axis = part.layer.axis(part.bottom_blobs[0], param.axis)
    else:
        shape = (x.shape[0], merged(x.shape[1:]))
        name = graph.reshape(x.name, x.shape, shape)
    values, places = "", ""
    if param.top_k == 1:
        found = graph.op("ArgMax", name, axis=axis, keepdims=1, select_last_index=1)
        places = graph.cast(found, np.float32)
        if param.out_max_val:
            values = graph.reduce("ReduceMax", name, [axis])
    else:
        turned = graph.slice(name, axis, -1, -END, -1)
        values, found = graph.ops("TopK", [turned, graph.integers([param.top_k])], 2, axis=axis)
        last = graph.op("Sub", graph.constant([shape[axis] - 1], np.int64), found)
        places = graph.cast(last, np.float32)
    if by_axis:
        return values if param.out_max_val else places
    pair = graph.op("Concat", places, values, axis=1) if param.out_max_val else places
    inner = (shape[0], Dim(param.top_k * (1 + param.out_max_val)))
    return graph.reshape(pair, inner, part.tops[0])


@converts("BatchReindex")
def batch_reindex(graph: Graph, part: Part) -> str:
    return graph.op("Gather", part.x.name, graph.cast(part.bottoms[1].name, np.int64), axis=0)


@converts("Filter")
def keep_selected(graph: Graph, part: Part) -> list[str]:
    *inputs, selector = part.bottoms
    rows = graph.reshape(selector.name, selector.shape, (selector.shape[0],))
    kept = graph.cast(rows, np.bool_)
    return [graph.op("Compress", x.name, kept, axis=0) for x in inputs]


@converts("Embed")
def embed(graph: Graph, part: Part) -> str:
    places = graph.cast(part.x.name, np.int64)
    y = graph.op("Gather", part.weight(graph, 0), places, axis=0)
    return graph.op("Add", y, part.weight(graph, 1)) if len(part.blobs) > 1 else y


@converts("Parameter")
def parameter(graph: Graph, part: Part) -> str:
    return part.weight(graph, 0)
