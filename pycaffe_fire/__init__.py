"""pycaffe_fire: pycaffe's names on a trainer that runs on one core or a cluster.

    import pycaffe_fire as caffe
    net = caffe.Net("deploy.prototxt", caffe.TEST, weights="model.caffemodel")
"""

from __future__ import annotations

from . import schema
from .blob import Blob
from .errors import FireError
from .layers import Layer, register_layer
from .net import Net

TRAIN: int = schema.TRAIN
TEST: int = schema.TEST

__all__ = ["TEST", "TRAIN", "Blob", "FireError", "Layer", "Net", "register_layer"]


def set_mode_cpu() -> None:
    pass
