"""pycaffe_fire: pycaffe's names on a trainer that runs on one core or a cluster.

import pycaffe_fire as caffe
net = caffe.Net("deploy.prototxt", caffe.TEST, weights="model.caffemodel")
"""

from __future__ import annotations

from . import io, layers, proto, schema
from .blob import Blob
from .classifier import Classifier
from .defaults import (
    multiprocess,
    set_device,
    set_mode_cpu,
    set_mode_gpu,
    set_multiprocess,
    set_random_seed,
    set_solver_count,
    set_solver_rank,
    solver_count,
    solver_rank,
)
from .detector import Detector
from .errors import FireError
from .glogging import init_log, log
from .layers import layer_type_list, register_layer
from .layers.python import PythonLayer as Layer
from .layers.python import allow_python_layers
from .net import Net
from .net_spec import NetSpec, params, to_proto
from .solver.face import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    RMSPropSolver,
    SGDSolver,
    get_solver,
)
from .solver.nccl import NCCL, has_nccl
from .timer import Timer
from .version import VERSION as __version__

TRAIN: int = schema.TRAIN
TEST: int = schema.TEST

__all__ = [
    "NCCL",
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Blob",
    "Classifier",
    "Detector",
    "FireError",
    "Layer",
    "NesterovSolver",
    "Net",
    "NetSpec",
    "RMSPropSolver",
    "SGDSolver",
    "Timer",
    "__version__",
    "allow_python_layers",
    "get_solver",
    "has_nccl",
    "init_log",
    "io",
    "layer_type_list",
    "layers",
    "log",
    "multiprocess",
    "params",
    "proto",
    "register_layer",
    "set_device",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_multiprocess",
    "set_random_seed",
    "set_solver_count",
    "set_solver_rank",
    "solver_count",
    "solver_rank",
    "to_proto",
]
