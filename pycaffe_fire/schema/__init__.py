"""Caffe's messages, prototxts, weights and state files: everything that is read or written.

`schema.NetParameter()`, `schema.LayerParameter`, `schema.TRAIN` and every other message, enum and
top-level enum value of proto/caffe.proto are attributes of this package.
"""

from __future__ import annotations

from . import proto
from .proto import *  # noqa: F403
from .reader import layer_lines, locate, parse_text, read_net, read_solver
from .upgrade import upgrade_net, upgrade_solver
from .weights import (
    LayerWeights,
    SolverStateFile,
    read_blob,
    read_state,
    read_weights,
    write_blob,
    write_state,
    write_weights,
)
from .writer import to_text, write_text

__all__ = [
    "LayerWeights",
    "SolverStateFile",
    "layer_lines",
    "locate",
    "parse_text",
    "read_blob",
    "read_net",
    "read_solver",
    "read_state",
    "read_weights",
    "to_text",
    "upgrade_net",
    "upgrade_solver",
    "write_blob",
    "write_state",
    "write_text",
    "write_weights",
    *proto.__all__,
]
