"""Snapshot files: who can read them, which is the newest good one, what a full disk does."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from google.protobuf import descriptor_pb2

import pycaffe_fire
from pycaffe_fire import schema
from pycaffe_fire.cli.fire_train import main
from pycaffe_fire.errors import FireError, SolverError, WeightsError
from pycaffe_fire.schema import files
from pycaffe_fire.schema.messages import load_classes
from pycaffe_fire.solver import Solver
from pycaffe_fire.solver.events import Finished
from pycaffe_fire.solver.snapshot_files import newest_snapshot, prepare
from tests.solver.solver_cases import SGD, body, make, rows_layer, weights, write_rows

PREFIX = 'snapshot_prefix: "out/run" '
OURS = 20000  # field numbers from here on are not Caffe's


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def solver(folder: Path, settings: str = "") -> Solver:
    return make(rows_layer(write_rows(folder), 8) + body(), SGD + PREFIX + settings)


# Readers that know only Caffe's schema.


def caffes_messages() -> dict[str, Any]:
    """Message classes of the schema without any field of ours."""
    path = Path(pycaffe_fire.__file__).parent / "schema" / "caffe.desc"
    file = descriptor_pb2.FileDescriptorProto.FromString(path.read_bytes())
    for message in file.message_type:
        kept = [field for field in message.field if field.number < OURS]
        del message.field[:]
        message.field.extend(kept)
    return load_classes(file)


def test_caffes_schema_reads_both_files(folder: Path) -> None:
    mine = solver(folder)
    mine.step(3)
    mine.snapshot()
    kinds = caffes_messages()
    assert "fire_extra" not in kinds["SolverState"].DESCRIPTOR.fields_by_name
    state = kinds["SolverState"].FromString(Path("out/run_iter_3.solverstate").read_bytes())
    assert (state.iter, state.current_step) == (3, 0) and len(state.history) == 4
    net = kinds["NetParameter"].FromString(Path(state.learned_net).read_bytes())
    found = {
        f"{layer.name}_{i}": np.array(blob.data, np.float32).reshape(blob.shape.dim)
        for layer in net.layer
        for i, blob in enumerate(layer.blobs)
    }
    expected = weights(mine)
    assert found.keys() == expected.keys()
    assert all((found[name] == expected[name]).all() for name in found)
    for blob, slot in zip(state.history, mine.net.parameters.items, strict=True):
        assert tuple(blob.shape.dim) == slot.blob.shape


def test_caffes_datasets_are_all_there(folder: Path) -> None:
    """What Caffe looks up in HDF5 snapshots, with the types and counts it checks."""
    mine = solver(folder, "snapshot_format: HDF5")
    mine.step(3)
    mine.snapshot()
    with h5py.File("out/run_iter_3.solverstate.h5") as state:
        assert state["iter"].dtype.kind == state["current_step"].dtype.kind == "i"
        assert (state["iter"][0], state["current_step"][0]) == (3, 0)
        assert state["learned_net"].dtype.kind == "S"  # a C string of fixed length
        model = state["learned_net"][()].decode()
        history = state["history"]
        assert sorted(history) == ["0", "1", "2", "3"]  # it counts the links
        for i, item in enumerate(mine.net.parameters.items):
            assert history[str(i)].dtype.kind == "f" and history[str(i)].shape == item.blob.shape
    with h5py.File(model) as file:
        expected = weights(mine)
        for name, array in expected.items():
            layer, index = name.rsplit("_", 1)
            assert (file["data"][layer][index][...] == array).all()
        assert sorted(file) == ["data"]


# The newest good one.


def three(folder: Path) -> Solver:
    mine = solver(folder)
    for _ in range(3):
        mine.step(1)
        mine.snapshot()
    return mine


def flip(path: str, at: int = -40) -> None:
    data = bytearray(Path(path).read_bytes())
    data[at] ^= 1
    Path(path).write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[], object], str]] = {
    "a bit of the state": (lambda: flip("out/run_iter_3.solverstate", 300), "checksum is wrong"),
    "a bit of the record": (lambda: flip("out/run_iter_3.solverstate"), "damaged"),
    "a bit of the weights": (lambda: flip("out/run_iter_3.caffemodel"), "run_iter_3.caffemodel"),
    "a cut state": (lambda: os.truncate("out/run_iter_3.solverstate", 500), "cut off"),
    "an empty state": (lambda: os.truncate("out/run_iter_3.solverstate", 0), "empty"),
    "cut weights": (lambda: os.truncate("out/run_iter_3.caffemodel", 500), "checksum is wrong"),
    "no weights": (lambda: os.unlink("out/run_iter_3.caffemodel"), "do not exist"),
    "other weights": (
        lambda: shutil.copy("out/run_iter_2.caffemodel", "out/run_iter_3.caffemodel"),
        "of another run",
    ),
    "no state": (lambda: os.unlink("out/run_iter_3.solverstate"), "weights without a solver state"),
}


@pytest.mark.parametrize("what", list(DAMAGE))
def test_damaged_snapshots_are_skipped_and_why_is_said(folder: Path, what: str) -> None:
    mine = three(folder)
    damage, reason = DAMAGE[what]
    damage()
    found = newest_snapshot("out/run")
    assert found.path == "out/run_iter_2.solverstate"
    (skipped,) = found.skipped
    assert "run_iter_3" in skipped and reason in skipped
    if what != "no state":
        with pytest.raises(FireError, match=reason):
            mine.restore("out/run_iter_3.solverstate")


def test_the_newest_is_the_one_written_last(folder: Path) -> None:
    """A longer run before left snapshots of later iterations; copying changes files' times."""
    first = solver(folder)
    first.step(9)
    first.snapshot()
    second = solver(folder)
    second.step(2)
    second.snapshot()
    for path in Path("out").iterdir():
        shutil.copyfile(path, f"{path}.copy")
        os.replace(f"{path}.copy", path)
    later = time.time() + 5
    os.utime("out/run_iter_9.solverstate", (later, later))
    assert newest_snapshot("out/run").path == "out/run_iter_2.solverstate"


def test_nothing_to_find(folder: Path) -> None:
    assert newest_snapshot("out/run").path is None
    three(folder)
    assert newest_snapshot("out/ru").path is None
    assert newest_snapshot("out/run_iter").path is None


def test_leftovers_go_and_others_files_stay(folder: Path) -> None:
    os.mkdir("out")
    for name in (".12.tmp.run_iter_5.caffemodel", ".12.tmp..12.tmp.run_best.solverstate.h5",
                 ".12.tmp.runner_iter_5.caffemodel", ".12.tmp.notes", "run_iter_5.x"):  # fmt: skip
        Path("out", name).write_bytes(b"half")
    prepare("out/run")
    assert sorted(os.listdir("out")) == [
        ".12.tmp.notes", ".12.tmp.runner_iter_5.caffemodel", "run_iter_5.x"
    ]  # fmt: skip


def test_a_folder_that_cannot_be_written_is_found_before_training(folder: Path) -> None:
    Path("out").write_text("a file")
    mine = solver(folder, "max_iter: 3")
    with pytest.raises(SolverError, match="out/run_.*change snapshot_prefix"):
        mine.solve()
    assert mine.iter == 0


# Full disks.


class FullDisk:
    """Files whose names hold `what` cannot be written beyond a few bytes."""

    def __init__(self, monkeypatch: Any, what: str) -> None:
        self.what, self._sync = what, files._sync
        monkeypatch.setattr(files, "_sync", self)

    def __call__(self, path: Path) -> None:
        if self.what and self.what in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._sync(path)


@pytest.mark.parametrize("what", ["caffemodel", "solverstate"])
@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_a_full_disk_is_a_warning(
    folder: Path, monkeypatch: Any, caplog: Any, what: str, suffix: str
) -> None:
    mine = solver(folder, "max_iter: 6 snapshot: 2" + (" snapshot_format: HDF5" * bool(suffix)))
    mine.step(2)
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    disk = FullDisk(monkeypatch, what)
    mine.step(2)
    assert mine.iter == 4
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert f"out/run_iter_4.{what}{suffix}: cannot be written: No space left" in warning
    assert "needs about 0.0 MiB" in warning and "are free" in warning and "goes on" in warning
    disk.what = ""
    mine.solve()
    assert mine.snapshots.last == f"out/run_iter_6.solverstate{suffix}"


def test_the_last_snapshot_must_be_written(folder: Path, monkeypatch: Any) -> None:
    mine = solver(folder, "max_iter: 4 snapshot: 2")
    told: list[Any] = []
    mine.observers.append(told.append)
    mine.step(2)
    FullDisk(monkeypatch, "iter_4")
    with pytest.raises(SolverError) as caught:
        mine.solve()
    text = str(caught.value)
    assert text.startswith("iteration 4 could not be saved: out/run_iter_4.caffemodel")
    assert "the last one written is out/run_iter_2.solverstate" in text
    assert isinstance(told[-1], Finished)
    with pytest.raises(WeightsError):  # who asks for a snapshot hears of it at once
        mine.snapshot()


def command(folder: Path, *settings: str) -> None:
    (folder / "net.prototxt").write_text(rows_layer(write_rows(folder), 8) + body())
    text = 'net: "net.prototxt" max_iter: 6 snapshot: 2 solver_mode: CPU ' + SGD
    (folder / "solver.prototxt").write_text(text + " ".join(settings))


def test_status_1_with_a_sentence_at_the_end(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    command(folder, PREFIX)
    FullDisk(monkeypatch, "iter_6")
    assert main(["--solver", "solver.prototxt"]) == 1
    text = capsys.readouterr().err
    last = text.splitlines()[-1]
    assert last.startswith("fire_train: iteration 6 could not be saved: out/run_iter_6.caffemodel")
    assert "Traceback" not in text and "Snapshot at iteration 6 failed" in text
    assert newest_snapshot("out/run").path == "out/run_iter_4.solverstate"


@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_a_limit_on_file_sizes(folder: Path, suffix: str) -> None:
    """A real write that fails half way, as on a full disk."""
    form = "HDF5" if suffix else "BINARYPROTO"
    mine = solver(folder, f"snapshot_format: {form}")
    mine.step(1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(WeightsError, match=f"run_iter_1.caffemodel{suffix}: cannot be written"):
            mine.snapshot()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir("out") == []
    mine.snapshot()
    assert newest_snapshot("out/run").path == f"out/run_iter_1.solverstate{suffix}"


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_a_small_disk(folder: Path, form: str, caplog: Any) -> None:
    """A file system of its own with room for two snapshots."""
    os.mkdir("out")
    size = 60 if form == "HDF5" else 20
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder / "out")]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted")
    try:
        settings = f"max_iter: 6 snapshot: 2 snapshot_format: {form}"
        first, second = solver(folder, settings), solver(folder, settings)
        with pytest.raises(SolverError, match="iteration 6 could not be saved.*No space left"):
            first.solve()
        assert "Snapshot at iteration 6 failed" in caplog.text
        assert sorted({name.split(".")[0] for name in os.listdir("out")}) == [
            "run_iter_2", "run_iter_4"
        ]  # fmt: skip
        found = newest_snapshot("out/run")
        assert found.path == first.snapshots.last and not found.skipped
        for path in Path("out").glob("run_iter_2.*"):
            path.unlink()
        second.restore(str(found.path))
        second.snapshots.keep = 1  # there is always room for one more
        second.solve()
        assert {name.split(".")[0] for name in os.listdir("out")} == {"run_iter_6"}
        first.close()
        second.close()
    finally:
        subprocess.run(["umount", str(folder / "out")], check=True)


def test_the_record_is_small_and_readable(folder: Path) -> None:
    mine = three(folder)
    record = json.loads(schema.read_state("out/run_iter_3.solverstate").extra)
    assert record["seed"] == mine.seed and record["leaves"] == 1
    assert record["data"] == {"train data": [24, 24]}
    assert record["weights"] == files.digest("out/run_iter_3.caffemodel", FireError)
