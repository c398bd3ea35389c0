"""Small files that claim much: loading costs at most about four times the file.

Each is loaded by a child whose address space is limited to what it has and that much more.
"""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOM = 256 << 20
CHILD = """
import resource, sys
from pathlib import Path
import h5py, numpy, PIL.Image, pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.data import convert, datum, hdf5, image
from pycaffe_fire.errors import FireError
caffe.set_mode_cpu()
what, path, room = sys.argv[1], sys.argv[2], int(sys.argv[3])
statm = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = statm + 4 * Path(path).stat().st_size + room
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
loads = {
    "net": lambda: schema.read_net(path),
    "weights": lambda: schema.read_weights(path),
    "image": lambda: image.read_image(path),
    "mnist": lambda: convert.convert_mnist(path, path + ".labels", path + ".lmdb", "lmdb"),
    "hdf5": lambda: hdf5.HDF5Source(path + ".list", ["data"]).fill(
        range(2), numpy.empty((2, 1000), numpy.float32)),
}
try:
    loads[what]()
    print("loaded")
except FireError as error:
    print("refused:", error)
"""


def load(what: str, path: Path, room: int = ROOM, seconds: float = 100) -> str:
    command = [sys.executable, "-c", CHILD, what, str(path), str(room)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_long_string(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('name: "' + "x" * 20_000_000 + '"')
    assert load("net", tmp_path / "x") == "loaded\n"


def test_many_escapes(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('name: "' + "\\n" * 500_000 + '"')
    assert load("net", tmp_path / "x") == "loaded\n"


def test_many_comments_and_small_tokens(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("#\n" * 500_000 + "input_dim: 1\n" * 20_000)
    assert load("net", tmp_path / "x", 128 << 20) == "loaded\n"


def test_an_image_of_a_billion_pixels(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(1_000_000))
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", pixels), chunk(b"IEND", b""))
    (tmp_path / "x").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    assert "has far more than" in load("image", tmp_path / "x")


def test_the_limit_on_pixels_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    from pycaffe_fire.data.image import read_image
    from pycaffe_fire.data.pixel_limit import PIXELS_VARIABLE
    from pycaffe_fire.errors import DataError

    Image.new("RGB", (20, 10)).save(tmp_path / "x.png")
    monkeypatch.setenv(PIXELS_VARIABLE, "199")
    with pytest.raises(DataError, match=PIXELS_VARIABLE):
        read_image(str(tmp_path / "x.png"))
    monkeypatch.setenv(PIXELS_VARIABLE, "200")
    assert read_image(str(tmp_path / "x.png")).shape == (3, 10, 20)


def test_zeros_in_a_gzip_file(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "x", "wb", compresslevel=1) as file:
        file.write(b"\0\0\x08\x03" + struct.pack(">III", 1, 28, 28))
        for _ in range(600):
            file.write(bytes(1 << 20))
    (tmp_path / "x.labels").write_bytes(b"\0\0\x08\x01" + struct.pack(">I", 1) + b"\3")
    assert "goes on behind the last entry" in load("mnist", tmp_path / "x")


def test_datasets_that_were_never_written(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file.create_dataset("data", (2_000_000, 1000), "f4", chunks=(100, 1000))
    (tmp_path / "x.list").write_text(str(tmp_path / "x"))
    assert "claims more than the file holds" in load("hdf5", tmp_path / "x")


def test_datasets_much_larger_than_their_file_are_read_by_rows(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        data = file.create_dataset(
            "data", (300_000, 1000), "f4", chunks=(1000, 1000), compression="gzip"
        )
        zeros = np.zeros((10_000, 1000), np.float32)
        for start in range(0, len(data), len(zeros)):
            data[start : start + len(zeros)] = zeros
    (tmp_path / "x.list").write_text(str(tmp_path / "x"))
    assert load("hdf5", tmp_path / "x") == "loaded\n"


def test_weights_that_are_all_compression(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file.create_dataset("data/ip/0", data=np.zeros((100, 1_000_000), "f4"), compression="gzip")
    assert "is compressed to a fraction" in load("weights", tmp_path / "x")


@pytest.mark.parametrize("how", ["external link", "soft link", "external storage", "virtual"])
@pytest.mark.parametrize("what", ["weights", "hdf5"])
def test_hdf5_files_do_not_read_others(tmp_path: Path, how: str, what: str) -> None:
    with h5py.File(tmp_path / "secret", "w") as file:
        file["data"] = np.ones((5, 1000), "f4")
    (tmp_path / "raw").write_bytes(np.ones(5000, "f4").tobytes())
    name = "data/ip/0" if what == "weights" else "data"
    with h5py.File(tmp_path / "x", "w") as file:
        if how == "external link":
            file[name] = h5py.ExternalLink(str(tmp_path / "secret"), "/data")
        elif how == "soft link":
            file["elsewhere"] = np.ones((5, 1000), "f4")
            file[name] = h5py.SoftLink("/elsewhere")
        elif how == "external storage":
            place = [(str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)]
            file.create_dataset(name, (5, 1000), "f4", external=place)
        else:
            layout = h5py.VirtualLayout((5, 1000), "f4")
            layout[:] = h5py.VirtualSource(str(tmp_path / "secret"), "data", (5, 1000))
            file.create_virtual_dataset(name, layout)
    (tmp_path / "x.list").write_text(str(tmp_path / "x"))
    said = load(what, tmp_path / "x")
    assert "not followed" in said or "not read" in said


def test_temporary_names_cannot_be_guessed(tmp_path: Path) -> None:
    from pycaffe_fire.errors import WeightsError
    from pycaffe_fire.schema.files import meant_by, replacing

    (tmp_path / "mine").write_text("kept")
    for guess in (f".{os.getpid()}.tmp.x",):
        (tmp_path / guess).symlink_to(tmp_path / "mine")
    names = set()
    for _ in range(3):
        with replacing(tmp_path / "x", WeightsError) as temporary:
            assert meant_by(temporary.name) == "x" and temporary.exists()
            names.add(temporary.name)
            temporary.write_text("new")
    assert len(names) == 3
    assert (tmp_path / "mine").read_text() == "kept" and (tmp_path / "x").read_text() == "new"
