"""torchvision's ResNet-50 as a Caffe net: a prototxt whose layers have torchvision's names.

    python tools/torchvision_resnet50.py resnet50.prototxt
    python -c "import torch, torchvision; torch.save(torchvision.models.resnet50(
        weights='IMAGENET1K_V2').state_dict(), 'resnet50.pt')"
    fire_convert resnet50.pt resnet50.caffemodel --into resnet50.prototxt
    fire_convert resnet50.prototxt resnet50.caffemodel resnet50.onnx     # checks every layer

Other than in Caffe's ResNet-50, the stride is on the 3x3 convolutions and pooling rounds down;
images are RGB, divided by 255, less the mean 0.485, 0.456, 0.406, divided by 0.229, 0.224, 0.225.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

STAGES = (3, 4, 6, 3)
EXPANSION = 4


class _Net:
    """Lines of a prototxt, and the blob that the last layer made."""

    def __init__(self, size: int) -> None:
        self.lines = ['name: "torchvision ResNet-50"']
        shape = " ".join(f"dim: {n}" for n in (1, 3, size, size))
        self.lines.append(
            f'layer {{ name: "data" type: "Input" top: "data" '
            f"input_param {{ shape {{ {shape} }} }} }}"
        )

    def layer(self, name: str, kind: str, bottoms: Sequence[str], top: str, param: str = "") -> str:
        ends = " ".join([*(f'bottom: "{b}"' for b in bottoms), f'top: "{top}"'])
        self.lines.append(f'layer {{ name: "{name}" type: "{kind}" {ends} {param} }}')
        return top

    def conv(self, name: str, norm: str, x: str, outputs: int, kernel: int, stride: int) -> str:
        """A convolution with BatchNorm and Scale, which take `norm`'s arrays."""
        param = (
            f"convolution_param {{ num_output: {outputs} kernel_size: {kernel} "
            f"stride: {stride} pad: {kernel // 2} bias_term: false }}"
        )
        x = self.layer(name, "Convolution", [x], name, param)
        x = self.layer(norm, "BatchNorm", [x], name)
        scale = "scale_param { bias_term: true }"
        return self.layer(f"{norm}.scale", "Scale", [x], name, scale)

    def relu(self, x: str) -> str:
        return self.layer(f"{x}.relu", "ReLU", [x], x)

    def block(self, name: str, x: str, width: int, stride: int, first: bool) -> str:
        y = self.relu(self.conv(f"{name}.conv1", f"{name}.bn1", x, width, 1, 1))
        y = self.relu(self.conv(f"{name}.conv2", f"{name}.bn2", y, width, 3, stride))
        y = self.conv(f"{name}.conv3", f"{name}.bn3", y, EXPANSION * width, 1, 1)
        if first:
            down = f"{name}.downsample"
            x = self.conv(f"{down}.0", f"{down}.1", x, EXPANSION * width, 1, stride)
        return self.relu(self.layer(name, "Eltwise", [x, y], name))


def prototxt(
    width: int = 64, stages: Sequence[int] = STAGES, classes: int = 1000, size: int = 224
) -> str:
    """The net; smaller numbers make smaller nets of the same names."""
    net = _Net(size)
    x = net.relu(net.conv("conv1", "bn1", "data", width, 7, 2))
    pool = "pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 round_mode: FLOOR }"
    x = net.layer("maxpool", "Pooling", [x], "maxpool", pool)
    for stage, blocks in enumerate(stages):
        for number in range(blocks):
            stride = 2 if stage and not number else 1
            name = f"layer{stage + 1}.{number}"
            x = net.block(name, x, width << stage, stride, first=not number)
    average = "pooling_param { pool: AVE global_pooling: true }"
    x = net.layer("avgpool", "Pooling", [x], "avgpool", average)
    x = net.layer(
        "fc", "InnerProduct", [x], "fc", f"inner_product_param {{ num_output: {classes} }}"
    )
    net.layer("prob", "Softmax", [x], "prob")
    return "\n".join(net.lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1:
        print(__doc__)
        return 1
    Path(given[0]).write_text(prototxt())
    return 0


if __name__ == "__main__":
    sys.exit(main())
