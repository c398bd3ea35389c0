"""Weights under the names other frameworks use, in .safetensors, .npz and .pt files.

A layer's blobs are `layer.weight` and `layer.bias`; BatchNorm's sums are divided by their weight
and called `layer.running_mean` and `layer.running_var`.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..backend.sizes import memory_shortage
from ..errors import ConvertError
from ..schema.files import read_head, replacing
from .averages import averages
from .libraries import need
from .model import Model, PathLike, build, counted

Array = NDArray[Any]

_STATISTICS = ("running_mean", "running_var")
_NUMBERED = ("LSTM", "Lstm", "RNN")  # their blobs are numbered
_NUMBERS = "biuf"  # kinds of dtypes
_EXTRA = "num_batches_tracked"  # PyTorch's; nothing of Caffe's


def blob_name(kind: str, index: int, count: int) -> str:
    """What a layer's weight blob is called after the layer's name."""
    if kind == "BatchNorm":
        return (*_STATISTICS, "factor")[index]
    if kind in _NUMBERED or count > 4:
        return f"blobs.{index}"
    if kind == "Bias":
        return "bias"
    return ("weight", "bias", *_STATISTICS)[index]


def to_named(model: Model) -> dict[str, Array]:
    """All weights of a model by name."""
    from .unfork import plain_enough

    model = plain_enough(model)
    named: dict[str, Array] = {}
    for layer in model.layer_weights():
        if layer.type == "BatchNorm" and len(layer.blobs) == 3:
            mean, variance = averages(layer.blobs)
            named[f"{layer.name}.running_mean"] = mean
            named[f"{layer.name}.running_var"] = variance
            continue
        for index, blob in enumerate(layer.blobs):
            named[f"{layer.name}.{blob_name(layer.type, index, len(layer.blobs))}"] = blob
    return named


def from_named(prototxt: PathLike, source: PathLike) -> Model:
    """The net in a prototxt with all weights taken from a file by name.

    `bn.weight` and `bn.bias` of a BatchNorm layer go into the Scale layer that follows it.
    """
    named = {name: a for name, a in read(source).items() if not name.endswith(_EXTRA)}
    param = schema.read_net(prototxt)
    model = Model(param, {}, os.fspath(prototxt), os.fspath(source))
    net = build(model, need_weights=False)
    scales = _scales_of(param)
    problems: list[str] = []
    for layer in net.layers:
        if not layer.blobs:
            continue
        shapes = [tuple(blob.shape) for blob in layer.blobs]
        found = _take(named, layer.name, layer.type, shapes, scales, problems)
        model.weights[layer.name] = found
    if problems:
        raise ConvertError(
            "\n  ".join([f"{os.fspath(source)} does not fit {os.fspath(prototxt)}:", *problems])
        )
    if named:
        model.notes.append(f"not used: {counted(sorted(named), 'array')}")
    return model


def _scales_of(param: Any) -> dict[str, str]:
    """Scale layers to the BatchNorm layers before them."""
    makers: dict[str, Any] = {}
    found = {}
    for layer in param.layer:
        maker = makers.get(layer.bottom[0]) if layer.bottom else None
        if layer.type == "Scale" and maker is not None and maker.type == "BatchNorm":
            found[layer.name] = maker.name
        makers.update((top, layer) for top in layer.top)
    return found


def _take(
    named: dict[str, Array], name: str, kind: str, shapes: list[tuple[int, ...]],
    scales: Mapping[str, str], problems: list[str],
) -> list[Any]:  # fmt: skip
    """A layer's blobs out of the named arrays; what is missing or does not fit is noted."""
    found: list[Any] = []
    for index, shape in enumerate(shapes):
        if kind == "BatchNorm" and index == 2:
            found.append(np.ones(shape, np.float32))
            continue
        end = blob_name(kind, index, len(shapes))
        key = f"{name}.{end}"
        if key not in named and name in scales:
            key = f"{scales[name]}.{end}"
        array = named.pop(key, None)
        if array is None:
            problems.append(f'there is no "{key}" {list(shape)}')
            found.append(np.zeros(shape, np.float32))
        elif array.size != np.prod(shape, dtype=int):
            problems.append(f'"{key}" is {list(array.shape)}, the net wants {list(shape)}')
            found.append(np.zeros(shape, np.float32))
        else:
            with np.errstate(over="ignore"):
                values = np.ascontiguousarray(array, np.float32).reshape(shape)
            if np.isfinite(array).all() and not np.isfinite(values).all():
                problems.append(f'"{key}" has values that are too large for 32 bits')
            found.append(values)
    return found


# Files.


def write(path: PathLike, named: Mapping[str, Array], float16: bool = False) -> None:
    """Write named arrays; the suffix says how."""
    kind = np.float16 if float16 else np.float32
    arrays = {name: np.ascontiguousarray(array, kind) for name, array in named.items()}
    with replacing(path, ConvertError) as temporary:
        if temporary.suffix == ".safetensors":
            need("safetensors.numpy").save_file(arrays, str(temporary))
        elif temporary.suffix == ".npz":
            with open(temporary, "wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
        else:
            torch = need("torch")
            torch.save({n: torch.from_numpy(a) for n, a in arrays.items()}, temporary)


def read(path: PathLike) -> dict[str, Array]:
    """The named arrays in a file; no file runs code when it is read."""
    read_head(path, ConvertError, "weights")
    name, suffix = os.fspath(path), Path(path).suffix.lower()
    try:
        if suffix == ".safetensors":
            return _numbers(name, need("safetensors.numpy").load_file(name))
        if suffix == ".npz":
            return _numbers(name, _read_npz(name))
        torch = need("torch")
        state = torch.load(name, map_location="cpu", weights_only=True)
        return {key: value.float().numpy() for key, value in state.items()}
    except ConvertError:
        raise
    except Exception as problem:  # each library has errors of its own
        reason = " ".join(str(problem).split())
        raise ConvertError(f"{name}: cannot be read as {suffix}: {reason}") from None


def _numbers(path: str, found: dict[str, Array]) -> dict[str, Array]:
    for name, array in found.items():
        if array.dtype.kind not in _NUMBERS:
            raise ConvertError(f'{path}: "{name}" is an array of {array.dtype}, not of numbers')
    return found


def _read_npz(path: str) -> dict[str, Array]:
    """The arrays of an .npz file, none of which says that it is larger than it is."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if shortage := memory_shortage(sum(member.file_size for member in members)):
            raise ConvertError(f"{path}: {shortage}")
        return {
            member.filename.removesuffix(".npy"): _read_member(path, archive, member)
            for member in members
        }


def _read_member(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    npy = np.lib.format
    with archive.open(member) as file:
        try:
            read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
            shape, _, dtype = read_header[npy.read_magic(file)](file)
        except (KeyError, ValueError, SyntaxError):  # also of what the header is parsed by
            raise ConvertError(f'{path}: "{member.filename}" in it is no array') from None
        if dtype.hasobject:
            raise ConvertError(
                f'{path}: "{member.filename}" holds Python objects, which could run code: it is '
                f"not read"
            )
        there, said = member.file_size - file.tell(), prod(shape) * dtype.itemsize
        if there != said:
            raise ConvertError(
                f'{path}: "{member.filename}" in it is damaged: {there:,} bytes for an array of '
                f"{list(shape)} {dtype}, which has {said:,}"
            )
        file.seek(0)
        array: Array = npy.read_array(file, allow_pickle=False)
        return array
