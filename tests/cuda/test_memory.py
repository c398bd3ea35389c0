"""Blobs of a device from outside, and the memory a run will take."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import Net, schema
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver import capacity
from tests.cuda.cuda_nets import inception, solver_of
from tests.cuda.fake_cupy.races import checker

TEXT = """
layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "in" top: "ip"
  inner_product_param { num_output: 2 bias_term: false } }
force_backward: true
"""


@pytest.fixture
def net(cuda: Any) -> Net:
    return Net(schema.parse_text(TEXT, schema.NetParameter()), caffe.TRAIN, backend=cuda)


def test_arrays_are_numpys_and_writable_in_place(net: Net) -> None:
    net.params["ip"][0].data[...] = [[1, 2, 3], [0, 0, 1]]
    net.blobs["in"].data[0] = 1
    net.blobs["in"].data[1, 2] = 5
    out = net.forward()["ip"]
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, [[6, 1], [15, 5]])
    net.blobs["ip"].diff[...] = 1
    np.testing.assert_array_equal(net.backward()["in"], [[1, 2, 4]] * 2)


def test_an_array_that_is_held_follows_the_net(net: Net) -> None:
    weights, given, made = (
        net.params["ip"][0].data,
        net.blobs["in"].data,
        net.blobs["ip"].data,
    )
    for factor in (1, 2, 3):
        weights[...], given[...] = factor, 1
        net.forward()
        assert (made == 3 * factor).all()


def test_reshape(net: Net) -> None:
    net.params["ip"][0].data[...] = 1
    net.blobs["in"].reshape(4, 3)
    net.blobs["in"].data[...] = 2
    assert net.forward()["ip"].shape == (4, 2)
    assert (net.blobs["ip"].data == 6).all()


def test_weights_are_saved_and_loaded(net: Net, tmp_path: Path, cuda: Any) -> None:
    net.params["ip"][0].data[...] = np.arange(6).reshape(2, 3)
    net.save(str(tmp_path / "w.caffemodel"))
    other = Net(schema.parse_text(TEXT, schema.NetParameter()), caffe.TRAIN, backend=cuda)
    other.copy_from(str(tmp_path / "w.caffemodel"))
    np.testing.assert_array_equal(other.params["ip"][0].data, np.arange(6).reshape(2, 3))


def test_planned_memory_is_shown(
    cuda: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pycaffe_fire")
    solver = solver_of(inception(tmp_path), cuda, share_gradients=True)
    (line,) = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Device memory")]
    words = line.partition(" free")[0].replace("(", " ").split()
    numbers = [float(word) for word in words if word[0].isdigit()]
    assert numbers[0] == pytest.approx(sum(numbers[1:8]), abs=0.5)
    values = 4 * sum({id(b.value): b.count for tops in solver.net.tops for b in tops}.values())
    assert numbers[2] == pytest.approx(values / 2**20, abs=0.06)
    assert "8.0 GiB free; a batch of about " in line
    solver.close()


def test_zeros_are_written_again_where_memory_is_shared(cuda: Any) -> None:
    """Gradients that are cleared in every pass, and lie where others do in between."""
    place = cuda.empty(8)
    cleared, other = cuda.tensor((8,)), cuda.tensor((8,))
    for _ in range(2):
        for tensor in (cleared, other):
            tensor.bind(place)
        other.array[...] = 7
        cleared.clear()
        assert not cleared.copied().get().any()
        other.array[...] = 7
        cleared.clear()
        assert not cleared.copied().get().any()


BATCH_NORM = """
layer { name: "in" type: "DummyData" top: "x" dummy_data_param {
  shape { dim: BATCH dim: 8 dim: 32 dim: 32 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "y"
  convolution_param { num_output: 16 kernel_size: 3 } }
layer { name: "bn" type: "BatchNorm" bottom: "y" top: "y" }
layer { name: "scale" type: "Scale" bottom: "y" top: "y" }
layer { name: "pool" type: "Pooling" bottom: "y" top: "z"
  pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "loss" type: "Reduction" bottom: "z" top: "loss" loss_weight: 1 }
"""


def normed(batch: int) -> Any:
    return schema.parse_text(BATCH_NORM.replace("BATCH", str(batch)), schema.NetParameter())


def test_what_plans_keep_is_known_before_the_first_launch(
    cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BatchNorm's copy of its input, masks of pooling, patches of convolution: none is taken."""
    checker.work.clear()
    solver = solver_of(normed(4), cuda, share_gradients=True)
    assert not [what for what in checker.work.get(cuda.compute.ptr, []) if "kernel" in what]
    planned, kept = solver._need.plans, 4 * 4 * 16 * 30 * 30
    assert planned >= kept + kept // 4 + 4 * cuda._reserved > 0
    solver.step(1)
    assert cuda.planned_bytes() == planned
    solver.close()


def test_a_batch_that_plans_make_too_large_is_refused(
    cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = solver_of(normed(4), cuda, share_gradients=True)
    need, batch = solver._need, 4
    free = need.total + 1000
    assert batch <= capacity.largest_batch(need, free, batch) < 2 * batch
    monkeypatch.setattr(capacity, "free_bytes", lambda backend: need.total - need.plans // 2)
    with pytest.raises(SolverError, match="the GPU has .* free; use batch_size 2 with iter_size 2"):
        solver_of(normed(4), cuda, share_gradients=True)


def test_the_plan_covers_what_is_taken(cuda: Any, cupy: Any, tmp_path: Path) -> None:
    """After two iterations nothing allocates large arrays any more, and the scratch was right."""
    solver = solver_of(inception(tmp_path), cuda)
    solver.step(1)
    assert cuda._scratch.size == cuda._reserved
    solver.close()
