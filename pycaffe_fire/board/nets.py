"""A run's net to look at: boxes and arrows, and what the log and a snapshot say of a layer."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from .. import schema
from ..errors import FireError
from ..pycaffe.draw.boxes import chart
from ..pycaffe.draw.drawing import drawing
from ..solver.histograms import histogram
from .deploy import without_splits
from .files import RunFile, parsed
from .follow import RunLog
from .images import filters_png

MOST_BLOBS = 16  # of one layer


def drawn(net: dict[str, Any]) -> dict[str, Any]:
    """The net's drawing: boxes with the layers in them, curves as points, and the size."""
    placed = drawing(chart(without_splits(parsed(net))), "TB")
    return {
        "width": placed.width,
        "height": placed.height,
        "boxes": [
            {
                "x": p.x, "y": p.y, "width": p.width, "height": p.height, "title": p.box.title,
                "lines": p.box.lines, "family": p.box.family, "layers": p.box.layers,
            }
            for p in placed.boxes
        ],
        "curves": [[[round(v, 1) for v in point] for point in curve] for curve in placed.curves],
    }  # fmt: skip


def layer_facts(
    log: RunLog, net: dict[str, Any], name: str, model: RunFile | None
) -> dict[str, Any]:
    """Raises KeyError if there is no such layer."""
    param = next((n for n in without_splits(parsed(net)).layer if n.name == name), None)
    facts = next((n for n in net["layers"] if n["name"] == name), None)
    if param is None or facts is None:
        raise KeyError(name)
    shapes = _shapes(net)
    with log.lock:
        time = next((entry for entry in log.run.profile if entry["name"] == name), None)
        looks = [_look(event, name) for event in log.histograms]
    return {
        "name": name,
        "type": facts["type"],
        "prototxt": schema.to_text(param),
        "bottoms": [[bottom, shapes.get(bottom)] for bottom in param.bottom],
        "tops": [list(pair) for pair in zip(param.top, facts["tops"], strict=False)],
        "parameters": facts["parameters"],
        "memory": facts["memory"],
        "flops": 2 * facts["multiply_adds"],
        "time": time,
        "histograms": [look for look in looks if look["parameters"]],
        "weights": _weights(model, name) if model else [],
    }


def _shapes(net: dict[str, Any]) -> dict[str, list[int]]:
    """Of all blobs, by the names that people gave them."""
    layers = parsed(net).layer
    known: dict[str, list[int]] = {}
    for layer, facts in zip(layers, net["layers"], strict=False):
        known |= dict(zip(layer.top, facts["tops"], strict=False))
    return known


def _look(event: dict[str, Any], layer: str) -> dict[str, Any]:
    """A layer's part of a histograms event; parameters are called LAYER[0], LAYER[1], ..."""
    rows = [row for row in event["parameters"] if row["name"].rpartition("[")[0] == layer]
    return {"iteration": event["iteration"], "parameters": rows}


def _weights(model: RunFile, name: str) -> list[dict[str, Any]]:
    return [
        {
            "shape": list(array.shape),
            "mean": float(array.mean()) if array.size else 0.0,
            "std": float(array.std()) if array.size else 0.0,
            "histogram": vars(histogram(np.asarray(array).reshape(-1))),
        }
        for array in weights_of(model, name)
    ]


_last: tuple[tuple[str, float], dict[str, list[Any]]] | None = None
_lock = threading.Lock()


def weights_of(model: RunFile, name: str) -> list[Any]:
    """The arrays of one layer; the file read last stays in memory."""
    global _last
    key = (model.path, os.stat(model.path).st_mtime)
    with _lock:
        if _last is None or _last[0] != key:
            layers = schema.read_weights(model.path)
            _last = key, {layer.name: list(layer.blobs) for layer in layers}
        return _last[1].get(name, [])[:MOST_BLOBS]


def filters(model: RunFile, name: str, index: int) -> bytes:
    """One weight blob as a PNG file."""
    arrays = weights_of(model, name)
    if not 0 <= index < len(arrays) or not arrays[index].size:
        raise FireError(f'layer "{name}" has no weight blob {index}')
    return filters_png(np.asarray(arrays[index]))
