"""Nets for the emulated device, and training them on any backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pycaffe_fire import schema
from pycaffe_fire.solver import Solver, SolverOptions

MODELS = Path(__file__).parents[2] / "models"
SOLVER = (
    'base_lr: 0.01 lr_policy: "inv" gamma: 0.0001 power: 0.75 momentum: 0.9 weight_decay: 0.0005 '
    "random_seed: 3 display: 0 snapshot_after_train: false"
)


def write_images(folder: Path, shape: tuple[int, ...], classes: int, rows: int = 16) -> str:
    """An HDF5 file of random images and labels; returns the list that names it."""
    rng = np.random.default_rng(1)
    file = folder / "images.h5"
    with h5py.File(file, "w") as out:
        out["data"] = rng.random((rows, *shape), np.float32)
        out["label"] = rng.integers(0, classes, rows).astype(np.float32)
    (folder / "images.txt").write_text(f"{file}\n")
    return str(folder / "images.txt")


def images_layer(source: str, batch: int) -> str:
    return (
        'layer { name: "data" type: "HDF5Data" top: "data" top: "label" '
        f'hdf5_data_param {{ source: "{source}" batch_size: {batch} }} }}\n'
    )


def lenet(folder: Path, batch: int = 2) -> Any:
    """models/lenet with small batches of made-up images."""
    net = schema.read_net(str(MODELS / "lenet" / "train_val.prototxt"))
    kept = [layer for layer in net.layer if layer.type != "Data"]
    source = write_images(folder, (1, 28, 28), 10)
    made = schema.parse_text(images_layer(source, batch), schema.NetParameter())
    made.layer.extend(kept)
    return made


def _conv(name: str, bottom: str, outputs: int, size: int) -> str:
    return (
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" '
        f"convolution_param {{ num_output: {outputs} kernel_size: {size} pad: {size // 2} "
        'weight_filler { type: "xavier" } bias_filler { value: 0.1 } } }\n'
        f'layer {{ name: "relu {name}" type: "ReLU" bottom: "{name}" top: "{name}" }}\n'
    )


def inception(folder: Path, batch: int = 2, classes: int = 5) -> Any:
    """LRN, a block of GoogLeNet's four branches, dropout and a classifier."""
    source = write_images(folder, (3, 12, 12), classes)
    text = images_layer(source, batch) + _conv("stem", "data", 8, 3)
    text += 'layer { name: "norm" type: "LRN" bottom: "stem" top: "norm" }\n'
    text += _conv("one", "norm", 4, 1)
    text += _conv("three reduce", "norm", 4, 1) + _conv("three", "three reduce", 6, 3)
    text += _conv("five reduce", "norm", 2, 1) + _conv("five", "five reduce", 4, 5)
    text += (
        'layer { name: "pool" type: "Pooling" bottom: "norm" top: "pool" '
        "pooling_param { kernel_size: 3 stride: 1 pad: 1 } }\n"
    )
    text += _conv("project", "pool", 4, 1)
    ends = "".join(f'bottom: "{name}" ' for name in ("one", "three", "five", "project"))
    text += f'layer {{ name: "join" type: "Concat" {ends} top: "join" }}\n'
    text += (
        'layer { name: "average" type: "Pooling" bottom: "join" top: "average" '
        "pooling_param { pool: AVE kernel_size: 7 stride: 5 } }\n"
        'layer { name: "drop" type: "Dropout" bottom: "average" top: "average" '
        "dropout_param { dropout_ratio: 0.4 } }\n"
        'layer { name: "scores" type: "InnerProduct" bottom: "average" top: "scores" '
        'inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }\n'
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "label" '
        'top: "loss" }\n'
    )
    return schema.parse_text(text, schema.NetParameter())


def solver_of(net: Any, backend: Any, settings: str = SOLVER, **options: Any) -> Solver:
    param = schema.parse_text(settings, schema.SolverParameter())
    param.net_param.CopyFrom(net)
    options.setdefault("seed", max(0, param.random_seed))
    return Solver(param, SolverOptions(backend, **options))


def train(net: Any, backend: Any, iterations: int, **options: Any) -> dict[str, Any]:
    """The losses and the weights after some iterations."""
    losses: list[Any] = []
    solver = solver_of(
        net, backend, observers=[lambda event: losses.append(getattr(event, "loss", None))],
        **options,
    )  # fmt: skip
    solver.step(iterations)
    found = {
        f"{name}[{i}]": np.array(blob.data)
        for name, blobs in solver.net.params.items()
        for i, blob in enumerate(blobs)
    }
    solver.close()
    return {"losses": np.array([float(loss) for loss in losses if loss is not None]), **found}
