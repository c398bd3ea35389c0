"""Nets from logs, made fit for the board: they write nothing, run no code, and answer for images.

Works on messages alone.
"""

from __future__ import annotations

from .. import schema
from ..errors import NetError
from ..layers.base import layer_class
from ..layers.hdf5_output import HDF5Output
from ..layers.split import Split
from ..net.deploy import Deployed, derive_deploy
from ..pycaffe.python_layer import Python
from ..schema.proto import NetParameter


def harmless(net: NetParameter) -> NetParameter:
    """A copy of the net that writes no files; one with Python layers is refused."""
    made = schema.NetParameter()
    made.CopyFrom(net)
    del made.layer[:]
    for layer in net.layer:
        kind = layer_class(layer.type)
        if issubclass(kind, Python):
            raise NetError(
                f'layer "{layer.name}" (Python): the board runs no code of a net; use pycaffe'
            )
        if issubclass(kind, HDF5Output):
            continue
        kept = made.layer.add()
        kept.CopyFrom(layer)
        if kept.HasField("detection_output_param"):
            kept.detection_output_param.ClearField("save_output_param")
    return made


def without_splits(net: NetParameter) -> NetParameter:
    """A copy of the net as somebody would write it: blobs that several layers read have one
    name."""
    made = schema.NetParameter()
    made.CopyFrom(net)
    del made.layer[:]
    alias: dict[str, str] = {}
    for layer in net.layer:
        if issubclass(layer_class(layer.type), Split):
            alias |= {top: alias.get(layer.bottom[0], layer.bottom[0]) for top in layer.top}
            continue
        kept = made.layer.add()
        kept.CopyFrom(layer)
        for i, name in enumerate(kept.bottom):
            kept.bottom[i] = alias.get(name, name)
    return made


def deploy_net(test: NetParameter, shape: list[int]) -> Deployed:
    """The net that answers for images of `shape` (channels, height, width), made of a test net."""
    return derive_deploy(without_splits(harmless(test)), shape)
