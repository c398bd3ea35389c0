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
from pycaffe_fire.backend.cuda import CudaBackend, cudnn, launch
from pycaffe_fire.net.graph import filter_net
from pycaffe_fire.net.synthetic import with_synthetic_data
from tests.cuda import fake_cudnn
from tests.cuda.cuda_emulator import Function
from tests.cuda.cuda_nets import solver_of
from tests.cuda.fake_cupy import blas
from tests.cuda.fake_cupy.races import checker

MODELS = Path(__file__).parents[2] / "models"
LIBRARIES = ("cuBLAS", "cuDNN")
COPIES = ("kernel join_parts", "kernel cut_parts", "kernel copy_rows")


class Budget(NamedTuple):
    """The most of an iteration: launches in all, of those by array code, and of those that bring a
    blob into another order (NCHW, NHWC); new memory; megabytes that parts of a blob are copied, and
    that all launches read and write (all of an array, even if a launch needs a part of it)."""

    launches: int
    array_code: int
    turns: int
    allocations: int
    copied: float
    moved: float
    variants: int  # of kernels, compiled for all shapes of the net


BUDGETS = {
    ("googlenet", "cudnn", "float32"): Budget(329, 7, 0, 5, 0, 535, 43),
    ("googlenet", "cudnn", "float16"): Budget(408, 14, 5, 9, 0, 608, 4),
    ("googlenet", "ours", "float32"): Budget(545, 7, 0, 5, 0, 775, 72),
    ("resnet50", "cudnn", "float32"): Budget(436, 5, 0, 3, 0, 1432, 30),
    ("resnet50", "cudnn", "bfloat16"): Budget(492, 5, 1, 3, 0, 1153, 8),
    ("resnet50", "ours", "float32"): Budget(588, 5, 0, 3, 0, 1889, 52),
    ("alexnet", "cudnn", "float32"): Budget(58, 5, 0, 3, 0, 1444, 8),
    ("alexnet", "cudnn", "float16"): Budget(75, 8, 3, 5, 0, 2018, 2),
    ("alexnet", "ours", "float32"): Budget(88, 5, 0, 3, 0, 1544, 20),
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


@pytest.mark.parametrize(("model", "engine", "kind"), BUDGETS)
def test_an_iteration(
    model: str, engine: str, kind: str, cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "fixed_source", _for_all_shapes)
    monkeypatch.setattr(Function, "__call__", lambda self, *_: None)
    monkeypatch.setattr(blas, "multiply", lambda *_: None)
    monkeypatch.setattr(fake_cudnn.Graph, "_compute", lambda *_: None)
    library = fake_cudnn.FakeCudnn()
    monkeypatch.setattr(cudnn, "load", lambda: library)
    backend = CudaBackend(0, cudnn=engine == "cudnn", precision=kind)
    solver = solver_of(small_batch(model), backend, share_gradients=True)
    solver.step(3)
    cupy.cuda.waits.clear()
    checker.work.clear()
    checker.moved.clear()
    allocated, variants = checker.allocations, len(backend.kernels.variants)
    solver.step(1)
    solver.close()
    queued = checker.work[backend.compute.ptr]
    kinds = Counter(_kind(what) for what in queued)
    budget = BUDGETS[model, engine, kind]
    turns = sum(what.startswith("kernel turn") for what in queued)
    copied = sum(checker.moved[what] for what in COPIES) / 2**20
    moved = sum(checker.moved.values()) / 2**20
    found = Budget(
        len(queued), kinds["array code"], turns, checker.allocations - allocated, copied, moved,
        variants,
    )  # fmt: skip
    names = Counter(queued).most_common(12)
    assert all(a <= b for a, b in zip(found, budget, strict=True)), (found, names)
    assert len(backend.kernels.variants) == variants  # nothing is compiled once it runs
    assert cupy.cuda.waits == [] and set(checker.work) == {backend.compute.ptr}


def _for_all_shapes(name: str, kind: str, fixed: launch.Fixed) -> str:
    """Variants are counted here, not compiled."""
    return launch.source_of(launch._catalogue()[name].file, kind)


def _kind(what: str) -> str:
    if what.startswith("kernel"):
        return "kernels"
    return what.partition(" ")[0] if what.startswith(LIBRARIES) else "array code"
