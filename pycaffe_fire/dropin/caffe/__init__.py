"""`import caffe` for scripts written for pycaffe: every name here is pycaffe_fire's own object."""

import importlib
import sys

import pycaffe_fire
from pycaffe_fire import *  # noqa: F403
from pycaffe_fire.glogging import log_as_caffe

__version__ = pycaffe_fire.__version__

# The same modules under a second name, not a second copy of them.
for _name in (
    "classifier", "coord_map", "detector", "draw", "io", "layers", "net_spec", "proto",
    "proto.caffe_pb2",
):  # fmt: skip
    _module = importlib.import_module(f"pycaffe_fire.{_name}")
    sys.modules[f"{__name__}.{_name}"] = _module
    if "." not in _name:
        globals()[_name] = _module
# Where pycaffe itself keeps Net and the solvers.
pycaffe = _caffe = sys.modules[f"{__name__}.pycaffe"] = sys.modules[f"{__name__}._caffe"] = (
    pycaffe_fire
)

log_as_caffe()
