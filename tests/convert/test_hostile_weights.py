"""Files of named weights that are damaged or made to harm: refused in one sentence."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import host
from pycaffe_fire.convert import Settings, convert
from pycaffe_fire.convert.weights import read
from pycaffe_fire.errors import ConvertError, DataError
from pycaffe_fire.pycaffe.classifier import read_array

NET = """
layer { name: "d" type: "Input" top: "d" input_param { shape { dim: 1 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "d" top: "ip"
        inner_product_param { num_output: 2 } }
"""
WEIGHT, BIAS = np.ones((2, 3), np.float32), np.zeros(2, np.float32)


def npz(weight: Any = WEIGHT) -> bytes:
    out = io.BytesIO()
    np.savez(out, **{"ip.weight": weight, "ip.bias": BIAS})
    return out.getvalue()


def npy(shape: tuple[int, ...], kind: str = "<f4") -> bytes:
    """A header that promises an array, and 24 bytes."""
    return header(repr({"descr": kind, "fortran_order": False, "shape": shape})) + bytes(24)


def header(text: str) -> bytes:
    line = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line


def archive(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name.replace("_", "."), data)
    return out.getvalue()


def safetensors(kind: str, size: int, shape: tuple[int, ...] = (2, 3)) -> bytes:
    head = {
        "ip.weight": {"dtype": kind, "shape": shape, "data_offsets": [0, size]},
        "ip.bias": {"dtype": "F32", "shape": [2], "data_offsets": [size, size + 8]},
    }
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size + 8)


def into(folder: Path, name: str, data: bytes) -> None:
    (folder / "net.prototxt").write_text(NET)
    (folder / name).write_bytes(data)
    settings = Settings(into=str(folder / "net.prototxt"))
    convert(folder / name, folder / "out.caffemodel", settings=settings)


ARCHIVES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "cannot be read as .npz"),
    "truncated": (npz()[:-1], "not a zip file"),
    "half": (npz()[: len(npz()) // 2], "not a zip file"),
    "another array file": (npy((2, 3)), "not a zip file"),
    "pickle": (pickle.dumps({"ip.weight": WEIGHT}), "not a zip file"),
    "text": (npz(np.zeros((2, 3), "U3")), '"ip.weight" is an array of <U3, not of numbers'),
    "bytes": (npz(np.zeros((2, 3), "S3")), "not of numbers"),
    "complex": (npz(np.zeros((2, 3), "c8")), "complex64, not of numbers"),
    "dates": (npz(np.zeros((2, 3), "M8[s]")), "not of numbers"),
    "records": (npz(np.zeros((2, 3), [("a", "f4")])), "not of numbers"),
    "objects": (npz(np.full((2, 3), None)), "holds Python objects, which could run code"),
    "too large for 32 bits": (npz(np.full((2, 3), 1e300)), "too large for 32 bits"),
    "no array": (archive(ip_weight=b"hello"), '"ip.weight" in it is no array'),
    "no header": (archive(ip_weight_npy=b"hello"), '"ip.weight.npy" in it is no array'),
    "code": (archive(ip_weight_npy=header("__import__('os').abort()")), "is no array"),
    "brackets": (archive(ip_weight_npy=header("(" * 5000)), "npz: "),
    "negative": (archive(ip_weight_npy=npy((-1,))), "in it is damaged: 24 bytes for an array of"),
    "4 TiB": (archive(ip_weight_npy=npy((2**40,))), "which has 4,398,046,511,104"),
    "beyond 64 bits": (archive(ip_weight_npy=npy((2**62, 2**62))), "in it is damaged"),
    "nothing": (archive(ip_weight_npy=npy((2, 3, 0))), "in it is damaged"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives(tmp_path: Path, case: str) -> None:
    data, words = ARCHIVES[case]
    with pytest.raises(ConvertError, match=words) as caught:
        into(tmp_path, "w.npz", data)
    assert "w.npz" in str(caught.value) and not (tmp_path / "out.caffemodel").exists()


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i8", "u1", "?", ">f4"])
def test_any_kind_of_number_is_taken(tmp_path: Path, kind: str) -> None:
    into(tmp_path, "w.npz", npz(WEIGHT.astype(kind)))
    assert np.array_equal(read(tmp_path / "w.npz")["ip.weight"], WEIGHT)


def test_arrays_in_another_order(tmp_path: Path) -> None:
    values = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    into(tmp_path, "w.npz", npz(values))
    assert np.array_equal(read(tmp_path / "w.npz")["ip.weight"], values)


def test_an_archive_that_swells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two megabytes of it are zeros for two gigabytes."""
    monkeypatch.setattr(host, "free_bytes", lambda: 1 << 30)
    with (
        zipfile.ZipFile(tmp_path / "w.npz", "w", zipfile.ZIP_DEFLATED) as file,
        file.open("ip.weight.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy((2**29 - 6,)))
        for _ in range(128):
            member.write(bytes(1 << 24))
    with pytest.raises(ConvertError, match=r"w.npz: needs 2.0 GiB of memory, but this machine has"):
        read(tmp_path / "w.npz")


SAFETENSORS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "cannot be read as .safetensors"),
    "truncated": (safetensors("F32", 24)[:-1], "cannot be read as .safetensors"),
    "pickle": (pickle.dumps({"ip.weight": WEIGHT}), "cannot be read as .safetensors"),
    "a header of 2**63 bytes": (struct.pack("<Q", 2**63) + b"{}", "cannot be read"),
    "an unknown kind": (safetensors("F31", 24), "cannot be read as .safetensors"),
    "complex": (safetensors("C64", 48), "complex64, not of numbers"),
    "beyond 64 bits": (safetensors("F32", 24, (2**62, 2**62)), "cannot be read as .safetensors"),
    "negative": (safetensors("F32", 24, (-2, 3)), "cannot be read as .safetensors"),
}


@pytest.mark.parametrize("case", SAFETENSORS)
def test_safetensors(tmp_path: Path, case: str) -> None:
    pytest.importorskip("safetensors", reason="the extra `convert` is not installed")
    data, words = SAFETENSORS[case]
    with pytest.raises(ConvertError, match=words) as caught:
        into(tmp_path, "w.safetensors", data)
    assert "w.safetensors" in str(caught.value)


@pytest.mark.parametrize(
    "data", [npy((2**45,)), header("(" * 5000), npz(), npy((8,), "S3"), pickle.dumps(WEIGHT)]
)
def test_mean_arrays(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "mean.npy").write_bytes(data)
    with pytest.raises(DataError, match=r"mean.npy: (cannot be read|holds no array)"):
        read_array(str(tmp_path / "mean.npy"))
