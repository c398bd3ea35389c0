"""Whole files of old forms to new ones, as Caffe's upgrade tools do it."""

from __future__ import annotations

import os

from google.protobuf.message import DecodeError

from ..errors import WeightsError
from .files import HDF5_SIGNATURE, describe, is_foreign, read_head, replacing
from .proto import NetParameter
from .reader import read_net, read_solver
from .upgrade import upgrade_net
from .writer import write_text

PathLike = str | os.PathLike[str]


def upgrade_net_text(source: PathLike, target: PathLike) -> None:
    """A net's prototxt of any age in the newest form."""
    write_text(read_net(source), target)


def upgrade_solver_text(source: PathLike, target: PathLike) -> None:
    """A solver's prototxt of any age in the newest form."""
    write_text(read_solver(source), target)


def upgrade_net_binary(source: PathLike, target: PathLike) -> None:
    """A .caffemodel of any age in the newest form, its weights as they are."""
    net = upgrade_net(_read_binary(source), os.fspath(source))
    with replacing(target, WeightsError) as temporary:
        temporary.write_bytes(net.SerializeToString())


def _read_binary(path: PathLike) -> NetParameter:
    name, head = os.fspath(path), read_head(path, WeightsError, ".caffemodel")
    if is_foreign(head):
        hint = ", which is never of an old form" if head.startswith(HDF5_SIGNATURE) else ""
        raise WeightsError(f"{name}: not a .caffemodel: looks like {describe(head)}{hint}")
    try:
        with open(path, "rb") as file:
            return NetParameter.FromString(file.read())
    except DecodeError:
        raise WeightsError(f"{name}: damaged, or not a .caffemodel at all") from None
