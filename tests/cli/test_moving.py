"""Moving from an old Caffe: its checkout, its siamese data, names and messages of its commands."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.cli import caffe as caffe_command
from pycaffe_fire.cli import convert_mnist_siamese_data, fire_model, fire_train
from pycaffe_fire.cli.old_checkout import MARK, TOOLS, shadow
from pycaffe_fire.data.db import open_database
from pycaffe_fire.errors import ArgumentError, BackendError, BlobNameError, LayerError
from pycaffe_fire.pycaffe import settings
from pycaffe_fire.pycaffe.window_files import write_detections
from tests.cli.runs import make_run, write_solver


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """What of a checkout that was never built matters here."""
    (tmp_path / "caffe" / "src" / "caffe").mkdir(parents=True)
    package = tmp_path / "caffe" / "python" / "caffe"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .pycaffe import Net\n")
    (package / "pycaffe.py").write_text("from ._caffe import Net\n")
    return tmp_path / "caffe"


def imported(old: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(old / 'python')!r}); import caffe"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_link_caffe_writes_programs_and_an_explanation(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "No module named 'caffe._caffe'" in imported(old).stderr
    built = old / "build" / "tools" / "extract_features"
    built.parent.mkdir(parents=True)
    built.write_text("built by make")
    assert fire_model.main(["link-caffe", str(old)]) == 0
    told = capsys.readouterr().out
    assert f"{built}: is there already, left alone" in told and "import caffe: BVLC's" in told
    assert built.read_text() == "built by make"
    for place in TOOLS:
        assert place == "build/tools/extract_features" or MARK in (old / place).read_text()
    said = imported(old).stderr.splitlines()[-1]
    assert said.startswith("ImportError: BVLC's Python files are here without their compiled part")
    assert f"{old}/python out of PYTHONPATH" in said
    assert fire_model.main(["link-caffe", str(old)]) == 0  # once more: its own files, only


def test_a_linked_program_runs_ours(old: Path) -> None:
    fire_model.main(["link-caffe", str(old)])
    done = subprocess.run(
        [old / "build/tools/upgrade_net_proto_text.bin", "nothing.prototxt", "out.prototxt"],
        capture_output=True, text=True, timeout=120, cwd=old,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("upgrade_net_proto_text: nothing.prototxt: no such file")


def test_only_a_checkout_is_linked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fire_model.main(["link-caffe", str(tmp_path)]) == 1
    assert "is no checkout of Caffe" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_checkout_that_hides_our_module_is_named(
    old: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shadow() == ""
    monkeypatch.syspath_prepend(str(old / "python"))
    assert shadow().startswith(f"import caffe finds {old}/python/caffe: BVLC's")
    assert caffe_command.main(["test"]) == 1
    assert f"Take the folder {old}/python out of PYTHONPATH" in capsys.readouterr().err
    (old / "python" / "caffe" / "_caffe.so").touch()
    assert shadow() == ""


def test_siamese_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    count, classes = 40, np.arange(40, dtype=np.uint8) % 3
    pixels = np.repeat(np.arange(count, dtype=np.uint8), 4).reshape(count, 2, 2)
    header = bytes((0, 0, 8, 3)) + np.array([count, 2, 2], ">u4").tobytes()
    Path("images").write_bytes(header + pixels.tobytes())
    Path("labels").write_bytes(
        bytes((0, 0, 8, 1)) + np.array([count], ">u4").tobytes() + classes.tobytes()
    )
    arguments = ["--backend", "lmdb", "images", "labels", "pairs"]
    assert convert_mnist_siamese_data.main(arguments) == 0
    database = open_database(Path("pairs"))
    assert len(database) == count
    datums = [schema.Datum.FromString(bytes(database.record(i))) for i in range(count)]
    both = [
        (np.frombuffer(d.data, np.uint8).reshape(d.channels, d.height, d.width), d.label)
        for d in datums
    ]
    for image, label in both:
        assert image.shape == (2, 2, 2)
        first, second = image[:, 0, 0].tolist()
        assert (image[0] == first).all() and (image[1] == second).all()
        assert label == int(classes[first] == classes[second])
    assert {label for _, label in both} == {0, 1}
    assert len({int(image[0, 0, 0]) for image, _ in both}) > count // 3


NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 4 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.fixture
def net() -> caffe.Net:
    return caffe.Net(schema.parse_text(NET, schema.NetParameter()), caffe.TEST)


def test_names_are_suggested(net: caffe.Net) -> None:
    with pytest.raises(KeyError, match=r'no blob "dta" in this net \(did you mean "data"\?\)'):
        net.blobs["dta"]
    with pytest.raises(BlobNameError, match='no layer with weights "loss".*there are: ip'):
        net.params["loss"]
    assert net.blobs.get("dta") is None and "dta" not in net.blobs
    assert list(net.blobs) == ["data", "label", "ip", "loss"]


def test_forward_all_names_the_array_it_was_given(net: caffe.Net) -> None:
    with pytest.raises(ArgumentError, match=r'array "data" has shape \[7, 5\], but a sample of'):
        net.forward_all(data=np.zeros((7, 5)), label=np.zeros(7))


def test_a_label_says_how_many_classes_it_needs(net: caffe.Net) -> None:
    net.blobs["label"].data[...] = [1, 6]
    with pytest.raises(LayerError, match=r"label 6 of sample 1 .*num_output .*must be at least 7"):
        net.forward()
    net.blobs["label"].data[...] = [1, -1]
    with pytest.raises(LayerError, match="correct it, or name it as ignore_label"):
        net.forward()


def test_without_a_gpu_set_mode_gpu_warns_and_computes_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(device: int | None = None) -> None:
        raise BackendError("there is no device")

    monkeypatch.setattr(settings, "gpu_backend", none)
    with caplog.at_level(logging.WARNING, "pycaffe_fire"):
        caffe.set_mode_gpu()
    assert caplog.messages == [
        "set_mode_gpu: computing on the CPU instead: there is no device"
    ]  # fmt: skip
    assert settings.default_backend().name != "cuda"


def test_caffe_train_speaks_as_caffe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        caffe_command.main(["train", "-solver", "nothing.prototxt"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("caffe: nothing.prototxt: no such file")


def test_a_run_needs_an_end_and_weights_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path)
    solver = tmp_path / "solver.prototxt"
    solver.write_text(solver.read_text().replace("max_iter: 20", ""))
    assert fire_train.main(["--solver", "solver.prototxt"]) == 1
    assert "solver.prototxt: max_iter is missing" in capsys.readouterr().err

    write_solver(tmp_path, "random_seed: 5")
    text = NET.replace('name: "ip"', 'name: "another"')
    caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TEST).save("other.caffemodel")
    arguments = ["--solver", "solver.prototxt", "--iterations", "1", "--weights"]
    assert fire_train.main([*arguments, "other.caffemodel"]) == 1
    assert "other.caffemodel: no layer with weights has a name of" in capsys.readouterr().err
    assert fire_train.main([*arguments, "other.caffemodel", "--allow-empty-weights"]) == 0


def test_detections_are_what_pandas_reads(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is missing")
    pytest.importorskip("tables", reason="PyTables is missing: pandas writes HDF5 with it")
    rows = [{"filename": f"{i}.jpg", "window": [i, 1, 2, 3], "prediction": [i, 0.5]}
            for i in range(3)]  # fmt: skip
    write_detections(str(tmp_path / "found.h5"), rows)
    frame = pandas.read_hdf(tmp_path / "found.h5", "df")
    assert frame.index.name == "filename" and list(frame.index) == ["0.jpg", "1.jpg", "2.jpg"]
    assert list(frame.ymin) == [0, 1, 2] and list(frame.xmax) == [3, 3, 3]
    assert np.stack(list(frame.prediction)).tolist() == [[0, 0.5], [1, 0.5], [2, 0.5]]
