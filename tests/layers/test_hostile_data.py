"""Data layers whose fields ask for absurd sizes: refused before anything is allocated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend import host
from pycaffe_fire.data.annotation import encode_annotated
from pycaffe_fire.data.annotation_files import read_json, read_txt
from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.objects import NO_OBJECTS
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.errors import DataError, FireError

LARGEST = 2**31 - 1
FREE = 1 << 30  # bytes that the machine pretends to have

SOURCES = {
    "Data": 'data_param { source: "db" backend: LMDB batch_size: 2 }',
    "AnnotatedData": 'data_param { source: "annotated" backend: LMDB batch_size: 2 } '
    "transform_param { resize_param { height: 8 width: 8 prob: 1 } }",
    "ImageData": 'image_data_param { source: "list.txt" batch_size: 2 }',
    "ImageSegData": 'image_data_param { source: "pairs.txt" batch_size: 2 }',
    "DenseImageData": 'dense_image_data_param { source: "pairs.txt" batch_size: 2 }',
    "ImageLabelmapData": 'image_data_param { source: "pairs.txt" batch_size: 2 }',
    "WindowData": 'window_data_param { source: "windows.txt" batch_size: 2 fg_fraction: 0.5 } '
    "transform_param { crop_size: 6 }",
    "MemoryData": "memory_data_param { batch_size: 2 channels: 1 height: 2 width: 2 }",
    "HDF5Data": 'hdf5_data_param { source: "hdf5.txt" batch_size: 2 }',
    "DummyData": "dummy_data_param { shape { dim: 2 } data_filler { value: 1 } }",
    "Input": "input_param { shape { dim: 2 } }",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the layers above read."""
    import h5py

    folder = tmp_path_factory.mktemp("files")
    pixels = np.arange(8 * 10 * 3, dtype=np.uint8).reshape(8, 10, 3)
    Image.fromarray(pixels).save(folder / "image.png")
    Image.fromarray(pixels[:, :, 0] % 4).save(folder / "mask.png")
    (folder / "list.txt").write_text("image.png 1\n" * 4)
    (folder / "pairs.txt").write_text("image.png mask.png\n" * 4)
    windows = ["# 0", "image.png", "3", "8", "10", "2", "1 0.9 1 1 6 6", "0 0.1 0 0 5 5"]
    (folder / "windows.txt").write_text("\n".join(windows))
    record = encode_datum(pixels.transpose(2, 0, 1).copy(), 1)
    with DatabaseWriter(folder / "db") as plain, DatabaseWriter(folder / "annotated") as annotated:
        for i in range(4):
            plain.put(b"%08d" % i, record)
            annotated.put(b"%08d" % i, encode_annotated(record, NO_OBJECTS))
    with h5py.File(folder / "data.h5", "w") as file:
        file["data"], file["label"] = np.zeros((4, 3), "f4"), np.zeros(4, "f4")
    (folder / "hdf5.txt").write_text("data.h5\n")
    return folder


@pytest.fixture(autouse=True)
def small_machine(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr(host, "free_bytes", lambda: FREE)


def feed(kind: str, path: str = "", value: Any = 0) -> None:
    """Build a net of one data layer with a field changed, and run it."""
    text = f'layer {{ name: "d" type: "{kind}" top: "data" top: "label" {SOURCES[kind]} }}'
    param = schema.parse_text(text, schema.NetParameter())
    if path:
        *outer, last = path.split(".")
        target: Any = param.layer[0]
        for name in outer:
            target = getattr(target, name)
            target = (
                (target[0] if len(target) else target.add()) if hasattr(target, "add") else target
            )
        if hasattr(getattr(target, last), "append"):
            getattr(target, last)[:1] = [value]
        else:
            setattr(target, last, value)
    net = caffe.Net(param, caffe.TRAIN)
    try:
        if kind != "MemoryData":
            net.forward()
    finally:
        net.close()


@pytest.mark.parametrize("kind", SOURCES)
def test_the_layers_run_as_they_are(kind: str) -> None:
    feed(kind)


def _asking(kind: str) -> list[str]:
    """Integer fields of the layer's own messages and of transform_param, as paths."""
    param = schema.parse_text(f'layer {{ type: "{kind}" {SOURCES[kind]} }}', schema.NetParameter())
    own: dict[str, Any] = {
        field.name: field for field, _ in param.layer[0].ListFields() if field.message_type
    }
    if kind not in ("HDF5Data", "DummyData", "Input"):
        every = schema.LayerParameter.DESCRIPTOR.fields_by_name
        own["transform_param"] = every["transform_param"]
    return [path for name, field in own.items() for path in _integers(field.message_type, name)]


def _integers(descriptor: Any, path: str) -> list[str]:
    found = []
    for field in descriptor.fields:
        if field.message_type is not None and path.count(".") < 2:
            found += _integers(field.message_type, f"{path}.{field.name}")
        elif field.cpp_type in (1, 2, 3, 4):
            found.append(f"{path}.{field.name}")
    return found


@pytest.mark.parametrize("kind", SOURCES)
def test_the_largest_number_in_any_field(kind: str) -> None:
    """It means something (a number of trials, a seed), or it is refused."""
    for path in _asking(kind):
        try:
            feed(kind, path, LARGEST)
        except FireError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("kind", "path", "value", "words"),
    [
        ("WindowData", "transform_param.crop_size", LARGEST, "an image of crop_size: has"),
        ("ImageData", "image_data_param.new_height", LARGEST, "given together"),
        ("ImageSegData", "transform_param.crop_size", 30000, "padded to crop_size: has 30000 x"),
        ("AnnotatedData", "transform_param.resize_param.height", LARGEST, "a resized image: has"),
        ("Data", "data_param.prefetch", LARGEST, "reading 2,147,483,648 batches of 2"),
        ("Data", "data_param.batch_size", 10**6, "needs 4.5 GiB .* lower batch_size or"),
        ("Data", "data_param.source", "a\0b", "source holds a zero character"),
    ],
)
def test_what_is_asked_for_is_named(kind: str, path: str, value: Any, words: str) -> None:
    with pytest.raises(FireError, match=words) as caught:
        feed(kind, path, value)
    assert '"d"' in str(caught.value)


def test_a_canvas_without_end() -> None:
    with pytest.raises(DataError, match="enlarged by expand_param: has .* pixels, more than"):
        feed("Data", "transform_param.expand_param.max_expand_ratio", 1e30)


def test_numbers_without_end_in_annotations(tmp_path: Path) -> None:
    """Python refuses to read integers of more than 4300 digits, and floats end at 1e308."""
    digits = "9" * 5000
    (tmp_path / "a.txt").write_text(f"{digits} 1 1 2 2\n")
    with pytest.raises(DataError, match='a.txt:1: expected "label xmin'):
        read_txt(str(tmp_path / "a.txt"), {}, 10, 10)
    for number, words in ((digits, "is not JSON"), ("9" * 400, "height must be a number")):
        (tmp_path / "a.json").write_text(f'{{"image": {{"height": {number}}}, "annotation": []}}')
        with pytest.raises(DataError, match=words):
            read_json(str(tmp_path / "a.json"), {}, 10, 10)
