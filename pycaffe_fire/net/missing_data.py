"""What to tell somebody whose data is not there: what the nets want and how to make it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from .. import schema
from ..layers import DataLayer, layer_class
from ..schema.proto import NetParameter

_DIGITS = ("digits_train_lmdb", "digits_test_lmdb")


class Wanted(NamedTuple):
    """A source that a net reads and that does not exist."""

    source: str
    what: str
    batch: int
    phase: str
    size: int


def missing_sources(nets: Iterable[NetParameter]) -> list[Wanted]:
    """The sources of filtered nets that are not there."""
    found: dict[str, Wanted] = {}
    for net in nets:
        for layer in net.layer:
            kind = layer_class(layer.type)
            if not issubclass(kind, DataLayer):
                continue
            param = kind.own_param(layer)
            source = getattr(param, "source", "")
            if not source or os.path.exists(source):
                continue
            what = kind.source_kind(layer)
            phase = "testing" if net.state.phase == schema.TEST else "training"
            size = layer.transform_param.crop_size
            found.setdefault(source, Wanted(source, what, param.batch_size, phase, size))
    return list(found.values())


def advice(missing: list[Wanted], command: str) -> list[str]:
    """Lines that say how to do without, what is wanted, and how to make it."""
    lines = []
    shape = "" if missing[0].size else " CHANNELS,HEIGHT,WIDTH"
    digits = os.path.basename(missing[0].source) in _DIGITS
    if not digits:
        lines.append(f"try the net without data: {command} --synthetic{shape}")
    for w in missing:
        crop = f", cropped to {w.size}x{w.size}" if w.size else ""
        lines.append(f"{w.phase} reads the {w.what} {w.source}: batches of {w.batch} images{crop}")
    source = missing[0].source
    if digits:
        lines.append(f"make the digits with: fire_data digits {os.path.dirname(source) or '.'}")
        return lines
    if missing[0].what == "LMDB":
        lines.append(
            "or make an LMDB from images and a list of `path label` lines with Caffe's tool: "
            "convert_imageset --resize_height=256 --resize_width=256 --shuffle IMAGES/ LIST.txt "
            f"{source} (models/README.md has the recipe for ImageNet)"
        )
    return lines
