"""The `caffe` module: one set of objects under two names, settings, log, timer, messages."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import caffe
import pytest
from google.protobuf import text_format

import pycaffe_fire
from pycaffe_fire import schema
from pycaffe_fire.errors import SolverError
from pycaffe_fire.pycaffe.proto import caffe_pb2
from pycaffe_fire.schema.messages import ENUMS, FIELDS

ROOT = Path(pycaffe_fire.__file__).parent.parent
NAMES = {
    "Net", "SGDSolver", "NesterovSolver", "AdaGradSolver", "RMSPropSolver", "AdaDeltaSolver",
    "AdamSolver", "NCCL", "Timer", "init_log", "log", "has_nccl", "set_mode_cpu", "set_mode_gpu",
    "set_random_seed", "set_device", "Layer", "get_solver", "layer_type_list", "solver_count",
    "set_solver_count", "solver_rank", "set_solver_rank", "set_multiprocess", "TRAIN", "TEST",
    "Classifier", "Detector", "io", "params", "NetSpec", "to_proto", "proto",
    "__version__", "net_spec", "pycaffe", "draw", "coord_map", "classifier", "detector",
}  # fmt: skip
MODULES = ("io", "draw", "net_spec", "coord_map", "classifier", "detector", "proto")


def test_every_name_of_pycaffe_is_there_and_is_ours() -> None:
    assert set(dir(caffe)) >= NAMES
    for name in pycaffe_fire.__all__:
        assert getattr(caffe, name) is getattr(pycaffe_fire, name), name


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_the_same_objects(name: str) -> None:
    module = importlib.import_module(f"pycaffe_fire.{name}")
    assert importlib.import_module(f"caffe.{name}") is module is getattr(caffe, name)


def test_the_usual_import_lines() -> None:
    import caffe.draw
    import caffe.io
    from caffe import layers as L  # noqa: N812
    from caffe import params as P  # noqa: N812
    from caffe.coord_map import crop
    from caffe.proto import caffe_pb2 as messages
    from caffe.pycaffe import Net

    assert messages is caffe_pb2 and Net is pycaffe_fire.Net and callable(crop)
    assert caffe.io is pycaffe_fire.io and P.Pooling.MAX == 0
    made = L.Convolution(L.Input(shape=dict(dim=[1, 1, 4, 4])), num_output=2, kernel_size=3)
    assert made.to_proto().layer[1].convolution_param.num_output == 2


def test_layers_are_net_spec_s_and_the_package_stays_importable() -> None:
    from pycaffe_fire.layers import LAYERS, Neuron

    assert isinstance(pycaffe_fire.layers, pycaffe_fire.net_spec.Layers)
    assert pycaffe_fire.layers is caffe.layers and issubclass(LAYERS["ReLU"], Neuron)


def test_all_ways_of_installing_know_the_package() -> None:
    tomllib = pytest.importorskip("tomllib", reason="came with Python 3.11")
    find = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    discover = pytest.importorskip("setuptools.config.expand").find_packages
    places: dict[str, str] = {}
    found = discover(root_dir=ROOT, fill_package_dir=places, **find["find"])
    assert "caffe" in found and "pycaffe_fire.net" in found
    assert not [name for name in found if "dropin" in name]
    assert Path(places["caffe"]) == Path("pycaffe_fire/dropin/caffe")


def fresh(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, as a user would."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "pycaffe_fire" / "dropin")])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip


@pytest.mark.parametrize(("level", "lines"), [("0", 2), ("1", 0)])
def test_import_caffe_logs_as_caffe_does(level: str, lines: int) -> None:
    code = "import caffe; caffe.log('hello'); caffe.Net(caffe.proto.caffe_pb2.NetParameter(), 1)"
    logged = fresh(code, GLOG_minloglevel=level).stderr.splitlines()
    assert len(logged) >= lines and bool(logged) == bool(lines)
    if logged:
        assert logged[0].startswith("I") and logged[0].endswith("<string>:1] hello")


def test_importing_pycaffe_fire_is_quiet() -> None:
    code = "import pycaffe_fire as c; c.log('hello'); c.Net(c.schema.NetParameter(), 1)"
    assert fresh(code, GLOG_minloglevel="0").stderr == ""


def test_init_log_and_log(capsys: Any) -> None:
    logger = logging.getLogger("pycaffe_fire")
    logger.handlers.clear()
    caffe.init_log()
    caffe.log("one")
    caffe.init_log(2)
    caffe.log("two")
    logger.error("three")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in lines] == ["one", "three"]
    assert "test_module.py" in lines[0]
    with pytest.raises(RuntimeError, match="level from 0 to 3, got 7"):
        caffe.init_log(7)


def test_timer() -> None:
    timer = caffe.Timer()
    assert timer.ms == 0
    timer.start()
    time.sleep(0.02)
    timer.stop()
    first = timer.ms
    assert 20 <= first < 2000
    time.sleep(0.01)
    assert timer.ms == first
    timer.start()
    assert timer.ms < first  # stops it


def test_settings_of_several_solvers() -> None:
    assert (caffe.solver_count(), caffe.solver_rank(), caffe.multiprocess()) == (1, 0, False)
    try:
        caffe.set_solver_count(4)
        caffe.set_solver_rank(2)
        caffe.set_multiprocess(True)
        assert (caffe.solver_count(), caffe.solver_rank(), caffe.multiprocess()) == (4, 2, True)
    finally:
        caffe.set_solver_count(1)
        caffe.set_solver_rank(0)
        caffe.set_multiprocess(False)
    for wrong, number in ((caffe.set_solver_count, 0), (caffe.set_solver_rank, -1)):
        with pytest.raises(SolverError, match="takes a number"):
            wrong(number)


def test_modes_and_devices() -> None:
    caffe.set_mode_cpu()
    caffe.set_device(0)
    assert caffe.Net(schema.NetParameter(), caffe.TEST).forward() == {}


def test_layer_types() -> None:
    types = caffe.layer_type_list()
    assert {"Convolution", "Python", "LSTM", "Data"} <= set(types) and types == sorted(types)


# caffe_pb2.


def test_all_messages_and_enums_under_their_generated_names() -> None:
    for full in FIELDS:
        found: Any = caffe_pb2
        for part in full.removeprefix("caffe.").split("."):
            found = getattr(found, part)
        assert found().DESCRIPTOR.full_name == full
    for full, values in ENUMS.items():
        *path, name = full.removeprefix("caffe.").split(".")
        owner: Any = caffe_pb2
        for part in path:
            owner = getattr(owner, part)
        for value, number in values.items():
            assert getattr(owner, value) == number == getattr(owner, name).Value(value)
            assert getattr(owner, name).Name(number) in values


def test_names_that_scripts_use() -> None:
    assert (caffe_pb2.TRAIN, caffe_pb2.TEST) == (0, 1)
    assert caffe_pb2.Phase.Name(1) == "TEST"
    assert caffe_pb2.PoolingParameter.AVE == 1 and caffe_pb2.V1LayerParameter.CONVOLUTION == 4
    assert caffe_pb2.DESCRIPTOR.package == "caffe"
    assert caffe_pb2._LAYERPARAMETER.fields_by_name["name"].number == 1
    assert caffe_pb2._PHASE.values_by_name["TEST"].number == 1
    with pytest.raises(AttributeError, match="NoSuchParameter"):
        caffe_pb2.NoSuchParameter  # noqa: B018


def test_text_and_bytes_there_and_back() -> None:
    net = caffe_pb2.NetParameter()
    text_format.Merge(
        'name: "n" layer { name: "p" type: "Pooling" pooling_param { pool: AVE kernel_size: 3 } }',
        net,
    )
    assert net.layer[0].pooling_param.pool == caffe_pb2.PoolingParameter.AVE
    again = caffe_pb2.NetParameter()
    text_format.Parse(text_format.MessageToString(net), again)
    assert again == net == caffe_pb2.NetParameter.FromString(net.SerializeToString())
    blob = caffe_pb2.BlobProto(data=[1, 2])
    blob.shape.dim.extend([2])
    assert list(caffe_pb2.BlobProto.FromString(blob.SerializeToString()).data) == [1, 2]
    assert caffe_pb2.NetParameter is schema.NetParameter
