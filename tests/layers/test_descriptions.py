"""What layers say about themselves reaches the code that asks, for types of other packages too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire
from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.tensor import Tensor
from pycaffe_fire.errors import LayerError
from pycaffe_fire.layers import LAYERS, Context, Layer, Neuron, register_layer
from pycaffe_fire.net import Net
from pycaffe_fire.net.summary import facts
from pycaffe_fire.net.synthetic import class_counts
from pycaffe_fire.pycaffe.coord_map import PASS_THROUGH_LAYERS, coord_map, coord_map_from_to
from pycaffe_fire.pycaffe.draw.boxes import describe, family
from pycaffe_fire.pycaffe.net_spec import layers as L
from pycaffe_fire.solver import Solver
from pycaffe_fire.solver.options import SolverOptions
from tests.layers.test_contract import uncounted, undescribed

ROOT = Path(pycaffe_fire.__file__).parent


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests register is forgotten after each."""
    monkeypatch.setattr(LAYERS, "_items", dict(LAYERS._items))


def message(text: str) -> Any:
    return schema.parse_text(text, schema.NetParameter())


def layer(text: str) -> Any:
    return schema.parse_text(text, schema.LayerParameter())


def net(text: str, backend: Backend | None = None) -> Net:
    param = message(text)
    param.state.phase = schema.TRAIN
    return Net(param, backend or cpu_backend(1), Context())


INPUT = (
    'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 dim: 5 dim: 5 } '
    "} }\n"
)


# A layer of another package, with weights and a running average.


class Centred(Neuron):
    """top = x - a running average of the mean of x."""

    averages: tuple[int, ...] = (0,)  # type: ignore[misc]

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.add_param((1,), schema.FillerParameter())
        self.param.param.add(lr_mult=0)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        mean = bottom[0].data.mean()
        self.remember(0, 0.5 * mean, 0.5)
        top[0].data[...] = bottom[0].data - mean

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff


class Product(Layer):
    """A layer that says nothing about itself although it has a matrix."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.add_param((3, 4), schema.FillerParameter())
        self.param.inner_product_param.num_output = 3

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape(3)


TRAINING = """
layer { name: "data" type: "DummyData" top: "x" top: "y" dummy_data_param {
  shape { dim: 4 dim: 6 } shape { dim: 4 dim: 2 } data_filler { type: "gaussian" std: 1 } } }
layer { name: "own" type: "Centred" bottom: "x" top: "c" }
layer { name: "ip" type: "InnerProduct" bottom: "c" top: "p"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "p" bottom: "y" top: "loss" }
"""


@pytest.mark.parametrize("leaves", [1, 2])
def test_a_skipped_iteration_leaves_no_trace_in_averages_of_other_packages(leaves: int) -> None:
    register_layer("Centred")(Centred)
    param = schema.SolverParameter(base_lr=0.1, lr_policy="fixed", max_iter=9, random_seed=1)
    param.net_param.CopyFrom(message(TRAINING))
    solver = Solver(param, SolverOptions(cpu_backend(1), 1, on_nan="skip", leaves=leaves))
    solver.step(1)
    average = solver.net.layers[1].blobs[0]
    before = average.data.copy()
    assert before.any()
    weights = solver.net.layers[2].blobs[0]
    good = weights.data.copy()
    weights.data[...] = np.inf
    solver.step(1)
    assert np.array_equal(average.data, before)
    weights.data[...] = good
    solver.step(1)
    assert not np.array_equal(average.data, before)
    solver.close()


def test_an_average_that_is_not_declared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Centred, "averages", ())
    register_layer("Centred")(Centred)
    with pytest.raises(LayerError, match=r'layer "own" \(Centred\).*blob 0 in `averages`'):
        net(TRAINING).run_forward()


def test_the_contract_catches_what_is_not_said() -> None:
    register_layer("Product")(Product)
    register_layer("Centred")(Centred)
    assert undescribed("Centred") == []
    assert undescribed("Product") == ["storage", "param_field"]
    built = net(INPUT + 'layer { name: "p" type: "Product" bottom: "x" top: "y" }')
    assert uncounted(built.layers[1])


# What each description is for.


class Halves(NumPyBackend):
    """Says that it can store 16 bits; here nothing is run on it."""

    kinds = ("float32", "float16")


@pytest.mark.parametrize(
    ("kind", "stored"),
    [("Centred", ["float16"] * 2), ("ReLU6", ["float16"] * 2), ("Threshold", [])],
)
def test_a_new_layer_stores_16_bits(
    kind: str, stored: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    register_layer("Centred")(Centred)
    asked: list[str] = []
    monkeypatch.setattr(Tensor, "store_as", lambda self, kind: asked.append(kind))
    half = "default_forward_type: FLOAT16 default_backward_type: FLOAT16\n"
    text = f'{half}{INPUT}layer {{ name: "new" type: "{kind}" bottom: "x" top: "y" }}'
    net(text, Halves())
    assert asked == stored


def test_depthwise_convolutions_count() -> None:
    text = INPUT + (
        'layer { name: "c" type: "%s" bottom: "x" top: "y" convolution_param '
        "{ num_output: 4 group: 4 kernel_size: 3 } }"
    )
    counts = [
        facts(net(text % kind)).multiply_adds for kind in ("Convolution", "DepthwiseConvolution")
    ]
    assert counts == [2 * 3 * 3 * 4 * 9] * 2


def test_a_static_input_is_multiplied_once() -> None:
    text = "".join(
        f'layer {{ name: "{n}" type: "Input" top: "{n}" input_param {{ shape {{ {dims} }} }} }}\n'
        for n, dims in (
            ("x", "dim: 5 dim: 2 dim: 3"),
            ("c", "dim: 5 dim: 2"),
            ("s", "dim: 2 dim: 7"),
        )
    )
    text += 'layer { name: "l" type: "LSTM" bottom: "x" bottom: "c" bottom: "s" top: "y" '
    made = net(text + "recurrent_param { num_output: 4 } }")
    assert facts(made).multiply_adds == 5 * 2 * (16 * 3 + 16 * 4) + 2 * 16 * 7


def test_all_pixelwise_types_have_coordinates() -> None:
    data = L.Input(shape=dict(dim=[1, 4, 8, 8]))
    assert {"ReLU", "ReLU6", "BN", "Softmax", "Normalize", "ShuffleChannel"} < set(
        PASS_THROUGH_LAYERS
    )
    for kind in ("ReLU6", "Swish", "BN", "Normalize", "Softmax"):
        assert coord_map(getattr(L, kind)(data).fn) == (None, 1, 0)
    depthwise = L.DepthwiseConvolution(data, num_output=4, group=4, kernel_size=3, pad=1, stride=2)
    assert coord_map(depthwise.fn)[0] == 1
    added = L.Axpy(L.Pooling(data, global_pooling=True), L.ReLU6(data), data)
    assert coord_map_from_to(added, data) == (None, 1, 0)


def test_scripts_may_add_types_that_pass_pixels_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pycaffe_fire.pycaffe.coord_map.PASS_THROUGH_LAYERS", ["Theirs"])
    assert coord_map(L.Theirs(L.Input()).fn) == (None, 1, 0)


def test_labels_of_every_loss_with_classes_count() -> None:
    heads = (
        'layer { name: "fc" type: "%s" bottom: "x" top: "fc" %s }\n'
        'layer { name: "l" type: "InfogainLoss" bottom: "fc" bottom: "y" top: "l" }'
    )
    product = heads % ("InnerProduct", "inner_product_param { num_output: 7 }")
    depthwise = heads % ("DepthwiseConvolution", "convolution_param { num_output: 6 }")
    assert class_counts(message(product)) == {"y": 7}
    assert class_counts(message(depthwise)) == {"y": 6}


def test_drawings() -> None:
    conv = layer(
        'type: "DepthwiseConvolution" bottom: "x" convolution_param '
        "{ num_output: 8 kernel_size: 3 stride: 2 }"
    )
    assert describe(conv) == "DepthwiseConvolution 8 of 3x3, stride 2"
    assert family(conv) == "convolution"
    assert [family(layer(f'type: "{t}" bottom: "x"')) for t in ("TheirLoss", "Theirs")] == [
        "loss", "other",
    ]  # fmt: skip
    assert family(layer('type: "Theirs"')) == "data"


# No module outside layers/ and schema/ lists types, or asks for one by name.

# convert/ translates types one by one; which there are, and what a net in use needs, it asks.
FREE = ("layers", "schema", "convert")
TYPES = frozenset(LAYERS)


def named_types(source: str) -> Iterator[str]:
    """`line: names` of collections with several types, and of comparisons with one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            parts, enough = [key for key in node.keys if key], 2
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            parts, enough = node.elts, 2
        elif isinstance(node, ast.Compare):
            parts, enough = [node.left, *node.comparators], 1
        else:
            continue
        values = [part.value for part in parts if isinstance(part, ast.Constant)]
        found = [value for value in values if isinstance(value, str) and value in TYPES]
        if len(found) >= enough:
            yield f"{node.lineno}: {', '.join(found)}"


def test_no_list_of_types_outside_layers_and_schema() -> None:
    files = [p for p in ROOT.rglob("*.py") if p.relative_to(ROOT).parts[0] not in FREE]
    found = [f"{p.relative_to(ROOT)}:{f}" for p in files for f in named_types(p.read_text())]
    assert found == []


@pytest.mark.parametrize(
    "source",
    ['A = {"ReLU": 1, "Pooling": 2}', 'f("x", ("Data", "Input"))', 'layer.type == "Split"'],
)
def test_such_a_list_is_found(source: str) -> None:
    assert len(list(named_types(source))) == 1
