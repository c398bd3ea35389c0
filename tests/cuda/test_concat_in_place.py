"""Concat without copies: inputs are written where the output lies, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import Net, schema
from pycaffe_fire.backend.cuda import CudaBackend, cudnn
from pycaffe_fire.backend.cuda.concat import Concat
from pycaffe_fire.backend.cuda.tensor import own
from pycaffe_fire.backend.numpy import NumPyBackend
from tests.cuda.cuda_nets import inception, solver_of, train
from tests.cuda.fake_cudnn import FakeCudnn
from tests.cuda.fake_cupy.races import checker
from tests.cuda.test_storage import ROUNDING, distance, stored_as
from tests.cuda.test_variants import values_of

BRANCHES = ("one", "three", "five", "project")
COPIES = ("kernel join_parts", "kernel cut_parts", "kernel copy_rows")


@pytest.fixture(params=["ours", "cudnn"])
def backend(request: pytest.FixtureRequest, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "cudnn":
        fake = FakeCudnn()
        monkeypatch.setattr(cudnn, "load", lambda: fake)
    return CudaBackend(0, cudnn=request.param == "cudnn")


def copies(backend: Any) -> list[str]:
    return [what for what in checker.work[backend.compute.ptr] if what.startswith(COPIES)]


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_the_same_without_copies(
    backend: Any, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit what copies give; in float32 close to the CPU."""
    net = inception(tmp_path) if kind == "float32" else stored_as(inception(tmp_path), kind)
    checker.work.clear()
    got = train(net, backend, 3, share_gradients=True)
    assert not copies(backend)
    monkeypatch.setattr(Concat, "_take_in", lambda *_, **__: None)
    copied = train(net, backend, 3, share_gradients=True)
    assert len(copies(backend)) == 6
    want = train(inception(tmp_path), NumPyBackend(), 3)
    for name, values in want.items():
        np.testing.assert_array_equal(got[name], copied[name], err_msg=name)
        assert distance(got[name], values) <= 16 * ROUNDING.get(kind, 1e-6), name


def test_what_lies_where(backend: Any, tmp_path: Path) -> None:
    solver = solver_of(inception(tmp_path), backend, share_gradients=True)
    blobs = solver.net.blobs
    for part in ("value", "gradient"):
        home = getattr(blobs["join"], part)
        assert all(getattr(blobs[name], part).home is home for name in BRANCHES)
        assert blobs["pool"].value.home is None
    solver.step(1)
    join = own(blobs["join"].value)
    first, last = (own(blobs[name].value).buffer for name in (BRANCHES[0], BRANCHES[-1]))
    assert first.data.ptr == join.buffer.data.ptr
    assert join.buffer.data.ptr < last.data.ptr < join.buffer.data.ptr + join.buffer.nbytes
    assert own(blobs["one"].value).words == 0  # for the plan of memory
    solver.close()


TWO = """
force_backward: true
layer { name: "in" type: "Input" top: "in"
  input_param { shape { dim: BATCH dim: 2 dim: 4 dim: 3 } } }
layer { name: "a" type: "Convolution" bottom: "in" top: "a"
  convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "a" top: "a" }
layer { name: "b" type: "Pooling" bottom: "in" top: "b"
  pooling_param { kernel_size: 3 stride: 1 pad: 1 } }
layer { name: "c" type: "BatchNorm" bottom: "in" top: "c" }
layer { name: "join" type: "Concat" bottom: "a" bottom: "b" bottom: "c" top: "join" }
AFTER
layer { name: "end" type: "Convolution" bottom: "join" top: "end"
  convolution_param { num_output: 2 kernel_size: 1 weight_filler { type: "xavier" } } }
"""
AFTER = {
    "nothing": "",
    "a ReLU in place": 'layer { name: "r" type: "ReLU" bottom: "join" top: "join" }',
    "dropout in place": 'layer { name: "d" type: "Dropout" bottom: "join" top: "join" }',
    "batch norm in place": 'layer { name: "n" type: "BatchNorm" bottom: "join" top: "join" }',
    "array code in place": 'layer { name: "p" type: "Power" bottom: "join" top: "join" '
                           "power_param { scale: -2 } }",
}  # fmt: skip


def both_nets(backend: Any, after: str, batch: int = 2) -> list[Any]:
    text = TWO.replace("AFTER", AFTER[after]).replace("BATCH", str(batch))
    made = []
    for each in (backend, NumPyBackend()):
        caffe.set_random_seed(3)  # the same numbers for dropout
        param = schema.parse_text(text, schema.NetParameter())
        made.append(Net(param, caffe.TRAIN, backend=each))
    for net in made:
        for name, blobs in net.params.items():
            if name in ("a", "end"):
                for blob in blobs:
                    blob.data[...] = values_of(blob.shape)
    return made


def fill(net: Any, batch: int) -> None:
    net.blobs["in"].data[...] = values_of((batch, 2, 4, 3))


def assert_same(nets: list[Any], part: str) -> None:
    for name in nets[0].blobs:
        got, want = (getattr(net.blobs[name], part) for net in nets)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=f"{name}.{part}")


@pytest.mark.parametrize("after", AFTER)
def test_every_blob_is_caffes(backend: Any, after: str) -> None:
    """Also where the joined blob is overwritten: its parts keep their own values."""
    nets = both_nets(backend, after)
    for _ in range(2):
        for net in nets:
            fill(net, 2)
            net.forward()
            net.blobs["end"].diff[...] = values_of((2, 2, 4, 3))
        nets[0].backward()
        nets[1].backward()
        assert_same(nets, "data")
        assert_same(nets, "diff")
    in_place = after == "nothing"
    assert {own(nets[0].blobs[n].value).home is not None for n in "abc"} == {in_place}


def test_who_looks_between_the_passes(backend: Any) -> None:
    nets = both_nets(backend, "nothing")
    for net in nets:
        fill(net, 2)
        net.forward()
    assert_same(nets, "data")
    for net in nets:
        net.blobs["join"].data[:, 1] = 9  # seen by what comes after, not by the parts
        net.blobs["end"].diff[...] = 1
        net.backward()
    assert_same(nets, "data")
    np.testing.assert_allclose(
        nets[0].params["end"][0].diff, nets[1].params["end"][0].diff, rtol=1e-4, atol=1e-5
    )
    for net in nets:
        net.blobs["b"].data[...] = 5  # and a part is written
        net.forward(start="join")
    assert_same(nets, "data")


def test_another_batch_size(backend: Any) -> None:
    nets = both_nets(backend, "nothing")
    for batch in (2, 3, 1):
        for net in nets:
            net.blobs["in"].reshape(batch, 2, 4, 3)
            fill(net, batch)
            net.forward()
            net.blobs["end"].diff[...] = values_of((batch, 2, 4, 3))
            net.backward()
        assert_same(nets, "data")
        assert_same(nets, "diff")


def test_what_cudnn_cannot_write_with_gaps_is_copied(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cudnn, "load", FakeCudnn)
    plan = cudnn.Planner.plan

    def refusing(self: Any, product: cudnn.Product) -> Any:
        if product.pitch and product.weights[2] == 3:
            raise cudnn.Refused
        return plan(self, product)

    monkeypatch.setattr(cudnn.Planner, "plan", refusing)
    backend = CudaBackend(0)
    checker.work.clear()
    got = train(inception(tmp_path), backend, 2, share_gradients=True)
    assert len(copies(backend)) == 4  # one each way for the branch that has to
    want = train(inception(tmp_path), NumPyBackend(), 2)
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_blob_that_others_read_too_is_copied(backend: Any) -> None:
    text = """
    layer { name: "in" type: "Input" top: "in"
      input_param { shape { dim: 2 dim: 2 dim: 3 dim: 3 } } }
    layer { name: "a" type: "Convolution" bottom: "in" top: "a"
      convolution_param { num_output: 2 kernel_size: 1 weight_filler { type: "xavier" } } }
    layer { name: "join" type: "Concat" bottom: "a" bottom: "a" bottom: "in" top: "join" }
    """
    nets = [
        Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN, backend=b)
        for b in (backend, NumPyBackend())
    ]
    for net in nets:
        net.params["a"][0].data[...] = values_of((2, 2, 1, 1))
        net.blobs["in"].data[...] = values_of((2, 2, 3, 3))
        net.forward()
    assert_same(nets, "data")
    assert own(nets[0].blobs["a"].value).home is None
