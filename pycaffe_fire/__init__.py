"""pycaffe_fire: pycaffe's names on a trainer that runs on one core or a cluster.

import pycaffe_fire as caffe
net = caffe.Net("deploy.prototxt", caffe.TEST, weights="model.caffemodel")
"""

from __future__ import annotations

from . import schema
from .blob import Blob
from .defaults import set_device, set_mode_cpu, set_mode_gpu, set_random_seed
from .errors import FireError
from .layers import register_layer
from .layers.python import PythonLayer as Layer
from .layers.python import allow_python_layers
from .net import Net
from .solvers import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    RMSPropSolver,
    SGDSolver,
    get_solver,
    layer_type_list,
)

TRAIN: int = schema.TRAIN
TEST: int = schema.TEST

__all__ = [
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Blob",
    "FireError",
    "Layer",
    "NesterovSolver",
    "Net",
    "RMSPropSolver",
    "SGDSolver",
    "allow_python_layers",
    "get_solver",
    "layer_type_list",
    "register_layer",
    "set_device",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_random_seed",
]
