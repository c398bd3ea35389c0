"""Without a oneDNN library NumPy's BLAS does its work, slower, and one line says so."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import numpy as np
import pycaffe_fire as caffe
from pycaffe_fire import schema
caffe.set_random_seed(1)
text = '''
layer { name: "in" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } shape { dim: 2 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "lrn" type: "LRN" bottom: "conv" top: "lrn" }
layer { name: "ip" type: "InnerProduct" bottom: "lrn" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
'''
for _ in range(2):
    net = caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN)
    net.blobs["data"].data[...] = np.arange(216).reshape(2, 3, 6, 6) / 216
    loss = float(net.forward()["loss"])
    net.backward()
print(net.backend.name, f"{loss:.5f}", f"{float(np.abs(net.params['conv'][0].diff).sum()):.4f}")
"""


def run(**environment: str) -> tuple[list[str], list[str]]:
    """Words printed and lines on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr.splitlines()


@pytest.fixture(scope="module")
def usual() -> list[str]:
    return run()[0]


def test_a_wrong_path(usual: list[str]) -> None:
    printed, said = run(PYCAFFE_FIRE_DNNL="/nowhere/libdnnl.so.3")
    assert printed[0] == "blas"
    assert [float(n) for n in printed[1:]] == pytest.approx([float(n) for n in usual[1:]], rel=1e-3)
    assert len(said) == 1, said
    for words in ("NumPy", "/nowhere/libdnnl.so.3", "PYCAFFE_FIRE_DNNL", "onednn-cpu-gomp"):
        assert words in said[0]


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    junk = tmp_path / "libdnnl.so.3"
    junk.write_text("not a library")
    printed, said = run(PYCAFFE_FIRE_DNNL=str(junk))
    assert printed[0] == "blas" and len(said) == 1 and str(junk) in said[0]


def test_a_library_that_is_not_onednn() -> None:
    other = ctypes.util.find_library("m")
    if other is None:
        pytest.skip("no other library at hand")
    printed, said = run(PYCAFFE_FIRE_DNNL=other)
    assert printed[0] == "blas" and len(said) == 1 and other in said[0]


def test_the_library_says_nothing(usual: list[str]) -> None:
    printed, said = run()
    if printed[0] == "onednn":
        assert said == []
