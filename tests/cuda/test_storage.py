"""Blobs stored in 16 bits on the emulated device: layers and whole nets stay close to float32."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import Net, schema
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.tensor import FLOAT32
from pycaffe_fire.layers import LAYERS, Storage
from pycaffe_fire.net import storage
from tests.cuda.cuda_nets import inception, lenet, solver_of, train
from tests.layers.case import Case, Trial
from tests.layers.test_contract import ROWS

ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
TYPES = {"float16": schema.FLOAT16, "bfloat16": schema.BFLOAT16}
STORED = [case for case in ROWS if LAYERS[case.type].storage is not Storage.FLOAT32]


def stored_as(net: Any, kind: str) -> Any:
    net.default_forward_type = net.default_backward_type = TYPES[kind]
    return net


def distance(got: Any, want: Any) -> float:
    """Relative to the length of `want`: single values may differ more, where a maximum flips."""
    want = np.asarray(want, np.float64)
    return float(np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30))


class Rounded(Trial):
    """A row of the layer table whose blobs are stored in 16 bits."""

    kind = "float16"

    def _text(self) -> str:
        asked = schema.Type.Name(TYPES[self.kind])
        return f"default_forward_type: {asked} default_backward_type: {asked}\n{super()._text()}"


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in STORED])
def test_layers(case: Case, cuda: Any) -> None:
    values = [np.float32(np.float16(v)) for v in case.values()]
    for behind in (False, True):
        want = Trial(case, NumPyBackend(dtype=np.float64), behind=behind).both(values)
        trial = Rounded(case, cuda, behind=behind)
        first, top = (trial.net.blobs[name].value for name in (trial.feeds[0], trial.tops[0]))
        if LAYERS[case.type].storage is Storage.ROUNDED and top is not first:
            assert top.kind == "float16"
        for got, expected in zip(trial.both(values), want, strict=True):
            assert got.shape == expected.shape
            assert distance(got, expected) <= 24 * ROUNDING["float16"]


@pytest.mark.parametrize("kind", ROUNDING)
@pytest.mark.parametrize("make", [lenet, inception])
def test_trains_as_in_float32(
    make: Callable[[Path], Any], kind: str, cuda: Any, tmp_path: Path
) -> None:
    want = train(make(tmp_path), NumPyBackend(), 3)
    got = train(stored_as(make(tmp_path), kind), cuda, 3)
    for name, values in want.items():
        assert 0 < distance(got[name], values) <= 16 * ROUNDING[kind], name


def test_what_stays_in_float32(cuda: Any, tmp_path: Path) -> None:
    """Data, labels, losses, weights and their gradients, at half the memory for the rest."""
    solver = solver_of(stored_as(inception(tmp_path), "float16"), cuda, share_gradients=True)
    net = solver.net
    kinds = {name: (b.value.kind, b.gradient.kind) for name, b in net.blobs.items()}
    assert {name for name, kind in kinds.items() if kind == (FLOAT32, FLOAT32)} == {
        "data", "label", "loss"
    }  # fmt: skip
    assert {kind for name, kind in kinds.items() if name not in ("data", "label", "loss")} == {
        ("float16", "float16")
    }
    assert all(p.blob.value.kind == p.blob.gradient.kind == FLOAT32 for p in net.parameters.items)
    solver.step(1)
    join = net.blobs["join"].value
    assert join.buffer.itemsize == 2 and join.words == join.layout.elements // 2
    solver.close()


def test_a_top_that_is_a_loss_stays_in_float32(cuda: Any) -> None:
    text = """
    default_forward_type: FLOAT16 default_backward_type: FLOAT16
    layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 1 dim: 2 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "in" top: "ip" loss_weight: 70000
      inner_product_param { num_output: 2 bias_term: false } }
    """
    net = Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN, backend=cuda)
    net.blobs["in"].data[...] = [[1, 2]]
    net.params["ip"][0].data[...] = 1
    net.forward()
    net.backward()
    np.testing.assert_array_equal(net.params["ip"][0].diff, [[70000, 140000]] * 2)
    assert not cuda.viewed


def test_a_layer_has_the_last_word(cuda: Any, tmp_path: Path) -> None:
    net = stored_as(inception(tmp_path), "float16")
    three = next(layer for layer in net.layer if layer.name == "three")
    three.forward_type, three.backward_type = schema.FLOAT, schema.BFLOAT16
    mixed = solver_of(net, cuda).net
    assert mixed.blobs["three"].value.kind == FLOAT32
    assert mixed.blobs["three"].gradient.kind == "bfloat16"
    want = train(inception(tmp_path), NumPyBackend(), 3)
    got = train(net, cuda, 3)
    for name, values in want.items():
        assert distance(got[name], values) <= 8 * ROUNDING["bfloat16"], name


def test_arrays_from_outside_are_float32(cuda: Any) -> None:
    text = """
    default_forward_type: FLOAT16 default_backward_type: FLOAT16 force_backward: true
    layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 1 dim: 2 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "in" top: "ip"
      inner_product_param { num_output: 2 bias_term: false } }
    """
    net = Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN, backend=cuda)
    net.params["ip"][0].data[...] = [[1, 0], [1 + 2**-11, 2**-12]]
    net.blobs["in"].data[...] = [[3, 2**-15]]
    out = net.forward()["ip"]
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, [[3, 3]])  # rounded: float32 would give 3.0015
    net.blobs["ip"].diff[...] = [[1, 2]]
    net.backward()
    np.testing.assert_array_equal(net.params["ip"][0].diff, [[3, 2**-15], [6, 2**-14]])
    assert net.params["ip"][0].data[1, 0] == np.float32(1 + 2**-11)  # the master is not rounded


def test_the_cpu_says_that_it_stores_float32(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage._say_float32.cache_clear()
    caplog.set_level(logging.INFO, "pycaffe_fire")
    net = stored_as(lenet(tmp_path), "float16")
    got = train(net, NumPyBackend(), 2)
    said = [r.getMessage() for r in caplog.records if "float32" in r.getMessage()]
    assert said == ["FLOAT16 is for GPUs: numpy stores all blobs as float32"]
    plain = train(lenet(tmp_path), NumPyBackend(), 2)
    assert all(np.array_equal(got[name], values) for name, values in plain.items())


def test_a_training_loop_waits_for_copies_only(cuda: Any, cupy: Any, tmp_path: Path) -> None:
    solver = solver_of(stored_as(inception(tmp_path), "float16"), cuda)
    solver.step(2)
    cupy.cuda.waits.clear()
    solver.step(3)
    places = {wait.rpartition("/")[2].partition(":")[0] for wait in cupy.cuda.waits}
    assert places == {"uploads.py"} and len(cupy.cuda.waits) == 3
    solver.close()
