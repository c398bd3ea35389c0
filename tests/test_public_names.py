"""The public face: pycaffe's names, and a package __init__ that only re-exports."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema

PACKAGE = Path(caffe.__file__).parent
NAMES = {
    "Net", "SGDSolver", "NesterovSolver", "AdaGradSolver", "RMSPropSolver", "AdaDeltaSolver",
    "AdamSolver", "get_solver", "set_mode_cpu", "set_mode_gpu", "set_random_seed", "TRAIN", "TEST",
    "layer_type_list", "Blob", "Layer", "register_layer", "FireError",
}  # fmt: skip


def test_names() -> None:
    assert set(caffe.__all__) >= NAMES
    for name in caffe.__all__:
        assert getattr(caffe, name) is not None
    assert sorted(caffe.__all__) == sorted(set(caffe.__all__))


def test_init_only_re_exports() -> None:
    """Imports, plain names for constants, and __all__: nothing is decided there."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        constant = isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Attribute)
        names = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        assert docstring or constant or names or isinstance(node, ast.ImportFrom), ast.unparse(node)


def test_phases_are_caffe_s_numbers() -> None:
    assert (caffe.TRAIN, caffe.TEST) == (0, 1)


def test_layer_types() -> None:
    types = caffe.layer_type_list()
    wanted = {
        "Input", "Data", "DummyData", "Convolution", "InnerProduct", "Pooling", "ReLU", "LRN",
        "Dropout", "Concat", "Split", "Softmax", "SoftmaxWithLoss", "Accuracy", "HDF5Data",
    }  # fmt: skip
    assert wanted <= set(types) and types == sorted(types)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "d" type: "DummyData" top: "x" top: "y" dummy_data_param { '
        'shape { dim: 4 dim: 3 } shape { dim: 4 } data_filler { type: "gaussian" } '
        "data_filler { value: 1 } } }\n"
        'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" '
        'inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }\n'
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }\n'
    )
    return tmp_path


def solver_file(kind: str) -> str:
    typed = f'type: "{kind}" ' if kind else ""
    Path("solver.prototxt").write_text(
        f'net: "net.prototxt" {typed} base_lr: 0.1 lr_policy: "fixed" test_iter: 1 test_interval: 9'
    )
    return "solver.prototxt"


@pytest.mark.parametrize("kind", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_each_solver_class(files: Path, kind: str) -> None:
    wanted: Any = getattr(caffe, f"{kind}Solver")
    assert type(wanted(solver_file(""))) is wanted
    made = caffe.get_solver(solver_file(kind))
    assert type(made) is wanted
    before = made.net.params["ip"][0].data.copy()
    made.step(2)
    assert made.iter == 2 and len(made.test_nets) == 1
    assert (made.net.params["ip"][0].data != before).any()
    assert (made.test_nets[0].params["ip"][0].data == made.net.params["ip"][0].data).all()


def test_an_unknown_solver_type(files: Path) -> None:
    with pytest.raises(caffe.FireError, match='"Adamm".*did you mean "Adam"'):
        caffe.get_solver(solver_file("Adamm"))


def test_net_attributes(files: Path) -> None:
    net = caffe.Net("net.prototxt", caffe.TEST)
    assert list(net.blobs) == ["x", "y", "ip", "loss"]
    assert list(net.params) == ["ip"] and len(net.params["ip"]) == 2
    assert net.outputs == ["loss"] and net.inputs == []
    assert [layer.type for layer in net.layers] == ["DummyData", "InnerProduct", "SoftmaxWithLoss"]
    blob = net.blobs["x"]
    for array in (blob.data, blob.diff):
        assert array.dtype == np.float32 and array.flags.c_contiguous and array.flags.writeable
        assert array.shape == (4, 3)
    blob.data[...] = 5
    assert (blob.data == 5).all()


def test_seeds(files: Path) -> None:
    def weights(seed: int) -> Any:
        caffe.set_random_seed(seed)
        return caffe.Net("net.prototxt", caffe.TRAIN).params["ip"][0].data.copy()

    assert (weights(3) == weights(3)).all()
    assert (weights(3) != weights(4)).any()


def test_modes_can_be_set() -> None:
    caffe.set_mode_cpu()
    assert caffe.Net(schema.NetParameter(), caffe.TEST).forward() == {}


def test_importing_loads_nothing_heavy() -> None:
    """Optional libraries are for those who use them."""
    code = "import sys, pycaffe_fire; print([m for m in HEAVY if m in sys.modules])"
    code = code.replace("HEAVY", "('torch', 'matplotlib', 'onnx', 'cupy', 'mpi4py')")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.strip() == "[]", done.stderr
