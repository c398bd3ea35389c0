"""Weights, solver states and mean files, Caffe's own and ours, whole and broken."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.errors import WeightsError
from pycaffe_fire.schema import LayerWeights, SolverStateFile

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "schema"
MODEL = GOLDEN / "snap_iter_10.caffemodel"
STATE = GOLDEN / "snap_iter_10.solverstate"
MODEL_H5 = GOLDEN / "snap_h5_iter_10.caffemodel.h5"
STATE_H5 = GOLDEN / "snap_h5_iter_10.solverstate.h5"
MEAN = GOLDEN / "mean.binaryproto"


def caffes(path: Path, kind: str) -> Any:
    """What plain protobuf makes of a file."""
    return getattr(schema, kind).FromString(path.read_bytes())


def array_of(blob: Any) -> np.ndarray:
    shape = blob.shape.dim if blob.HasField("shape") else [getattr(blob, n) for n in LEGACY]
    return np.array(blob.data, np.float32).reshape(shape)


LEGACY = ("num", "channels", "height", "width")


def same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> bool:
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and a.dtype == np.float32 and np.array_equal(a, b)
        for a, b in zip(ours, theirs, strict=True)
    )


def test_caffes_weights() -> None:
    layers, net = schema.read_weights(MODEL), caffes(MODEL, "NetParameter")
    assert [(w.name, w.type) for w in layers] == [(x.name, x.type) for x in net.layer]
    for weights, layer in zip(layers, net.layer, strict=True):
        assert same(weights.blobs, [array_of(blob) for blob in layer.blobs])
    assert [len(w.blobs) for w in layers] == [0, 2, 0, 0, 2, 0]
    conv = layers[1].blobs[0]
    assert conv.flags.writeable and conv.flags.aligned and conv.flags.c_contiguous


def test_caffes_hdf5_weights_are_the_same() -> None:
    binary = {w.name: w.blobs for w in schema.read_weights(MODEL)}
    hdf5 = {w.name: w.blobs for w in schema.read_weights(MODEL_H5)}
    assert binary.keys() == hdf5.keys()
    assert all(same(binary[name], hdf5[name]) for name in binary)


def test_caffes_states() -> None:
    state, message = schema.read_state(STATE), caffes(STATE, "SolverState")
    assert (state.iter, state.learned_net, state.current_step, state.extra) == (
        10, "snap_iter_10.caffemodel", 0, b"",
    )  # fmt: skip
    assert same(state.history, [array_of(blob) for blob in message.history])
    hdf5 = schema.read_state(STATE_H5)
    assert (hdf5.iter, hdf5.learned_net) == (10, "snap_h5_iter_10.caffemodel.h5")
    assert same(hdf5.history, state.history)


def test_rewritten_weights_are_the_same_message(tmp_path: Path) -> None:
    net, path = caffes(MODEL, "NetParameter"), tmp_path / "again.caffemodel"
    schema.write_weights(path, net, schema.read_weights(MODEL))
    assert caffes(path, "NetParameter") == net
    assert [p.name for p in tmp_path.iterdir()] == ["again.caffemodel"]


def test_rewritten_state_is_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "again.solverstate"
    schema.write_state(path, schema.read_state(STATE))
    assert path.read_bytes() == STATE.read_bytes()


def layout(path: Path) -> dict[str, tuple[Any, ...]]:
    """Everything in an HDF5 file that a C reader sees."""
    found: dict[str, tuple[Any, ...]] = {}

    def note(name: str, thing: Any) -> None:
        dataset = isinstance(thing, h5py.Dataset)
        found[name] = (thing.shape, thing.dtype, thing[()].tobytes()) if dataset else ()

    with h5py.File(path) as file:
        file.visititems(note)
    return found


def test_rewritten_hdf5_has_caffes_layout(tmp_path: Path) -> None:
    net = caffes(MODEL, "NetParameter")
    schema.write_weights(tmp_path / "again.caffemodel.h5", net, schema.read_weights(MODEL))
    schema.write_state(tmp_path / "again.solverstate.h5", schema.read_state(STATE_H5))
    assert layout(tmp_path / "again.caffemodel.h5") == layout(MODEL_H5)
    assert layout(tmp_path / "again.solverstate.h5") == layout(STATE_H5)


@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_state_with_everything(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"s.solverstate{suffix}"
    history = [np.arange(6, dtype=np.float32).reshape(2, 3), np.float32(4).reshape(1)]
    schema.write_state(path, SolverStateFile(7, "net.caffemodel", history, 2, b"\0extra\xff\0"))
    state = schema.read_state(path)
    assert (state.iter, state.learned_net, state.current_step) == (7, "net.caffemodel", 2)
    assert state.extra == b"\0extra\xff\0"
    assert same(state.history, history)


def test_extra_is_a_field_caffe_skips(tmp_path: Path) -> None:
    schema.write_state(tmp_path / "s.solverstate", SolverStateFile(1, "n", [], 0, b"more"))
    assert caffes(tmp_path / "s.solverstate", "SolverState").fire_extra == b"more"


@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_odd_arrays(tmp_path: Path, suffix: str) -> None:
    """Slashes in names, doubles, transposed and empty arrays, layers without blobs."""
    path = tmp_path / f"n.caffemodel{suffix}"
    net = schema.NetParameter(name="n")
    for name in ("inception/a/b", "inception/a", "plain", "none"):
        net.layer.add(name=name, type="Scale")
    blobs = [
        np.arange(6.0).reshape(2, 3).T,
        np.zeros((0, 4), np.float32),
        np.array([2.5], np.float64),
    ]
    given = [
        LayerWeights(name, "Scale", blobs) for name in ("inception/a/b", "plain", "inception/a")
    ]
    schema.write_weights(path, net, given)
    read = {w.name: w.blobs for w in schema.read_weights(path)}
    assert read.keys() == {"inception/a", "inception/a/b", "plain", "none"}
    assert read["none"] == []
    for name in ("inception/a", "inception/a/b", "plain"):
        assert same(read[name], [np.asarray(b, np.float32) for b in blobs])


def test_diffs_are_written_if_asked(tmp_path: Path) -> None:
    net = schema.NetParameter()
    net.layer.add(name="a")
    given = [LayerWeights("a", "", [np.array([1, 2], np.float32)], [np.array([3, 4], np.float32)])]
    schema.write_weights(tmp_path / "n.caffemodel", net, given)
    assert not caffes(tmp_path / "n.caffemodel", "NetParameter").layer[0].blobs[0].diff
    schema.write_weights(tmp_path / "n.caffemodel", net, given, diffs=True)
    assert list(caffes(tmp_path / "n.caffemodel", "NetParameter").layer[0].blobs[0].diff) == [3, 4]
    schema.write_weights(tmp_path / "n.h5", net, given, diffs=True)
    with h5py.File(tmp_path / "n.h5") as file:
        assert file["diff/a/0"][()].tolist() == [3, 4]
    assert same(schema.read_weights(tmp_path / "n.h5")[0].blobs, given[0].blobs)


def test_weights_of_unknown_layers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="does not have: b"):
        schema.write_weights(tmp_path / "n", schema.NetParameter(), [LayerWeights("b", "", [])])
    assert not list(tmp_path.iterdir())


def test_mean_file(tmp_path: Path) -> None:
    mean = schema.read_blob(MEAN)
    assert same([mean], [array_of(caffes(MEAN, "BlobProto"))])
    assert mean.ndim == 4 and mean.shape[:2] == (1, 3)
    schema.write_blob(tmp_path / "again.binaryproto", mean)
    assert np.array_equal(schema.read_blob(tmp_path / "again.binaryproto"), mean)


def packed(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    parts = schema.wire.Parts()
    parts.add_bytes(number, content)
    return b"".join(bytes(piece) for piece in parts.pieces)


def model_with(blob: bytes) -> bytes:
    return packed(100, packed(1, b"l") + packed(7, blob))


FLOATS = np.array([1, 2, 3], np.float32).tobytes()
SHAPE = packed(7, packed(1, b"\x03"))


FORMS = {
    "shape first": SHAPE + packed(5, FLOATS),
    "shape last": packed(5, FLOATS) + SHAPE,
    "pieces": packed(5, FLOATS[:4]) + SHAPE + packed(5, FLOATS[4:]) + packed(5, b""),
    "unpacked": SHAPE + b"".join(b"\x2d" + FLOATS[i : i + 4] for i in (0, 4, 8)),
    "unpacked shape": packed(7, b"\x08\x03") + packed(5, FLOATS),
    "double_data": SHAPE + packed(8, np.array([1, 2, 3], np.float64).tobytes()),
    "raw_data of raw_data_type FLOAT16": SHAPE
    + b"\x50\x02"
    + packed(12, np.array([1, 2, 3], np.float16).tobytes()),
    "more": SHAPE + packed(5, FLOATS) + packed(6, bytes(12)) + packed(77, b"unknown"),
    "no shape": packed(5, FLOATS),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_blob(tmp_path: Path, form: str) -> None:
    path = tmp_path / "n.caffemodel"
    path.write_bytes(model_with(FORMS[form]))
    assert same(schema.read_weights(path)[0].blobs, [np.array([1, 2, 3], np.float32)])


def test_legacy_extents() -> None:
    blob = schema.BlobProto(num=1, channels=1, height=1, width=3, data=[1, 2, 3])
    array = schema.wire.blob(blob.SerializeToString(), 0, blob.ByteSize())
    assert array.shape == (1, 1, 1, 3)


def test_old_weights_are_upgraded(tmp_path: Path) -> None:
    net = schema.NetParameter(name="old")
    blob = schema.BlobProto(num=1, channels=1, height=1, width=2, data=[5, 6])
    net.layers.add(name="ip", type=14, blobs=[blob])
    inner = net.layers.add().layer
    inner.name, inner.type = "conv", "conv"
    inner.blobs.add().CopyFrom(blob)
    padding = net.layers.add().layer
    padding.name, padding.type = "pad", "padding"
    path = tmp_path / "old.caffemodel"
    path.write_bytes(net.SerializeToString())
    read = schema.read_weights(path)
    assert [(w.name, w.type) for w in read] == [("ip", "InnerProduct"), ("conv", "Convolution")]
    assert all(same(w.blobs, [np.array([5, 6], np.float32).reshape(1, 1, 1, 2)]) for w in read)


BROKEN = {
    "shape says more": (SHAPE + packed(5, FLOATS[:8]), "a blob of 3 holds 2 numbers"),
    "no numbers": (SHAPE, "a blob of 3 holds 0 numbers"),
    "nothing": (b"", "no array"),
    "half a number": (SHAPE + packed(5, FLOATS[:-1]), "ends within a number"),
    "huge shape": (packed(7, packed(1, b"\xff" * 9 + b"\x01" + b"\xff" * 9 + b"\x01")), "holds 0"),
    "many axes": (packed(7, packed(1, b"\x01" * 99)) + packed(5, FLOATS[:4]), "99 axes"),
    "negative": (b"\x08" + b"\xff" * 9 + b"\x01" + packed(5, FLOATS), "-1 x 0 x 0 x 0 holds 3"),
    "overlong": (b"\x2a\xff\xff\xff\xff\xff\x7f", "wants .* bytes, but only"),
    "endless number": (b"\x08" + b"\xff" * 20, "no valid number"),
    "group": (b"\x2b", "no valid field"),
    "other kind": (b"\x28\x01", "of another kind"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_blobs(tmp_path: Path, case: str) -> None:
    path = tmp_path / "n.caffemodel"
    path.write_bytes(model_with(BROKEN[case][0]))
    with pytest.raises(WeightsError, match=BROKEN[case][1]) as caught:
        schema.read_weights(path)
    assert str(path) in str(caught.value) and 'layer "l", blob 0' in str(caught.value)


FOREIGN = {
    b"": "an empty file",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n": "git-lfs pointer",
    b"\n<!DOCTYPE html>\n<html><body>404</body></html>": "an HTML page",
    b'name: "n"\nlayer { name: "a" }\n': "a prototxt",
    b"just words": "a text file",
    b"PK\x03\x04" + bytes(20): "a zip archive",
    b"\x89PNG\r\n\x1a\n" + bytes(20): "a PNG image",
    b"\x80\x02}q\x00": "a Python pickle",
}
READERS: dict[str, Callable[[Path], object]] = {
    "weights": schema.read_weights,
    "state": schema.read_state,
    "blob": schema.read_blob,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("content", FOREIGN, ids=FOREIGN.values())
def test_foreign_files(tmp_path: Path, reader: str, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=f"looks like .*{FOREIGN[content]}"):
        READERS[reader](path)


@pytest.mark.parametrize(
    ("reader", "path", "expected"),
    [
        ("weights", STATE, "is a solver state, not weights; .*--snapshot, or give its weights"),
        ("weights", MEAN, "looks like a BlobProto"),
        ("state", MODEL, "holds weights, not a solver state; .*--weights"),
        ("state", MEAN, "looks like a BlobProto"),
        ("blob", MODEL, "looks like a .caffemodel"),
        ("blob", STATE, "looks like a .solverstate"),
        ("blob", MODEL_H5, "looks like an HDF5 file"),
        ("weights", STATE_H5, "is a solver state, not weights; .*--snapshot, or give its weights"),
        ("state", MODEL_H5, "holds weights, not a solver state; .*--weights"),
    ],
)
def test_caffes_files_for_each_other(reader: str, path: Path, expected: str) -> None:
    with pytest.raises(WeightsError, match=expected) as caught:
        READERS[reader](path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("reader", READERS)
def test_no_such_file(tmp_path: Path, reader: str) -> None:
    with pytest.raises(WeightsError, match="no such file"):
        READERS[reader](tmp_path / "missing")
    with pytest.raises(WeightsError, match="is a directory"):
        READERS[reader](tmp_path)


@pytest.mark.parametrize(
    ("source", "reader"),
    [
        (MODEL, "weights"),
        (STATE, "state"),
        (MODEL_H5, "weights"),
        (STATE_H5, "state"),
        (MEAN, "blob"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_cut_and_scrambled_files_never_crash(tmp_path: Path, source: Path, reader: str) -> None:
    """Every outcome is an answer or a WeightsError; a cut off binary file is always an error."""
    whole, path = source.read_bytes(), tmp_path / source.name
    rng = np.random.default_rng(3)
    lengths = range(0, len(whole), max(1, len(whole) // 60))
    for length in lengths:
        path.write_bytes(whole[:length])
        try:
            READERS[reader](path)
        except WeightsError:
            continue
        # A cut between two fields leaves a shorter message that is whole.
        assert source.suffix != ".h5" and length > 0
    for _ in range(60):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 4):
            data[at] = rng.integers(256)
        path.write_bytes(data)
        with contextlib.suppress(WeightsError):
            READERS[reader](path)


def test_hdf5_that_claims_more_than_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "n.caffemodel.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("data/l/0", (10**6, 10**6), np.float32)
        file.create_dataset("history/0", (10**6, 10**6), np.float32)
        file["iter"] = file["current_step"] = np.array([1], np.int32)
    for read in (schema.read_weights, schema.read_state):
        with pytest.raises(WeightsError, match="claims more than the file holds"):
            read(path)


def test_hdf5_leaves_out_shared_blobs(tmp_path: Path) -> None:
    path = tmp_path / "n.caffemodel.h5"
    with h5py.File(path, "w") as file:
        file["data/l/1"] = np.array([1, 2], np.float32)
    blobs = schema.read_weights(path)[0].blobs
    assert [b.size for b in blobs] == [0, 2]


@pytest.mark.parametrize("name", ["n.caffemodel", "n.caffemodel.h5"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"precious")
    net = schema.NetParameter()
    net.layer.add(name="a")
    with pytest.raises((ValueError, WeightsError)):
        schema.write_weights(path, net, [LayerWeights("a", "", [np.array(["no", "number"])])])
    assert path.read_bytes() == b"precious"
    assert os.listdir(tmp_path) == [name]
    with pytest.raises(WeightsError, match="cannot be written"):
        schema.write_weights(tmp_path / "no" / name, net, [])
