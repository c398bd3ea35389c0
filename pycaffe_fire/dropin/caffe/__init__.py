"""`import caffe` for scripts written for pycaffe: every name here is pycaffe_fire's own object."""

import sys

import pycaffe_fire
from pycaffe_fire import *  # noqa: F403
from pycaffe_fire import pycaffe
from pycaffe_fire.pycaffe import modules
from pycaffe_fire.pycaffe.glogging import log_as_caffe

__version__ = pycaffe_fire.__version__

globals().update(modules.publish(__name__))
# Where pycaffe itself keeps Net and the solvers.
_caffe = sys.modules[f"{__name__}.pycaffe"] = sys.modules[f"{__name__}._caffe"] = pycaffe

log_as_caffe()
