"""pycaffe as scripts know it: Net, solvers, io, Classifier, NetSpec, draw, process-wide modes."""

from __future__ import annotations

from .. import schema
from ..backend.blob import Blob
from ..errors import FireError
from ..layers import layer_type_list, register_layer
from . import classifier, coord_map, detector, draw, io, net_spec, proto
from .classifier import Classifier
from .detector import Detector
from .glogging import init_log, log
from .modules import publish
from .nccl import NCCL, has_nccl
from .net import Net
from .net_functions import *  # noqa: F403 (_Net_forward and its siblings)
from .net_spec import NetSpec, layers, params, to_proto
from .python_layer import PythonLayer as Layer
from .settings import (
    allow_output,
    allow_python_layers,
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
from .solvers import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    RMSPropSolver,
    SGDSolver,
    get_solver,
)
from .timer import Timer

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
    "allow_output",
    "allow_python_layers",
    "classifier",
    "coord_map",
    "detector",
    "draw",
    "get_solver",
    "has_nccl",
    "init_log",
    "io",
    "layer_type_list",
    "layers",
    "log",
    "multiprocess",
    "net_spec",
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

publish("pycaffe_fire")
