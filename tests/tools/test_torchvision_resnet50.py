"""A state_dict of torchvision's names into a Caffe net: a narrow net of the same kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torchvision_resnet50 import prototxt

from pycaffe_fire.convert import Settings, convert, read_model, weights
from pycaffe_fire.convert.model import build
from tests.layers.case import Array

WIDTH, CLASSES = 4, 5


def state_dict() -> dict[str, Array]:
    """Arrays of the names and shapes that torchvision's ResNet has with stages of 2 and 1."""
    rng = np.random.default_rng(0)
    made: dict[str, Array] = {}

    def conv(name: str, norm: str, outputs: int, inputs: int, kernel: int) -> None:
        shape = (outputs, inputs, kernel, kernel)
        made[f"{name}.weight"] = rng.normal(0, 0.3, shape).astype(np.float32)
        for end in ("weight", "bias", "running_mean"):
            made[f"{norm}.{end}"] = rng.normal(0, 0.5, outputs).astype(np.float32)
        made[f"{norm}.running_var"] = rng.uniform(0.5, 2, outputs).astype(np.float32)
        made[f"{norm}.num_batches_tracked"] = np.array(7)

    conv("conv1", "bn1", WIDTH, 3, 7)
    inputs = WIDTH
    for stage, blocks in enumerate((2, 1)):
        width = WIDTH << stage
        for number in range(blocks):
            name = f"layer{stage + 1}.{number}"
            conv(f"{name}.conv1", f"{name}.bn1", width, inputs, 1)
            conv(f"{name}.conv2", f"{name}.bn2", width, width, 3)
            conv(f"{name}.conv3", f"{name}.bn3", 4 * width, width, 1)
            if not number:
                conv(f"{name}.downsample.0", f"{name}.downsample.1", 4 * width, inputs, 1)
            inputs = 4 * width
    made["fc.weight"] = rng.normal(size=(CLASSES, inputs)).astype(np.float32)
    made["fc.bias"] = rng.normal(size=CLASSES).astype(np.float32)
    return made


def test_weights_of_torchvision_s_names(tmp_path: Path) -> None:
    net_file, source = tmp_path / "net.prototxt", tmp_path / "state.npz"
    net_file.write_text(prototxt(WIDTH, (2, 1), CLASSES, 64))
    state = state_dict()
    weights.write(source, state)
    target = tmp_path / "net.caffemodel"
    made = convert(source, target, settings=Settings(into=str(net_file)))
    assert made.notes == []  # all arrays are used
    model = read_model(net_file, target)
    norm = model.weights["layer1.0.bn2"]
    np.testing.assert_array_equal(norm[0] / norm[2], state["layer1.0.bn2.running_mean"])
    scale = model.weights["layer1.0.bn2.scale"]
    np.testing.assert_array_equal(scale[0], state["layer1.0.bn2.weight"])
    net = build(model)
    assert net.blobs["maxpool"].shape == (1, WIDTH, 16, 16)  # rounded down
    assert net.blobs["layer2.0"].shape == (1, 8 * WIDTH, 8, 8)


def test_the_whole_net() -> None:
    text = prototxt()
    assert text.count('type: "Convolution"') == 53 and "dim: 224" in text
