"""Images uploaded as bytes and transformed on the device: the CPU's values, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.order import SequentialOrder
from pycaffe_fire.data.source import DatabaseSource
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.layers import Context
from pycaffe_fire.schema import write_blob
from tests.cuda.fake_cupy.races import checker

SHAPE = (3, 10, 13)
FLOATS = 7  # the record that holds floats, where one does


def write_database(folder: Path, with_floats: bool = False) -> Path:
    rng = np.random.default_rng(0)
    with DatabaseWriter(folder / "images") as writer:
        for i in range(16):
            image = rng.integers(0, 256, SHAPE, dtype=np.uint8)
            record = encode_datum(image, i % 10)
            if with_floats and i == FLOATS:
                values = (image.astype(np.float32) / 7).reshape(-1)
                datum = schema.Datum(
                    channels=3, height=10, width=13, label=i % 10, float_data=values
                )
                record = datum.SerializeToString()
            writer.put(b"%08d" % i, record)
    write_blob(folder / "mean.binaryproto", rng.random((1, *SHAPE), np.float32) * 200)
    return folder


def batches(backend: Backend, folder: Path, transform: str, phase: int, count: int = 6) -> Any:
    text = f"""
    layer {{ name: "data" type: "Data" top: "data" top: "label"
      transform_param {{ {transform} }}
      data_param {{ source: "{folder}/images" backend: LMDB batch_size: 4 }} }}
    layer {{ name: "copy" type: "Power" bottom: "data" top: "copy" }}
    """
    net = Net(
        schema.parse_text(text, schema.NetParameter()), phase, backend=backend, context=Context(5)
    )
    found = []
    for step in range(count):
        net.context.step = step
        net.forward()
        found.append([np.array(net.blobs[name].data) for name in ("data", "label", "copy")])
    net.close()
    return found


TRANSFORMS = {
    "plain": "",
    "crop": "crop_size: 8 mirror: true scale: 0.00390625",
    "values": "crop_size: 7 mirror: true mean_value: 104 mean_value: 117 mean_value: 123",
    "file": 'crop_size: 8 mirror: true scale: 0.017 mean_file: "{folder}/mean.binaryproto"',
    "whole file": 'mirror: true mean_file: "{folder}/mean.binaryproto"',
}


@pytest.mark.parametrize("phase", [schema.TRAIN, schema.TEST], ids=["train", "test"])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_the_same_bits(transform: str, phase: int, cuda: Any, tmp_path: Path) -> None:
    folder = write_database(tmp_path)
    transform = transform.format(folder=folder)
    want = batches(NumPyBackend(), folder, transform, phase)
    got = batches(cuda, folder, transform, phase)
    for mine, theirs in zip(got, want, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_quarter_of_the_bytes(cuda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    start = type(cuda.uploads).start
    monkeypatch.setattr(
        type(cuda.uploads),
        "start",
        lambda self, to, values: sizes.append(values.nbytes) or start(self, to, values),
    )
    batches(cuda, write_database(tmp_path), "crop_size: 8", schema.TRAIN, 1)
    assert sizes == [4 * (3 * 4 + 3 * 8 * 8), 4 * 4]  # places and pixels, then labels


def test_records_of_floats_in_between(cuda: Any, tmp_path: Path) -> None:
    """A batch with one is transformed on the host."""
    folder = write_database(tmp_path, with_floats=True)
    want = batches(NumPyBackend(), folder, TRANSFORMS["crop"], schema.TRAIN, 10)
    got = batches(cuda, folder, TRANSFORMS["crop"], schema.TRAIN, 10)
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine[0], theirs[0])


@pytest.mark.parametrize(("with_floats", "on_device"), [(False, 10), (True, 7)])
def test_batches_of_bytes_are_transformed_on_the_device(
    with_floats: bool, on_device: int, cuda: Any, tmp_path: Path
) -> None:
    folder = write_database(tmp_path, with_floats)
    checker.work.clear()
    batches(cuda, folder, TRANSFORMS["crop"], schema.TRAIN, 10)
    assert checker.work[cuda.compute.ptr].count("kernel transform_images") == on_device


class Masks(DatabaseSource):
    """A source with more than one label for an image."""

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [self.shape, (1, *self.shape[1:])]


def test_only_images_with_one_label_come_as_bytes(cuda: Any, tmp_path: Path) -> None:
    folder = write_database(tmp_path)
    text = f"""
    layer {{ name: "data" type: "Data" top: "data" top: "label"
      data_param {{ source: "{folder}/images" backend: LMDB batch_size: 4 }} }}
    """
    param = schema.parse_text(text, schema.NetParameter())
    net = Net(param, schema.TRAIN, backend=cuda, context=Context(5))
    layer: Any = net.layers[0]
    transformer, path = layer.transformer(), str(folder / "images")
    for kind, on_device in ((DatabaseSource, True), (Masks, False)):
        source = kind(path, "LMDB", transformer, SequentialOrder())
        assert (layer._device_transform(source) is not None) == on_device
    net.close()
