"""The solvers under models/ fit their nets and carry the published settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.schema import read_net, read_solver
from tests.models.model_shapes import MODELS, TEST, TRAIN

SOLVERS = sorted(MODELS.glob("*/solver*.prototxt"))
TEST_IMAGES = {
    "lenet": 4000, "cifar10_quick": 10000, "cifar10_full": 10000, "ssd_mini": 800,
    "ssd300_vgg16": 4952,
}  # fmt: skip
IMAGENET_TRAIN, IMAGENET_VAL = 1281167, 50000


def batch_size(solver: Any, phase: int) -> int:
    net = read_net(MODELS.parent / solver.net)
    sizes = [
        layer.data_param.batch_size
        for layer in net.layer
        if layer.type in ("Data", "AnnotatedData") and layer.include[0].phase == phase
    ]
    assert len(sizes) == 1
    return int(sizes[0])


@pytest.mark.parametrize("path", SOLVERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_solver_fits_its_net(path: Path) -> None:
    solver = read_solver(path)
    model = path.parent.name
    assert solver.net.startswith(f"models/{model}/train_val")
    assert solver.snapshot_prefix.startswith(f"runs/{model}/{model}")
    tested = solver.test_iter[0] * batch_size(solver, TEST)
    assert tested == TEST_IMAGES.get(model, IMAGENET_VAL)
    assert solver.solver_mode == 1, "GPU"
    assert min(solver.max_iter, solver.snapshot, solver.display, solver.test_interval) > 0
    assert solver.momentum == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("model", "rates"),
    [("googlenet", [0.02, 0.04, 0.08, 0.16, 0.32]), ("nin", [0.01, 0.02, 0.04, 0.08, 0.16])],
)
def test_sweeps_differ_in_nothing_but_the_rate(model: str, rates: list[float]) -> None:
    reference = read_solver(MODELS / model / "solver_b1024.prototxt")
    paths = sorted((MODELS / model / "sweep").iterdir())
    assert [float(path.stem.removeprefix("lr_")) for path in paths] == rates
    for path, rate in zip(paths, rates, strict=True):
        solver = read_solver(path)
        assert solver.snapshot_prefix == f"runs/{model}/sweep/lr_{rate:g}"
        assert solver.base_lr == pytest.approx(rate)
        solver.snapshot_prefix, solver.base_lr = reference.snapshot_prefix, reference.base_lr
        assert solver == reference


# The shape is the power of `poly` or how many `step`s fit into the run.
@pytest.mark.parametrize(
    ("name", "batch", "epochs", "base_lr", "policy", "shape", "decay"),
    [
        ("nin/solver", 256, 47, 0.01, "step", 2.2, 0.0005),
        ("nin/solver_b1024", 1024, 47, 0.04, "step", 2.2, 0.0005),
        ("googlenet/solver", 32, 64, 0.01, "poly", 0.5, 0.0002),
        ("googlenet/solver_b1024", 1024, 72, 0.08, "poly", 0.5, 0.0002),
        ("caffenet/solver", 256, 90, 0.01, "step", 4.5, 0.0005),
        ("alexnet/solver", 256, 90, 0.01, "step", 4.5, 0.0005),
        ("vgg16/solver", 256, 74, 0.01, "step", 3.7, 0.0005),
        ("squeezenet_v1.1/solver", 512, 68, 0.04, "poly", 1, 0.0002),
        ("resnet50/solver", 256, 120, 0.1, "step", 4, 0.0001),
        ("mobilenet_v1/solver", 256, 100, 0.1, "poly", 1, 0.0001),
    ],
)
def test_imagenet_settings(
    name: str, batch: int, epochs: int, base_lr: float, policy: str, shape: float, decay: float
) -> None:
    solver = read_solver(MODELS / f"{name}.prototxt")
    assert batch_size(solver, TRAIN) * solver.iter_size == batch
    assert solver.max_iter * batch / IMAGENET_TRAIN == pytest.approx(epochs, rel=0.01)
    assert solver.base_lr == pytest.approx(base_lr)
    assert solver.lr_policy == policy
    assert solver.weight_decay == pytest.approx(decay)
    if policy == "poly":
        assert solver.power == shape
    else:
        assert solver.gamma == pytest.approx(0.1)
        assert solver.max_iter / solver.stepsize == pytest.approx(shape, rel=0.001)


@pytest.mark.parametrize(
    ("model", "stages"),
    [
        ("cifar10_quick", [("solver", 1e-3, 4000), ("solver_lr1", 1e-4, 5000)]),
        (
            "cifar10_full",
            [("solver", 1e-3, 60000), ("solver_lr1", 1e-4, 65000), ("solver_lr2", 1e-5, 70000)],
        ),
    ],
)
def test_cifar_stages_go_on_from_each_other(
    model: str, stages: list[tuple[str, float, int]]
) -> None:
    solvers = [read_solver(MODELS / model / f"{stage}.prototxt") for stage, _, _ in stages]
    for solver, (_, base_lr, max_iter) in zip(solvers, stages, strict=True):
        assert solver.base_lr == pytest.approx(base_lr)
        assert solver.max_iter == max_iter
        assert solver.max_iter % solver.snapshot == 0, "the next stage needs a snapshot there"
        assert solver.weight_decay == pytest.approx(0.004)
    assert len({solver.snapshot_prefix for solver in solvers}) == 1
