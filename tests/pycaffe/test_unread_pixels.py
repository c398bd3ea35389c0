"""Inference leaves out pixels that only a stride would skip, and nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest

from pycaffe_fire.net.fused_steps import FusedStep
from pycaffe_fire.net.unread_pixels import ThinStep
from tests.pycaffe.test_inference import close, images, make


def conv(name: str, bottom: str, kernel: int = 1, stride: int = 1, channels: int = 16) -> str:
    """With a BatchNorm after it, in place."""
    return f"""
layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}"
  convolution_param {{ num_output: {channels} kernel_size: {kernel} stride: {stride}
    pad: {kernel // 2} weight_filler {{ type: "msra" }} }} }}
layer {{ name: "{name}_bn" type: "BatchNorm" bottom: "{name}" top: "{name}" }}"""


def add(name: str, a: str, b: str) -> str:
    return f"""
layer {{ name: "{name}" type: "Eltwise" bottom: "{a}" bottom: "{b}" top: "{name}" }}
layer {{ name: "{name}_relu" type: "ReLU" bottom: "{name}" top: "{name}" }}"""


START = """
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 2 dim: 3 dim: 13 dim: 13 } } }"""
BLOCK = (
    START + conv("stem", "data", 3) + conv("middle", "stem", 3) + conv("wide", "middle")
    + add("sum", "stem", "wide")
)  # fmt: skip
HALVED = BLOCK + conv("left", "sum", stride=2) + conv("right", "sum", stride=2)
END = """
layer { name: "fc" type: "InnerProduct" bottom: "joined" top: "fc"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }"""
RESNET = HALVED + add("joined", "left", "right") + END


def both(kind: str, text: str) -> tuple[Any, Any]:
    """A net with a plan and the same net run layer by layer."""
    planned, plain = make(kind, text), make(kind, text)
    plain.stop_inference()
    return planned, plain


def shapes(net: Any) -> dict[str, tuple[int, ...]]:
    """Of what the fused steps write."""
    steps = [step for step in net.inference._steps if isinstance(step, FusedStep)]
    return {net.layers[step.layers[0]].name: step.top[0].shape[2:] for step in steps}


@pytest.mark.parametrize("size", [13, 12])
@pytest.mark.parametrize("kind", ["onednn", "numpy"])
def test_results_are_those_of_the_layers(kind: str, size: int) -> None:
    pair = both(kind, RESNET.replace("dim: 13", f"dim: {size}"))
    for seed in range(2):
        planned, plain = (net.forward(data=images(seed, size=size))["fc"].copy() for net in pair)
        close(planned, plain)


def test_strides_move_up_through_convolutions() -> None:
    planned, _ = both("onednn", RESNET)
    planned.forward(data=images())
    expected = {"stem": 13, "middle": 7, "wide": 7, "left": 7, "right": 7}
    assert {name: shapes(planned)[name] for name in expected} == {
        name: (size, size) for name, size in expected.items()
    }
    (copied,) = (step for step in planned.inference._steps if isinstance(step, ThinStep))
    assert copied.bottom[0].value is planned.blobs["stem"].value
    alone = sum(blob.count for blob in planned.blobs.values())
    assert planned.inference._arena.size < alone / 2


@pytest.mark.parametrize("name", ["sum", "wide", "middle"])
def test_blobs_are_whole_when_looked_at_and_from_then_on(name: str) -> None:
    planned, plain = both("onednn", RESNET)
    for seed in range(3):
        for net in (planned, plain):
            net.forward(data=images(seed))
        close(planned.blobs[name].data, plain.blobs[name].data)
    whole = {"sum": "wide", "wide": "wide", "middle": "middle"}[name]
    assert shapes(planned)[whole] == (13, 13)


def test_changed_weights_count_in_the_next_pass() -> None:
    pair = both("onednn", RESNET)
    for net in pair:
        net.forward(data=images())
        net.params["wide"][0].data[...] *= 2
        net.params["middle_bn"][1].data[...] += 1
    close(*(net.forward(data=images())["fc"] for net in pair))


OTHERS = {
    "another stride": conv("right", "sum", stride=3) + conv("left", "sum", stride=2),
    "a larger window": conv("right", "sum", 3, stride=2) + conv("left", "sum", stride=2),
    "no stride": conv("right", "sum") + conv("left", "sum", stride=2),
    "another layer": conv("left", "sum", stride=2)
    + """
layer { name: "right" type: "Pooling" bottom: "sum" top: "right"
  pooling_param { kernel_size: 2 stride: 2 } }""",
    "a sum": conv("left", "sum", stride=2) + conv("next", "left") + conv("right", "sum")
    + add("more", "sum", "right"),
}  # fmt: skip


@pytest.mark.parametrize("readers", OTHERS)
def test_all_pixels_are_there_for_those_who_read_them(readers: str) -> None:
    text = BLOCK + OTHERS[readers]
    planned, plain = both("onednn", text)
    for net in (planned, plain):
        net.forward(data=images())
    assert shapes(planned)["wide"] == (13, 13)
    for name in plain.outputs:
        close(planned.blobs[name].data, plain.blobs[name].data)


def test_a_net_may_be_reshaped() -> None:
    pair = both("onednn", RESNET)
    for net in pair:
        net.forward(data=images())
        net.blobs["data"].reshape(4, 3, 13, 13)
        net.reshape()
    close(*(net.forward(data=images(1, 4))["fc"] for net in pair))
