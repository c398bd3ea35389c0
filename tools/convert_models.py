"""Every net of models/ to ONNX and back: random weights, statistics from a few training steps.

    python tools/convert_models.py                     # all of them, at full size
    python tools/convert_models.py lenet resnet50 --opencv

Each deploy.prototxt is converted with its check, once as it is and once with --fold-bn, and the
ONNX file becomes a Caffe net again; that of a detector with the node that OpenCV has for it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.convert import Settings, convert
from pycaffe_fire.layers import Context
from pycaffe_fire.net.net import Net

MODELS = Path(__file__).parents[1] / "models"
STEPS = 3


def trained(prototxt: Path, weights: Path, size: int = 0) -> None:
    """Save a net's random weights after a few passes in training, which fill its statistics.

    With `size` its images are that large instead.
    """
    param = schema.read_net(prototxt)
    for layer in param.layer:
        if size and layer.type == "Input":
            layer.input_param.shape[0].dim[2:] = [size, size]
    param.state.phase = schema.TRAIN
    net = Net(param, cpu_backend(), Context(seed=1))
    rng = np.random.default_rng(1)
    for name in net.inputs:
        blob = net.blobs[name]
        blob.reshape(2, *blob.shape[1:])
    net.reshape()
    for _ in range(STEPS):
        for name in net.inputs:
            net.blobs[name].data[...] = rng.normal(0, 30, net.blobs[name].shape)
        net.run_forward()
    net.save(str(weights))


def both_ways(prototxt: Path, folder: Path, settings: Settings, size: int = 0) -> list[str]:
    """Convert a net to ONNX and back, with checks; lines about the differences."""
    weights, target = folder / "weights.caffemodel", folder / "model.onnx"
    trained(prototxt, weights, size)
    lines = []
    for fold in (False, True):
        made = convert(
            prototxt, weights, target,
            settings=Settings(
                fold_bn=fold, check_with=settings.check_with, input_shapes=settings.input_shapes
            ),
        )  # fmt: skip
        assert made.check is not None
        lines.append(f"{'folded' if fold else 'plain'} {made.check.worst:.1e}")
    detects = any(layer.type == "DetectionOutput" for layer in schema.read_net(prototxt).layer)
    if detects:
        known = Settings(detection="opencv", check_with=settings.check_with)
        convert(prototxt, weights, target, settings=known)
    back = convert(
        target, folder / "back.prototxt", folder / "back.caffemodel",
        settings=Settings(dialect="ssd" if detects else "bvlc"),
    )  # fmt: skip
    assert back.check is not None
    return [*lines, f"and back {back.check.worst:.1e}"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="folders in models/ (default: all)")
    parser.add_argument("--opencv", action="store_true", help="check with OpenCV as well")
    options = parser.parse_args(arguments)
    names = options.names or sorted(path.parent.name for path in MODELS.glob("*/deploy.prototxt"))
    checks = ("onnxruntime", "opencv") if options.opencv else ("onnxruntime",)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            lines = both_ways(
                MODELS / name / "deploy.prototxt", Path(folder), Settings(check_with=checks)
            )
        print(f"{name}: {', '.join(lines)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
