"""Caffe's data tools as a user meets them: the bytes that Caffe's tools wrote, flags, errors."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.cli import (
    compute_image_mean,
    convert_cifar_data,
    convert_imageset,
    convert_mnist_data,
    extract_features,
    fire_data,
)
from pycaffe_fire.data.annotation import encode_annotated
from pycaffe_fire.data.datum import datum_image, encode_datum, parse_datum
from pycaffe_fire.data.db import open_database
from pycaffe_fire.data.image import read_image
from pycaffe_fire.data.writer import DatabaseWriter

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
PACKAGE = Path(__file__).parents[2]


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    shutil.copytree(GOLDEN, tmp_path / "golden")
    monkeypatch.chdir(tmp_path / "golden")
    return tmp_path / "golden"


def records(path: str, backend: str = "LMDB") -> Any:
    database = open_database(path, backend)
    return {database.key(i): bytes(database.record(i)) for i in range(len(database))}


def complaint(capsys: pytest.CaptureFixture[str], tool: Any, *arguments: str) -> Any:
    try:
        status = tool.main(list(arguments))
    except SystemExit as stop:
        status = stop.code
    assert status == 1
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text


# convert_imageset.


@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_records_that_caffe_wrote(golden: Path, threads: str) -> None:
    size = ["--resize_height=32", "-resize_width", "32", f"--threads={threads}"]
    assert convert_imageset.main([*size, "./", "list.txt", "mine"]) == 0
    assert records("mine") == records("raw_lmdb")
    gray = ["--gray", "--resize_height=28", "--resize_width=28"]
    assert convert_imageset.main([*gray, "./", "list.txt", "mine_gray"]) == 0
    assert records("mine_gray") == records("gray_lmdb")


def test_leveldb_with_caffes_records(golden: Path) -> None:
    pytest.importorskip("plyvel")
    size = ["--resize_height=32", "--resize_width=32"]
    assert convert_imageset.main([*size, "-backend=leveldb", "./", "list.txt", "mine"]) == 0
    assert records("mine", "LEVELDB") == records("raw_leveldb", "LEVELDB")
    assert not [p for p in golden.iterdir() if p.name.startswith(".")]


def test_encoded_images_decode_to_what_caffe_stored(golden: Path) -> None:
    flags = ["--resize_height=32", "--resize_width=32", "--encoded=true", "--encode_type=png"]
    assert convert_imageset.main([*flags, "./", "list.txt", "mine"]) == 0
    mine, caffes = records("mine"), records("encoded_lmdb")
    assert list(mine) == list(caffes)
    for key in mine:
        ours, theirs = parse_datum(mine[key], ""), parse_datum(caffes[key], "")
        none = memoryview(b"")
        assert ours._replace(data=none) == theirs._replace(data=none) and ours.encoded
        assert np.array_equal(datum_image(ours, ""), datum_image(theirs, ""))


def test_encoded_files_stay_as_they_are(golden: Path) -> None:
    assert convert_imageset.main(["--encoded", "./", "list.txt", "mine"]) == 0
    for key, record in records("mine").items():
        file = Path(key.decode()[9:])
        message = schema.Datum.FromString(record)
        assert message.data == file.read_bytes() and message.encoded
        assert not message.HasField("channels")  # as Caffe leaves it
    assert convert_imageset.main(["--encode_type=jpg", "./", "list.txt", "jpegs"]) == 0
    datums = [schema.Datum.FromString(r) for r in records("jpegs").values()]
    assert all(d.data[:2] == b"\xff\xd8" for d in datums)


def test_shuffling_keeps_every_image(golden: Path) -> None:
    assert convert_imageset.main(["--shuffle", "--nocheck_size", "./", "list.txt", "mine"]) == 0
    names = [key.decode()[9:] for key in records("mine")]
    listed = [line.split()[0] for line in Path("list.txt").read_text().splitlines()]
    assert sorted(names) == sorted(listed) and names != listed
    assert [key[:9] for key in records("mine")] == [b"%08d_" % i for i in range(12)]


def test_images_that_cannot_be_read(
    golden: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    Path("images/01.jpg").write_bytes(Path("images/01.jpg").read_bytes()[:300])
    text = complaint(capsys, convert_imageset, "./", "list.txt", "mine")
    assert "./images/01.jpg: the image cannot be decoded" in text and "--policy=skip" in text
    assert not Path("mine").exists()
    assert convert_imageset.main(["--policy=skip", "./", "list.txt", "mine"]) == 0
    assert "11 images, 1 skipped" in capsys.readouterr().out
    assert "images/01.jpg" in caplog.text
    assert [key[:8] for key in records("mine")][:2] == [b"00000000", b"00000002"]


def test_convert_imageset_errors(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def says(*arguments: str) -> Any:
        return complaint(capsys, convert_imageset, *arguments)

    assert "required: ROOTFOLDER/" in says()
    assert 'unknown flag --grey (did you mean "--gray"?)' in says("--grey", "./", "list.txt", "m")
    assert 'at least 0, got "-3"' in says("--resize_height=-3", "./", "list.txt", "mine")
    assert "invalid choice: 'sql'" in says("--backend=sql", "./", "list.txt", "mine")
    assert 'needs true or false, got "maybe"' in says("--gray=maybe", "./", "list.txt", "mine")
    assert "no.txt: the list of images cannot be read" in says("./", "no.txt", "mine")
    assert "raw_lmdb: exists already" in says("./", "list.txt", "raw_lmdb")
    assert "does it miss a slash at its end?" in says(".", "list.txt", "mine")
    assert "(--check_size)" in says("--check_size", "./", "list.txt", "mine")
    assert not Path("mine").exists()


def test_keys_that_are_too_long_for_lmdb(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = "/".join(["x" * 100] * 5)
    os.makedirs(folder)
    shutil.copy("images/00.png", folder)
    Path("list.txt").write_text(f"{folder}/00.png 1\n")
    assert "LMDB takes 511" in complaint(capsys, convert_imageset, "./", "list.txt", "mine")


def test_a_killed_converter_leaves_no_half_database(golden: Path) -> None:
    few = Path("list.txt").read_text()
    Path("list.txt").write_text(few * 2000)
    command = [sys.executable, "-m", "pycaffe_fire.cli.convert_imageset", "--threads=1"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    process = subprocess.Popen([*command, "./", "list.txt", "mine"], env=environment)
    deadline = time.monotonic() + 240
    while not list(golden.glob(".mine.*/data.mdb")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(golden.glob(".mine.*")) and not Path("mine").exists()
    Path("list.txt").write_text(few)
    assert convert_imageset.main(["./", "list.txt", "mine"]) == 0
    assert len(records("mine")) == 12 and not list(golden.glob(".mine.*"))


# compute_image_mean.


def test_the_mean_that_caffe_wrote(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compute_image_mean.main(["--backend=lmdb", "raw_lmdb", "mine.binaryproto"]) == 0
    assert Path("mine.binaryproto").read_bytes() == Path("mean.binaryproto").read_bytes()
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Number of channels: 3" and out[1].startswith("mean_value channel [0]: 124.88")


def test_mean_errors(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = [np.zeros((1, 2, 2), np.uint8), np.zeros((1, 2, 3), np.uint8)]
    with DatabaseWriter("mixed") as writer:
        for i, image in enumerate(images):
            writer.put(b"%d" % i, encode_datum(image, 0))
    text = complaint(capsys, compute_image_mean, "mixed", "out")
    assert "mixed, record '1': has shape (1, 2, 3), the first record (1, 2, 2)" in text
    assert not Path("out").exists()
    assert "no such database" in complaint(capsys, compute_image_mean, "nothing")
    assert "is a LEVELDB database" in complaint(capsys, compute_image_mean, "raw_leveldb")


# MNIST and CIFAR.


def write_mnist(count: int = 7, zipped: bool = False) -> Any:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = np.arange(count, dtype=np.uint8) % 10
    opener = gzip.open if zipped else open
    with opener("images", "wb") as file:
        file.write(struct.pack(">IIII", 2051, count, 28, 28) + pixels.tobytes())
    with opener("labels", "wb") as file:
        file.write(struct.pack(">II", 2049, count) + labels.tobytes())
    return pixels, labels


@pytest.mark.parametrize("zipped", [False, True])
def test_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    monkeypatch.chdir(tmp_path)
    pixels, labels = write_mnist(zipped=zipped)
    assert convert_mnist_data.main(["--backend=lmdb", "images", "labels", "out"]) == 0
    found = records("out")
    assert list(found) == [b"%08d" % i for i in range(7)]
    for i, record in enumerate(found.values()):
        expected = schema.Datum(
            channels=1, height=28, width=28, data=pixels[i].tobytes(), label=int(labels[i])
        )
        assert record == expected.SerializeToString()


def test_mnist_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_mnist()
    Path("short").write_bytes(Path("images").read_bytes()[:-5])
    Path("few").write_bytes(struct.pack(">II", 2049, 3) + b"abc")

    def says(*arguments: str) -> Any:
        return complaint(capsys, convert_mnist_data, *arguments, "out")

    assert "labels: is not an IDX file of MNIST images" in says("labels", "images")
    assert "short: announces 5,488 bytes but holds 5,483" in says("short", "labels")
    assert "images holds 7 images, few 3 labels" in says("images", "few")
    assert "gone: cannot be read: No such file" in says("gone", "labels")
    assert not Path("out").exists()


def test_cifar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    content = {name: rng.integers(0, 10, (3, 3073), dtype=np.uint8) for name in names}
    for name, batch in content.items():
        Path(name).write_bytes(batch.tobytes())
    assert convert_cifar_data.main([".", "out", "lmdb"]) == 0
    found = records("out/cifar10_train_lmdb")
    assert list(found)[:4] == [b"00000", b"00001", b"00002", b"10000"] and len(found) == 15
    record = content["data_batch_2.bin"][1]
    expected = schema.Datum(
        channels=3, height=32, width=32, label=int(record[0]), data=record[1:].tobytes()
    )
    assert found[b"10001"] == expected.SerializeToString()
    assert list(records("out/cifar10_test_lmdb")) == [b"00000", b"00001", b"00002"]
    Path("test_batch.bin").write_bytes(b"x" * 100)
    text = complaint(capsys, convert_cifar_data, ".", "out2", "lmdb")
    assert "test_batch.bin: has 100 bytes" in text


# extract_features.

NET = """
layer { name: "d" type: "Data" top: "data" top: "label" transform_param { scale: 0.004 }
  data_param { source: "raw_lmdb" backend: LMDB batch_size: 5 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param {
  num_output: 2 kernel_size: 5 stride: 9 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param {
  num_output: 4 weight_filler { type: "xavier" } } }
"""


@pytest.fixture
def trained(golden: Path) -> None:
    Path("net.prototxt").write_text(NET)
    net = caffe.Net("net.prototxt", caffe.TEST)
    net.save("net.caffemodel")
    net.close()


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_extract_features(trained: Any, backend: str) -> None:
    if backend == "leveldb":
        pytest.importorskip("plyvel")
    files = ["net.caffemodel", "net.prototxt"]
    assert extract_features.main([*files, "conv,ip", "f1,f2", "3", backend, "CPU"]) == 0
    net = caffe.Net("net.prototxt", caffe.TEST, weights="net.caffemodel")
    found = {name: records(path, backend) for name, path in (("conv", "f1"), ("ip", "f2"))}
    for i in range(3):
        net.forward()
        for name, database in found.items():
            blob = net.blobs[name]
            for j in range(5):
                datum = schema.Datum.FromString(database[b"%010d" % (5 * i + j)])
                assert (datum.channels, datum.height, datum.width) == (
                    blob.channels, blob.height, blob.width,
                )  # fmt: skip
                assert list(datum.float_data) == blob.data[j].ravel().tolist()
                assert not datum.HasField("label") and not datum.HasField("data")
    net.close()


def test_extract_features_errors(trained: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def says(*arguments: str) -> Any:
        return complaint(capsys, extract_features, "net.caffemodel", "net.prototxt", *arguments)

    assert 'no blob "conw" in net.prototxt (did you mean "conv"?)' in says("conw", "f", "1", "lmdb")
    assert "2 blobs, but 1 databases" in says("conv,ip", "f", "1", "lmdb")
    assert 'at least 1, got "0"' in says("conv", "f", "0", "lmdb")
    assert "cannot run on GPU 0" in says("conv", "f", "1", "lmdb", "GPU", "0")
    assert "raw_lmdb: exists already" in says("conv", "raw_lmdb", "1", "lmdb")
    assert not Path("f").exists()


# fire_data.


def test_check_counts_labels_and_shapes(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fire_data.main(["check", "raw_lmdb", "--classes", "4"]) == 0
    out = capsys.readouterr().out
    assert "raw_lmdb: 12 records" in out and "3 x 32 x 32 uint8: 12" in out
    assert "4 labels, 0 to 3" in out and "2:         3 ####" in out
    pytest.importorskip("plyvel")
    assert fire_data.main(["check", "raw_leveldb"]) == 0


def test_check_names_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jpeg = (GOLDEN / "images" / "01.jpg").read_bytes()
    with DatabaseWriter(tmp_path / "db") as writer:
        writer.put(b"a", encode_datum(np.zeros((1, 2, 2), np.uint8), 5))
        writer.put(b"b", b"\xff\xff")
        cut = schema.Datum(data=jpeg[:200], encoded=True, label=1)
        writer.put(b"c", cut.SerializeToString())
        writer.put(b"d", encode_datum(np.zeros((1, 2, 2), np.uint8), 1))
    assert fire_data.main(["check", str(tmp_path / "db"), "--classes", "3"]) == 1
    out, error = capsys.readouterr()
    assert "3 of 4 records cannot be used" in error
    for text in ("'a': has label 5", "'b': is not a Datum", "'c': the image cannot be decoded"):
        assert text in out


def test_contact_sheet(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fire_data.main(["show", "encoded_lmdb", "--out", "page.png"]) == 0
    sheet = read_image("page.png")
    assert sheet.shape[0] == 3 and sheet.shape[2] > 10 * 96
    database = open_database("encoded_lmdb")
    first = datum_image(parse_datum(database.record(0), ""), "")
    corner = Image.fromarray(sheet[::-1, 4:100, 4:100].transpose(1, 2, 0)).resize((32, 32), 0)
    assert np.array_equal(np.asarray(corner)[:, :, ::-1].transpose(2, 0, 1), first)
    assert fire_data.main(["show", "gray_lmdb", "--out", "page.jpg", "--count", "3"]) == 0
    assert "written as .png or .jpg" in complaint(
        capsys, fire_data, "show", "gray_lmdb", "--out", "page.txt"
    )
    assert "no/page.png: cannot be written" in complaint(
        capsys, fire_data, "show", "gray_lmdb", "--out", "no/page.png"
    )


def annotated(path: Path) -> None:
    """Records of grey images with two boxes, none, a box turned inside out, and only a label."""
    datum = encode_datum(np.full((3, 48, 96), 128, np.uint8), 7)
    boxes = [[1, 0, 0.25, 0.25, 0.75, 0.75, 0], [3, 0, 0.0, 0.0, 0.5, 0.5, 1]]
    wrong = [[2, 0, 0.5, 0.2, 0.4, 0.3, 0]]
    with DatabaseWriter(path) as writer:
        for key, objects in ((b"a", boxes), (b"b", []), (b"c", wrong), (b"d", None)):
            rows = None if objects is None else np.array(objects, np.float32).reshape(-1, 7)
            writer.put(key, encode_annotated(datum, rows))


def test_check_counts_the_objects_of_annotated_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    annotated(tmp_path / "db")
    assert fire_data.main(["check", str(tmp_path / "db"), "--classes", "4"]) == 1
    out, error = capsys.readouterr()
    assert "2 of 4 records cannot be used" in error
    assert "'c': has an empty box: xmin, ymin, xmax, ymax are [0.5, 0.2, 0.4, 0.3]" in out
    assert "'d': has label 7, outside the 4 classes" in out
    assert "2 objects; 1 records have none" in out and "2 labels, 1 to 3" in out
    assert "3 x 48 x 96 uint8: 2" in out


def test_contact_sheet_shows_boxes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    annotated(tmp_path / "db")
    page = str(tmp_path / "page.png")
    assert fire_data.main(["show", str(tmp_path / "db"), "--out", page]) == 0
    tile = read_image(page)[::-1, 4:100, 4:100]  # 96 x 48 pixels of it, red first
    lime, yellow = tile[:, 12, 48:72].T, tile[:, 0, :48].T
    assert (lime == [0, 255, 0]).all() and (yellow == [255, 255, 0]).all()
    assert (tile[:, 24, 40] == 128).all(), "boxes are not filled"
