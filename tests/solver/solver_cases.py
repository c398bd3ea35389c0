"""Small solvers for the tests: prototxt text, data in HDF5 and LMDB, events collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.solver import Solver, SolverOptions

Array = np.ndarray[Any, Any]

FILL = 'weight_filler { type: "xavier" } bias_filler { type: "constant" value: 0.1 }'


def write_rows(folder: Path, rows: int = 24, seed: int = 3) -> str:
    """An HDF5 file of images and labels 0 to 3; returns the list that names it."""
    rng = np.random.default_rng(seed)
    file = folder / "rows.h5"
    with h5py.File(file, "w") as out:
        out["data"] = rng.normal(size=(rows, 2, 7, 7)).astype(np.float32)
        out["label"] = rng.integers(0, 4, rows).astype(np.float32)
    listed = folder / "rows.txt"
    listed.write_text(f"{file}\n")
    return str(listed)


def write_records(folder: Path, records: int = 24) -> str:
    rng = np.random.default_rng(4)
    path = folder / "records_lmdb"
    with DatabaseWriter(path) as writer:
        for i in range(records):
            image = rng.integers(0, 256, (2, 7, 7), dtype=np.uint8)
            writer.put(b"%08d" % i, encode_datum(image, i % 4))
    return str(path)


def rows_layer(source: str, batch: int, extra: str = "") -> str:
    return (
        'layer { name: "data" type: "HDF5Data" top: "data" top: "label" '
        f'hdf5_data_param {{ source: "{source}" batch_size: {batch} {extra} }} }}\n'
    )


def records_layer(source: str, batch: int, extra: str = "") -> str:
    return (
        'layer { name: "data" type: "Data" top: "data" top: "label" '
        f'data_param {{ source: "{source}" batch_size: {batch} backend: LMDB {extra} }} '
        "transform_param { scale: 0.01 mirror: true } }\n"
    )


def body(between: str = "", specs: str = "") -> str:
    """Convolution, ReLU, pooling, `between` (in place on "pool"), inner product, loss."""
    return (
        'layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" '
        f"convolution_param {{ num_output: 16 kernel_size: 3 {FILL} }} {specs} }}\n"
        'layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }\n'
        'layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" '
        "pooling_param { kernel_size: 2 stride: 2 } }\n"
        f"{between}"
        'layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" '
        f"inner_product_param {{ num_output: 4 {FILL} }} {specs} }}\n"
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }\n'
    )


DROPOUT = 'layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" }\n'
SGD = 'base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.01 random_seed: 5\n'


def make(net: str, settings: str = SGD, threads: int = 1, **options: Any) -> Solver:
    param = schema.parse_text(settings, schema.SolverParameter())
    param.net_param.CopyFrom(schema.parse_text(net, schema.NetParameter()))
    options.setdefault("seed", max(0, param.random_seed))
    return Solver(param, SolverOptions(cpu_backend(threads), **options))


def weights(solver: Solver) -> dict[str, Array]:
    return {
        f"{name}_{i}": blob.data.copy()
        for name, blobs in solver.net.params.items()
        for i, blob in enumerate(blobs)
    }


def same_bits(a: dict[str, Array], b: dict[str, Array]) -> bool:
    return a.keys() == b.keys() and all((a[name] == b[name]).all() for name in a)


def close(a: dict[str, Array], b: dict[str, Array], rtol: float = 1e-4) -> None:
    for name in b:
        np.testing.assert_allclose(a[name], b[name], rtol=rtol, atol=1e-5, err_msg=name)
