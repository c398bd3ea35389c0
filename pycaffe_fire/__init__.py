"""pycaffe_fire: pycaffe's names on a trainer that runs on one core or a cluster.

import pycaffe_fire as caffe
net = caffe.Net("deploy.prototxt", caffe.TEST, weights="model.caffemodel")
"""

from __future__ import annotations

from . import pycaffe, schema
from .pycaffe import *  # noqa: F403
from .version import VERSION as __version__

__all__ = ["__version__", "schema", *pycaffe.__all__]
