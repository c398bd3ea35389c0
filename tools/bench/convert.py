"""What a checked conversion to ONNX takes: seconds beyond loading libraries, and memory.

    python tools/bench/convert.py                          # ResNet-50 of models/
    python tools/bench/convert.py models/vgg16/deploy.prototxt

Weights are random. Memory is the process's peak beyond what it held once all libraries were
loaded, as a multiple of the weights' size.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
KIB = 1024
SMALL = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 1 kernel_size: 3 weight_filler { type: "msra" } } }
layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { kernel_size: 2 } }
layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc" inner_product_param { num_output: 2 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""  # noqa: E501


def _peak() -> int:
    """Bytes that the process held at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


def _make(prototxt: str, weights: str) -> None:
    from pycaffe_fire import schema
    from pycaffe_fire.backend import cpu_backend
    from pycaffe_fire.layers import Context
    from pycaffe_fire.net.net import Net

    param = schema.read_net(prototxt)
    param.state.phase = schema.TEST
    net = Net(param, cpu_backend(), Context(seed=1))
    for layer in net.layers:
        if layer.type == "BatchNorm":
            net.params[layer.name][1].data[...] = 1
            net.params[layer.name][2].data[...] = 1
    net.save(weights)


def _made(folder: Path) -> tuple[Path, Path]:
    """A tiny net's files."""
    prototxt, weights = folder / "small.prototxt", folder / "small.caffemodel"
    prototxt.write_text(SMALL)
    _make(str(prototxt), str(weights))
    return prototxt, weights


def _measure(prototxt: str, weights: str) -> None:
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401

    from pycaffe_fire.convert import convert

    convert(*_made(Path(weights).parent), weights + ".small.onnx")  # loads all that is needed
    size = os.path.getsize(weights)
    before, start, work = _peak(), time.perf_counter(), time.process_time()
    made = convert(prototxt, weights, weights + ".onnx")
    seconds, grown = time.perf_counter() - start, _peak() - before
    work = time.process_time() - work
    assert made.check is not None
    print(
        f"{prototxt}: {seconds:.1f} s ({work:.1f} s of work), {grown / 1e6:.0f} MB beyond "
        f"libraries = "
        f"{grown / size:.2f} x {size / 1e6:.0f} MB of weights; largest difference "
        f"{made.check.worst:.1e}"
    )


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] in (["make"], ["measure"]):
        (_make if arguments[0] == "make" else _measure)(*arguments[1:])
        return
    prototxt = arguments[0] if arguments else str(ROOT / "models/resnet50/deploy.prototxt")
    with tempfile.TemporaryDirectory() as folder:
        weights = str(Path(folder) / "weights.caffemodel")
        for step in ("make", "measure"):  # in processes of their own: a peak never shrinks
            subprocess.run([sys.executable, __file__, step, prototxt, weights], check=True)


if __name__ == "__main__":
    main()
