"""Python layers that feed data, where leaves and ranks share a batch: rank 0 reads for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.errors import FireError
from pycaffe_fire.solver.capacity import planned
from pycaffe_fire.solver.options import SolverOptions
from tests.parallel.test_jobs import start, write
from tests.solver.solver_cases import SGD, make, same_bits, weights

MODULE = """
import numpy as np
import pycaffe_fire as caffe


class Reader(caffe.Layer):
    '''Twelve samples in every pass, each with its own number in it; counts its passes.'''

    def setup(self, bottom, top):
        self.batch, self.passes = int(self.param_str or 12), 0

    def reshape(self, bottom, top):
        top[0].reshape(self.batch, 3, 6, 6)
        top[1].reshape(self.batch)

    def forward(self, bottom, top):
        rng = np.random.RandomState(self.passes)
        top[0].data[...] = rng.normal(size=top[0].data.shape)
        top[1].data[...] = rng.randint(3, size=self.batch)
        self.passes += 1

    def backward(self, top, propagate_down, bottom): ...
"""
DATA = """
layer { name: "data" type: "Python" top: "data" top: "label"
  python_param { module: "reader" layer: "Reader" %s } }
"""


def use_reader(folder: Path, iterations: int) -> None:
    (folder / "reader.py").write_text(MODULE)
    write(folder, iterations)
    text = (folder / "net.prototxt").read_text()
    (folder / "net.prototxt").write_text(DATA % "" + text[text.index('layer { name: "conv"') :])


def test_ranks_give_the_bits_of_one_process(tmp_path: Path) -> None:
    """Also in tests, where every rank runs all passes. The jobs run side by side."""
    pytest.importorskip("mpi4py", reason="several ranks need mpi4py")
    jobs: dict[int, Any] = {}
    for ranks in (1, 2, 3):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        use_reader(folder, 3)
        flags = [] if ranks == 1 else ["-n", str(ranks)]
        jobs[ranks] = start(folder, "--leaves", "6", "--allow-python-layers", *flags)
    found = []
    for ranks, job in jobs.items():
        output, _ = job.communicate(timeout=240)
        assert job.returncode == 0, output
        scores = [line.split("]")[1] for line in output.splitlines() if "Test net output" in line]
        model = (tmp_path / str(ranks) / "snap_iter_3.caffemodel").read_bytes()
        found.append((scores, model))
    assert found[0][0] and found[0] == found[1] == found[2]


class Recorded(caffe.Layer):
    """Feeds samples that are numbered over all passes; notes how often it was asked."""

    calls = 0
    shapes: Any = ((4, 2),)

    def setup(self, bottom: Any, top: Any) -> None: ...

    def reshape(self, bottom: Any, top: Any) -> None:
        for blob, shape in zip(top, self.shapes, strict=True):
            blob.reshape(*shape)

    def forward(self, bottom: Any, top: Any) -> None:
        for blob in top:
            blob.data[...] = np.arange(blob.data.size).reshape(blob.shape) / 10 + Recorded.calls
        Recorded.calls += 1

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None: ...


NET = """
layer { name: "data" type: "Python" top: "data" python_param {
  module: "tests.parallel.test_python_data" layer: "Recorded" } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 1 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 0.25
  reduction_param { operation: SUMSQ } }
"""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Recorded.calls, Recorded.shapes = 0, ((4, 2),)


def trained(leaves: int, threads: int = 1, iter_size: int = 1, net: str = NET) -> Any:
    Recorded.calls = 0
    solver = make(net, SGD + f"iter_size: {iter_size}", threads, leaves=leaves)
    solver.step(3)
    solver.close()
    return solver


@pytest.mark.parametrize("iter_size", [1, 2])
def test_samples_of_a_pass_are_cut_into_leaves(iter_size: int) -> None:
    """One call is a batch: leaves compute what one does, up to rounding, in as many calls."""
    halves = NET.replace("0.25", "0.5")  # of two samples; the loss is a sum
    one = weights(trained(1, iter_size=iter_size, net=NET))
    assert Recorded.calls == 3 * iter_size
    cut = trained(2, iter_size=iter_size, net=halves)
    assert Recorded.calls == 3 * iter_size
    for name, values in weights(cut).items():
        np.testing.assert_allclose(values, one[name], rtol=1e-4)
    again = trained(2, threads=2, iter_size=iter_size, net=halves)
    assert same_bits(weights(again), weights(cut))


def test_single_samples_are_a_pass_for_every_leaf() -> None:
    """As FCNs and R-CNNs read images: with leaves in place of iter_size, nothing else changes."""
    Recorded.shapes = ((1, 2),)
    passes = weights(trained(1, iter_size=4))
    assert Recorded.calls == 12
    for name, values in weights(trained(4)).items():
        np.testing.assert_allclose(values, passes[name], rtol=1e-4)
    assert Recorded.calls == 12


def test_a_batch_that_cannot_be_cut_is_refused() -> None:
    with pytest.raises(FireError, match='"data".*batch of 4 cannot be cut into 3 equal leaves'):
        trained(3)


def test_a_summary_needs_no_solver() -> None:
    param = schema.parse_text(SGD, schema.SolverParameter())
    param.net_param.CopyFrom(schema.parse_text(NET, schema.NetParameter()))
    net, _ = planned(param, SolverOptions(cpu_backend(1), 0, leaves=2))
    assert net.blobs["data"].shape == (2, 2)
