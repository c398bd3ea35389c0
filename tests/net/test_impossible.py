"""What no net can mean is one sentence when it is built; empty blobs are no accident."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire.errors import FireError, LayerError

EMPTY = [(0, 3, 4, 4), (2, 0, 4, 4), (2, 3, 0, 4)]
KEEPING = ["BatchNorm", "Scale", "Bias", "PReLU", "MVN", "Normalize", "BN", "Softmax", "LRN"]


def build(
    folder: Path, layer: str, shape: tuple[int, ...] = (2, 3, 4, 4), label: str = ""
) -> caffe.Net:
    dims = " ".join(f"dim: {size}" for size in shape)
    text = f"""force_backward: true
        layer {{ name: "d" type: "Input" top: "d" input_param {{ shape {{ {dims} }} }} }}
        layer {{ name: "l" type: "Input" top: "l" input_param {{ shape {{ dim: 2 }} }} }}
        layer {{ name: "x" bottom: "d" {label} {layer} }}"""
    (folder / "net.prototxt").write_text(text)
    return caffe.Net(str(folder / "net.prototxt"), caffe.TRAIN)


@pytest.mark.parametrize("shape", EMPTY)
@pytest.mark.parametrize("kind", KEEPING)
def test_nothing_goes_through_layers_that_keep_shapes(
    tmp_path: Path, kind: str, shape: tuple[int, ...]
) -> None:
    net = build(tmp_path, f'type: "{kind}" top: "x"', shape)
    assert net.forward()["x"].shape == shape
    net.backward()


@pytest.mark.parametrize(
    "layer",
    [
        'type: "InnerProduct" top: "x" inner_product_param { num_output: 2 }',
        'type: "Convolution" top: "x" convolution_param { num_output: 2 kernel_size: 1 }',
    ],
)
def test_something_cannot_be_made_of_nothing(tmp_path: Path, layer: str) -> None:
    with pytest.raises(LayerError, match=r"holds nothing|no channels"):
        build(tmp_path, layer, (2, 0, 4, 4))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ('type: "LRN" top: "x" lrn_param { local_size: 4294967295 }', "local_size must be at most"),
        ('type: "LRN" top: "x" lrn_param { local_size: 2147483647 }', "local_size must be at most"),
        ('type: "Pooling" top: "x" pooling_param { kernel_size: 2 stride: 4294967295 }', "at most"),
        ('type: "Power" top: "x" power_param { scale: nan }', "scale must be a finite number"),
        (
            'type: "PriorBox" top: "x" bottom: "d" prior_box_param { min_size: inf }',
            "min_size must be a finite number",
        ),
        ('type: "HingeLoss" bottom: "l" top: "d"', "cannot run in place"),
        ('type: "Power\\000" top: "x"', "zero character"),
    ],
)
def test_impossible_numbers_and_names(tmp_path: Path, layer: str, words: str) -> None:
    with pytest.raises(FireError, match=words):
        build(tmp_path, layer)


@pytest.mark.parametrize("kind", ["SoftmaxWithLoss", "HingeLoss", "Accuracy"])
def test_fractional_labels_are_refused(tmp_path: Path, kind: str) -> None:
    net = build(tmp_path, f'type: "{kind}" bottom: "l" top: "x"', (2, 3))
    net.blobs["l"].data[...] = [1, 0.5]
    with pytest.raises(LayerError, match="holds the label 0.5; labels are whole numbers"):
        net.forward()


def test_a_kernel_larger_than_any_image_costs_nothing(tmp_path: Path) -> None:
    """It had an entry for each of nine million cells, also where the batch was empty."""
    layer = 'type: "Im2col" top: "x" convolution_param { kernel_size: 3000 pad: 1500 }'
    net = build(tmp_path, layer, (0, 1, 4, 4))
    assert net.forward()["x"].size == 0


@pytest.mark.parametrize("bad", ["momentum2: 1.5", "momentum: 1", "momentum2: nan"])
def test_adam_needs_shares_below_one(tmp_path: Path, bad: str) -> None:
    with pytest.raises(FireError, match="momentum"):
        solver(tmp_path, f'type: "Adam" lr_policy: "fixed" base_lr: 0.1 {bad}')


@pytest.mark.parametrize(
    "rate",
    [
        'lr_policy: "inv" gamma: -3 power: 0.5 base_lr: 1',
        'lr_policy: "poly" power: -1 base_lr: 1',
        'lr_policy: "fixed" base_lr: inf',
    ],
)
def test_rates_that_do_not_exist(tmp_path: Path, rate: str) -> None:
    with pytest.raises(FireError, match=r"has no rate at iteration|finite number"):
        solver(tmp_path, f"{rate} max_iter: 4").step(20)


def solver(folder: Path, text: str) -> Any:
    (folder / "net.prototxt").write_text(
        'layer { name: "d" type: "DummyData" top: "d" dummy_data_param { '
        "shape { dim: 1 dim: 2 } } }"
        'layer { name: "ip" type: "InnerProduct" bottom: "d" top: "ip" inner_product_param { '
        'num_output: 1 } } layer { name: "x" type: "Reduction" bottom: "ip" top: "x" '
        "loss_weight: 1 }"
    )
    (folder / "solver.prototxt").write_text(
        f'net: "{folder}/net.prototxt" snapshot_prefix: "{folder}/s" solver_mode: CPU {text}'
    )
    return caffe.get_solver(str(folder / "solver.prototxt"))


def test_long_nets_are_built_in_linear_time(tmp_path: Path) -> None:
    """Counted, not timed: lines of Python per layer do not grow with the net."""
    counts = [_lines_run(tmp_path, layers) for layers in (50, 200)]
    assert counts[1] < 1.3 * 4 * counts[0]


def _lines_run(folder: Path, layers: int) -> int:
    import logging
    import sys

    text = 'layer { name: "d" type: "Input" top: "b0" input_param { shape { dim: 1 dim: 2 } } }'
    for i in range(layers):
        text += f'layer {{ name: "l{i}" type: "Power" bottom: "b{i}" top: "b{i + 1}" }}\n'
        text += f'layer {{ name: "r" type: "ReLU" bottom: "b{i + 1}" top: "b{i + 1}" }}\n'
    (folder / "long.prototxt").write_text(text)
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += 1
        return trace

    logging.getLogger("pycaffe_fire").setLevel(logging.INFO)
    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        net = caffe.Net(str(folder / "long.prototxt"), caffe.TEST)
    finally:
        sys.settrace(before)
        logging.getLogger("pycaffe_fire").setLevel(logging.NOTSET)
    assert len(net.layers) > layers and np.isfinite(count)
    return count
