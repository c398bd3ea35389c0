"""debug_info: mean absolute values of everything a layer touched, in Caffe's lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from ..backend.tensor import Array

if TYPE_CHECKING:
    from ..backend.blob import Blob
    from ..layers import Layer
    from .net import Net

log = logging.getLogger("pycaffe_fire")


def _display_name(layer: Layer, index: int) -> str:
    """A parameter's name if it has one, else its number."""
    specs = layer.param.param
    return (specs[index].name if index < len(specs) else "") or str(index)


def _array(blob: Blob, what: str) -> Array:
    """A blob's data or diff, from whatever device, in double precision."""
    return np.asarray(getattr(blob.backend.host_view(blob), what), np.float64)


def _mean_abs(blob: Blob, what: str) -> str:
    array = _array(blob, what)
    return f"{float(np.abs(array).mean()):.6g}" if array.size else "0"


def forward(net: Net, index: int) -> None:
    layer = net.layers[index]
    for blob in net.tops[index]:
        log.info(
            "    [Forward] Layer %s, top blob %s data: %s",
            layer.name, blob.name, _mean_abs(blob, "data"),
        )  # fmt: skip
    for i, blob in enumerate(layer.blobs):
        log.info(
            "    [Forward] Layer %s, param blob %s data: %s",
            layer.name, _display_name(layer, i), _mean_abs(blob, "data"),
        )  # fmt: skip


def backward(net: Net, index: int) -> None:
    layer = net.layers[index]
    flags = zip(net.bottoms[index], net.propagate_down[index], strict=True)
    for blob in [b for b, wanted in flags if wanted]:
        log.info(
            "    [Backward] Layer %s, bottom blob %s diff: %s",
            layer.name, blob.name, _mean_abs(blob, "diff"),
        )  # fmt: skip
    for i, blob in enumerate(layer.blobs):
        if layer.param_propagate_down[i]:
            log.info(
                "    [Backward] Layer %s, param blob %d diff: %s",
                layer.name, i, _mean_abs(blob, "diff"),
            )  # fmt: skip


def all_params(net: Net) -> None:
    """Norms over the whole net, after a complete backward pass."""
    norms = {}
    for what in ("data", "diff"):
        arrays = [_array(p.blob, what) for p in net.parameters.items]
        norms[what] = (
            sum(float(np.abs(a).sum()) for a in arrays),
            sum(float((a * a).sum()) for a in arrays) ** 0.5,
        )
    (l1_data, l2_data), (l1_diff, l2_diff) = norms["data"], norms["diff"]
    log.info(
        "    [Backward] All net params (data, diff): L1 norm = (%.6g, %.6g); "
        "L2 norm = (%.6g, %.6g)",
        l1_data, l1_diff, l2_data, l2_diff,
    )  # fmt: skip


def update(net: Net) -> None:
    owned = {id(p.blob) for p in net.parameters.items}
    for layer in net.layers:
        for i, blob in enumerate(layer.blobs):
            if id(blob) in owned:
                owned.remove(id(blob))
                log.info(
                    "    [Update] Layer %s, param %s data: %s; diff: %s",
                    layer.name, _display_name(layer, i), _mean_abs(blob, "data"),
                    _mean_abs(blob, "diff"),
                )  # fmt: skip
