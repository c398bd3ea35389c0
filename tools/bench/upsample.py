"""Time the upsampling of fully convolutional nets: a Deconvolution after a Convolution.

    python tools/bench/upsample.py
    python tools/bench/upsample.py --threads 2 --repeat 20

A row for each Deconvolution of FCN-32s, FCN-16s and FCN-8s (21 classes, an image of 384x512), and
for the small case that once ran on reference kernels; times are the shortest of all repetitions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.layers import Context
from pycaffe_fire.net import Net

CLASSES = 21
# name, kernel, stride, height and width of the scores
ROWS = [
    ("FCN-32s", 64, 32, 12, 16),
    ("FCN-16s, last", 32, 16, 24, 32),
    ("FCN-8s, first", 4, 2, 12, 16),
    ("FCN-8s, second", 4, 2, 24, 32),
    ("FCN-8s, last", 16, 8, 48, 64),
    ("63/32 on 4x6", 63, 32, 4, 6),
]
NET = """force_backward: true
layer { name: "in" type: "Input" top: "in"
  input_param { shape { dim: 1 dim: 64 dim: %d dim: %d } } }
layer { name: "score" type: "Convolution" bottom: "in" top: "score"
  convolution_param { num_output: 21 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "upscore" type: "Deconvolution" bottom: "score" top: "upscore"
  convolution_param { num_output: 21 kernel_size: %d stride: %d bias_term: false
    weight_filler { type: "bilinear" } } }"""


def shortest(run: Callable[[], object], repeat: int) -> float:
    """Milliseconds of the fastest of `repeat` runs, after one that plans."""
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=10)
    flags = parser.parse_args()
    print(f"{'deconvolution':<16}{'kernel/stride':>14}{'scores':>9}{'forward':>12}{'backward':>12}")
    for name, kernel, stride, height, width in ROWS:
        param = schema.parse_text(NET % (height, width, kernel, stride), schema.NetParameter())
        net = Net(param, cpu_backend(flags.threads), Context())
        net.blobs["in"].data[...] = np.random.default_rng(0).normal(size=net.blobs["in"].shape)
        forward = shortest(net.run_forward, flags.repeat)
        net.blobs["upscore"].diff[...] = 1
        backward = shortest(net.run_backward, flags.repeat)
        print(f"{name:<16}{f'{kernel}/{stride}':>14}{f'{height}x{width}':>9}"
              f"{forward:>9.1f} ms{backward:>9.1f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
