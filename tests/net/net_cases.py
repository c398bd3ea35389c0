"""Small prototxts for the tests of nets, and nets made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import pycaffe_fire as caffe
from pycaffe_fire import schema

Array = np.ndarray[Any, Any]

IMAGES = np.random.default_rng(11).normal(size=(4, 3, 8, 8)).astype(np.float32)
LABELS = np.array([0, 3, 1, 4], np.float32)


def layer(kind: str, name: str, bottom: str = "", top: str | None = None, extra: str = "") -> str:
    """One layer; several bottoms or tops are separated by blanks, and the top is named as it."""
    tops = name if top is None else top
    blobs = [f'bottom: "{b}"' for b in bottom.split()] + [f'top: "{t}"' for t in tops.split()]
    return f'layer {{ name: "{name}" type: "{kind}" {" ".join(blobs)} {extra} }}\n'


def inputs(batch: int = 4, size: int = 8) -> str:
    """Images "data" and labels "label"."""
    return layer(
        "Input", "in", "", "data label",
        f"input_param {{ shape {{ dim: {batch} dim: 3 dim: {size} dim: {size} }}"
        f" shape {{ dim: {batch} }} }}",
    )  # fmt: skip


def ip(name: str, bottom: str, outputs: int = 5, extra: str = "", top: str | None = None) -> str:
    fill = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -0.1 max: 0.1 }'
    return layer(
        "InnerProduct", name, bottom, top,
        f"inner_product_param {{ num_output: {outputs} {fill} }} {extra}",
    )  # fmt: skip


def conv(
    name: str, bottom: str, outputs: int = 6, extra: str = "", top: str | None = None,
    param: str = "kernel_size: 3 pad: 1",
) -> str:  # fmt: skip
    fill = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -0.1 max: 0.1 }'
    return layer(
        "Convolution", name, bottom, top,
        f"convolution_param {{ num_output: {outputs} {param} {fill} }} {extra}",
    )  # fmt: skip


def relu(name: str, blob: str, top: str | None = None) -> str:
    return layer("ReLU", name, blob, blob if top is None else top)


def softmax_loss(bottom: str, extra: str = "", name: str = "loss") -> str:
    return layer("SoftmaxWithLoss", name, f"{bottom} label", name, extra)


def message(text: str) -> Any:
    return schema.parse_text(text, schema.NetParameter(), "<test>")


def make(text: str, phase: int = caffe.TRAIN, **options: Any) -> caffe.Net:
    """A net from prototxt text, the same weights every time."""
    caffe.set_random_seed(7)
    return caffe.Net(message(text), phase, **options)


def write(folder: Path, text: str, name: str = "net.prototxt") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def gradients(net: caffe.Net, **given: Array) -> dict[str, list[Array]]:
    """Parameter gradients of one pass."""
    values: dict[str, Any] = given or {"data": IMAGES, "label": LABELS}
    net.clear_param_diffs()
    net.forward(**values)
    net.backward()
    return {name: [b.diff.copy() for b in blobs] for name, blobs in net.params.items()}


def agree(a: dict[str, list[Array]], b: dict[str, list[Array]]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        for mine, other in zip(a[name], b[name], strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5, err_msg=name)
