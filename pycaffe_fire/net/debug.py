"""debug_info: mean absolute values of everything a layer touched, in Caffe's lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .net import Net

log = logging.getLogger("pycaffe_fire")


def _mean_abs(array: Any) -> str:
    return f"{float(np.abs(np.asarray(array, np.float64)).mean()):.6g}" if array.size else "0"


def forward(net: Net, index: int) -> None:
    layer = net.layers[index]
    for blob in net.tops[index]:
        log.info(
            "    [Forward] Layer %s, top blob %s data: %s",
            layer.name, blob.name, _mean_abs(blob.data),
        )  # fmt: skip
    for i, blob in enumerate(layer.blobs):
        log.info(
            "    [Forward] Layer %s, param blob %d data: %s", layer.name, i, _mean_abs(blob.data)
        )


def backward(net: Net, index: int) -> None:
    layer = net.layers[index]
    flags = zip(net.bottoms[index], net.propagate_down[index], strict=True)
    for blob in [b for b, wanted in flags if wanted]:
        log.info(
            "    [Backward] Layer %s, bottom blob %s diff: %s",
            layer.name, blob.name, _mean_abs(blob.diff),
        )  # fmt: skip
    for i, blob in enumerate(layer.blobs):
        if layer.param_propagate_down[i]:
            log.info(
                "    [Backward] Layer %s, param blob %d diff: %s",
                layer.name, i, _mean_abs(blob.diff),
            )  # fmt: skip


def update(net: Net, rate: float) -> None:
    for p in net.parameters.items:
        log.info(
            "    [Update] Layer %s, param %s data: %s; diff: %s (lr %g)",
            p.name.rsplit("[", 1)[0], p.name, _mean_abs(p.blob.data), _mean_abs(p.blob.diff),
            rate * p.lr_mult,
        )  # fmt: skip
