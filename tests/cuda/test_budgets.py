"""What an iteration asks of a device: launches, waits, copies and new memory, for three large nets.

Kernels and libraries do nothing here, so that the nets can have their real shapes; what array code
makes of that is not looked at.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend.cuda import CudaBackend, cudnn
from pycaffe_fire.net.graph import filter_net
from pycaffe_fire.net.synthetic import with_synthetic_data
from tests.cuda import fake_cudnn
from tests.cuda.cuda_emulator import Function
from tests.cuda.cuda_nets import solver_of
from tests.cuda.fake_cupy import blas
from tests.cuda.fake_cupy.races import checker

MODELS = Path(__file__).parents[2] / "models"
LIBRARIES = ("cuBLAS", "cuDNN")


class Budget(NamedTuple):
    """The most of an iteration: launches in all, and of those by array code."""

    launches: int
    array_code: int
    allocations: int


BUDGETS = {
    ("googlenet", "cudnn"): Budget(347, 7, 5),
    ("googlenet", "ours"): Budget(563, 7, 5),
    ("resnet50", "cudnn"): Budget(436, 5, 3),
    ("resnet50", "ours"): Budget(588, 5, 3),
    ("alexnet", "cudnn"): Budget(58, 5, 3),
    ("alexnet", "ours"): Budget(88, 5, 3),
}


def small_batch(model: str) -> Any:
    """The training net for made-up images, one at a time, its weights zeros."""
    net = schema.read_net(str(MODELS / model / "train_val.prototxt"))
    net.state.phase = schema.TRAIN
    made = with_synthetic_data(filter_net(net))
    for layer in made.layer:
        for shape in layer.dummy_data_param.shape:
            shape.dim[0] = 1
        for field in ("convolution_param", "inner_product_param"):
            if layer.HasField(field):
                getattr(layer, field).ClearField("weight_filler")
    return made


@pytest.mark.parametrize(("model", "engine"), BUDGETS)
def test_an_iteration(model: str, engine: str, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Function, "__call__", lambda self, *_: None)
    monkeypatch.setattr(blas, "multiply", lambda *_: None)
    monkeypatch.setattr(fake_cudnn.Graph, "_compute", lambda *_: None)
    library = fake_cudnn.FakeCudnn()
    monkeypatch.setattr(cudnn, "load", lambda: library)
    backend = CudaBackend(0, cudnn=engine == "cudnn")
    solver = solver_of(small_batch(model), backend)
    solver.step(3)
    cupy.cuda.waits.clear()
    checker.work.clear()
    allocated = checker.allocations
    solver.step(1)
    solver.close()
    queued = checker.work[backend.compute.ptr]
    kinds = Counter(_kind(what) for what in queued)
    budget = BUDGETS[model, engine]
    found = Budget(len(queued), kinds["array code"], checker.allocations - allocated)
    names = Counter(queued).most_common(12)
    assert all(a <= b for a, b in zip(found, budget, strict=True)), (found, names)
    assert cupy.cuda.waits == [] and set(checker.work) == {backend.compute.ptr}


def _kind(what: str) -> str:
    if what.startswith("kernel"):
        return "kernels"
    return what.partition(" ")[0] if what.startswith(LIBRARIES) else "array code"
