"""Inference writes the bottoms of a Concat into its top, and nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pycaffe.test_inference import close, images, memory_of_passes
from tests.pycaffe.test_unread_pixels import both, conv

START = """
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 1 dim: 3 dim: 13 dim: 13 } } }"""
END = """
layer { name: "drop" type: "Dropout" bottom: "joined" top: "joined" }
layer { name: "fc" type: "InnerProduct" bottom: "joined" top: "fc"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }"""


def concat(name: str, *bottoms: str, axis: int = 1) -> str:
    given = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
    return f"""
layer {{ name: "{name}" type: "Concat" {given} top: "{name}" concat_param {{ axis: {axis} }} }}"""


FIRE = (
    START + conv("squeeze", "data", 3) + conv("one", "squeeze") + conv("three", "squeeze", 3)
    + concat("joined", "one", "three") + END
)  # fmt: skip
DENSE = (
    START + conv("a", "data", 3) + conv("b", "a", 3) + concat("ab", "a", "b")
    + conv("c", "ab", 3) + concat("joined", "c", "ab") + END
)  # fmt: skip


def run(nets: Any, seed: int = 0, batch: int = 1) -> list[Any]:
    return [net.forward(data=images(seed, batch))["fc"].copy() for net in nets]


def concats(net: Any) -> list[str]:
    """Those that copy."""
    layers = [net.layers[step.index] for step, _ in net.inference._runs]
    return [layer.name for layer in layers if layer.type == "Concat"]


@pytest.mark.parametrize("text", [FIRE, DENSE], ids=["side by side", "nested"])
def test_bottoms_lie_in_the_top(text: str) -> None:
    planned, plain = both("onednn", text)
    for seed in range(3):
        close(*run((planned, plain), seed))
    assert not concats(planned)
    first = planned.bottoms[planned.layers.index(planned.layer_dict["joined"])][0].value
    assert first.buffer.ctypes.data == planned.blobs["joined"].value.buffer.ctypes.data


@pytest.mark.parametrize("name", ["one", "three", "joined"])
def test_blobs_show_their_values_when_looked_at(name: str) -> None:
    planned, plain = both("onednn", FIRE)
    for seed in range(3):
        run((planned, plain), seed)
        for each in (name, "squeeze", "joined"):
            close(planned.blobs[each].data, plain.blobs[each].data)
    assert concats(planned) == ["joined"]  # somebody wants to see what it reads or writes


def test_a_blob_lies_in_one_top() -> None:
    text = FIRE + conv("more", "joined") + concat("second", "three", "more")
    planned, plain = both("onednn", text)
    for seed in range(2):
        for net in (planned, plain):
            net.forward(data=images(seed, 1))
        close(planned.blobs["second"].data, plain.blobs["second"].data)
        close(planned.blobs["fc"].data, plain.blobs["fc"].data)


OTHERS = {
    "several images": FIRE.replace("dim: 1 dim: 3", "dim: 2 dim: 3"),
    "blocks that are filled up": FIRE.replace(
        conv("one", "squeeze"), conv("one", "squeeze", channels=12)
    ),
    "another axis": FIRE.replace("axis: 1", "axis: 2"),
    "twice the same": FIRE.replace('bottom: "one" bottom: "three"', 'bottom: "one" bottom: "one"'),
    "an input": FIRE.replace('bottom: "one" bottom: "three"', 'bottom: "data" bottom: "three"'),
}


@pytest.mark.parametrize("case", OTHERS)
def test_concats_that_have_to_copy(case: str) -> None:
    nets = both("onednn", OTHERS[case])
    for seed in range(2):
        close(*run(nets, seed, nets[0].blobs["data"].num))
    assert concats(nets[0]) == ["joined"]


def test_a_net_may_be_reshaped() -> None:
    nets = both("onednn", FIRE)
    for batch in (1, 2, 1):
        for net in nets:
            net.blobs["data"].reshape(batch, 3, 13, 13)
            net.reshape()
        close(*run(nets, batch, batch))


def test_passes_allocate_nothing() -> None:
    planned, _ = both("onednn", FIRE)
    run([planned])
    planned.forward()
    kept, most = memory_of_passes(planned)
    assert kept <= most < planned.blobs["one"].count * 4
