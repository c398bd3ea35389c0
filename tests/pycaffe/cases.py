"""Small nets and solvers that the tests of pycaffe's face share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pycaffe_fire as caffe

DROPIN = Path(caffe.__file__).parent / "dropin"

DEPLOY = """
name: "small"
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 4 dim: 2 dim: 6 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""

TRAIN = """
name: "learner"
layer { name: "feed" type: "MemoryData" top: "x" top: "y"
  memory_data_param { batch_size: 4 channels: 3 height: 1 width: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""

DUMMY = """
layer { name: "d" type: "DummyData" top: "x" top: "y" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 }
  data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


def deploy(text: str = DEPLOY) -> Any:
    caffe.set_random_seed(1)
    Path("deploy.prototxt").write_text(text)
    return caffe.Net("deploy.prototxt", caffe.TEST)


def solver_file(settings: str = "", net: str = DUMMY) -> str:
    caffe.set_random_seed(1)
    Path("net.prototxt").write_text(net)
    Path("solver.prototxt").write_text(
        f'net: "net.prototxt" base_lr: 0.1 {settings}'
        + ("" if "lr_policy" in settings else ' lr_policy: "fixed"')
    )
    return "solver.prototxt"
