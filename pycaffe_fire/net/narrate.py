"""Caffe's log lines about a net being built, for people and programs that read its logs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .. import schema
from ..schema.proto import NetParameter

if TYPE_CHECKING:
    from .wiring import Wiring

log = logging.getLogger("pycaffe_fire.dumps")

BYTES = 4  # of a float32


def _listening(net: Wiring) -> bool:
    """One of the nets that share a training batch speaks for all."""
    return log.isEnabledFor(logging.INFO) and 0 in net.context.own_leaves


def begin(net: Wiring, param: NetParameter) -> None:
    if _listening(net):
        log.info("Initializing net from parameters: \n%s", schema.to_text(param))


def layer(net: Wiring, index: int) -> None:
    """What went in and came out of the layer just made, and the memory of all data so far."""
    if not _listening(net):
        return
    made, bottoms, tops = net.layers[index], net.bottoms[index], net.tops[index]
    log.info("Creating layer %s", made.name)
    for blob in bottoms:
        log.info("%s <- %s", made.name, blob.name)
    for blob in tops:
        in_place = any(blob is bottom for bottom in bottoms)
        log.info("%s -> %s%s", made.name, blob.name, " (in-place)" if in_place else "")
    log.info("Setting up %s", made.name)
    for blob, weight in zip(tops, made.loss_weights, strict=False):
        log.info("Top shape: %s", blob.shape_string())
        if weight:
            log.info("    with loss weight %g", weight)
    net.values_so_far += sum(blob.count for blob in tops)
    log.info("Memory required for data: %d", net.values_so_far * BYTES)


def end(net: Wiring) -> None:
    """Who takes part in the backward pass, and what comes out of the net."""
    if not _listening(net):
        return
    for made, needs in zip(reversed(net.layers), reversed(net.need_backward), strict=True):
        verb = "needs" if needs else "does not need"
        log.info("%s %s backward computation.", made.name, verb)
    for name in net.outputs:
        log.info("This network produces output %s", name)
    log.info("Network initialization done.")
