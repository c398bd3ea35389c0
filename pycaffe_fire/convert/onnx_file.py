"""ONNX files: written piece by piece without a second copy of the weights, read without trust.

A file above 2 GB keeps its weights in a second one beside it. What is read comes from the model's
own folder alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConvertError
from ..schema.files import meant_by, read_head, replacing
from ..schema.wire import Parts
from .libraries import need

Array = NDArray[Any]
PathLike = str | os.PathLike[str]

LIMIT = 2**31 - 2**24  # bytes that a protobuf message may have, less room for the nodes
SMALL = 1024  # bytes of arrays that stay in the model's own file
PAGE = 4096
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW = 7, 5, 9  # field numbers


def _header(onnx: Any, name: str, array: Array) -> Any:
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.TensorProto(name=name, dims=array.shape, data_type=kind)


def _bytes(array: Array) -> memoryview:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return little.reshape(-1).view(np.uint8).data


def _put(data: Any, array: Array) -> tuple[int, int]:
    """Append an array on a new page; where it is and how long."""
    data.write(b"\0" * (-data.tell() % PAGE))
    offset, values = data.tell(), _bytes(array)
    data.write(values)
    return offset, len(values)


def outside(onnx: Any, name: str, array: Array, location: str, at: tuple[int, int]) -> Any:
    """A tensor whose values are in another file."""
    tensor = _header(onnx, name, array)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", at[0]), ("length", at[1])):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def is_large(arrays: Mapping[str, Array], limit: int = LIMIT) -> bool:
    """Do the arrays need a file of their own?"""
    return sum(array.nbytes for array in arrays.values()) > limit


def data_path(path: PathLike) -> Path:
    """The file of weights beside a model that is too large for one."""
    return Path(f"{os.fspath(path)}.data")


@contextmanager
def writing(
    path: PathLike, model: Any, arrays: Mapping[str, Array], limit: int = LIMIT
) -> Iterator[Path]:
    """Write a model (without initializers) with its arrays under a temporary name, to be looked at
    within the block; the file takes its place only if that ends well."""
    with ExitStack() as files:
        data = None
        if is_large(arrays, limit):
            place = files.enter_context(replacing(data_path(path), ConvertError))
            data = files.enter_context(open(place, "wb"))
        temporary = files.enter_context(replacing(path, ConvertError))
        with open(temporary, "wb") as file:
            _model_parts(model, arrays, data).write(file)
        yield temporary


def _model_parts(model: Any, arrays: Mapping[str, Array], data: Any) -> Parts:
    onnx = need("onnx")
    graph = Parts()
    graph.add(model.graph.SerializeToString())
    location = "" if data is None else meant_by(Path(data.name).name)
    for name, array in arrays.items():
        tensor = Parts()
        if data is not None and array.nbytes > SMALL:
            tensor.add(outside(onnx, name, array, location, _put(data, array)).SerializeToString())
        else:
            tensor.add(_header(onnx, name, array).SerializeToString())
            tensor.add_bytes(_TENSOR_RAW, _bytes(array))
        graph.add_message(_GRAPH_INITIALIZER, tensor)
    head = onnx.ModelProto()
    head.CopyFrom(model)
    head.ClearField("graph")
    parts = Parts()
    parts.add(head.SerializeToString())
    parts.add_message(_MODEL_GRAPH, graph)
    return parts


def load(path: PathLike) -> tuple[Any, dict[str, Array]]:
    """The model in a file without its initializers, and those as arrays."""
    onnx, name = need("onnx"), os.fspath(path)
    read_head(path, ConvertError, ".onnx")
    try:
        model = onnx.ModelProto.FromString(Path(name).read_bytes())
    except Exception as problem:  # the class depends on protobuf's implementation
        raise ConvertError(f"{name}: truncated, damaged, or not an ONNX file") from problem
    if not _all_text(model):
        raise ConvertError(f"{name}: damaged: a name in it is no text")
    graph = model.graph
    if not graph.node or not graph.output or not model.opset_import:
        raise ConvertError(f"{name}: truncated, or not an ONNX file: there is no graph in it")
    if len(graph.sparse_initializer):
        raise ConvertError(f"{name}: sparse initializers are not supported")
    try:
        arrays = {each.name: _array(onnx, each, Path(name).parent) for each in graph.initializer}
    except ConvertError as problem:
        raise ConvertError(f"{name}: {problem}") from None
    graph.ClearField("initializer")
    for node in graph.node:
        if any(a.t.data_location == onnx.TensorProto.EXTERNAL for a in node.attribute):
            raise ConvertError(f'{name}: node "{node.name}" keeps a constant in another file')
    return model, arrays


def _all_text(message: Any) -> bool:
    """Is every string within UTF-8? Protobuf gives the bytes of those that are not."""
    for field in message.DESCRIPTOR.fields:
        if field.type == field.TYPE_STRING:
            value = getattr(message, field.name)
            if isinstance(value, bytes) or any(isinstance(each, bytes) for each in value):
                return False
        elif field.type == field.TYPE_MESSAGE:
            value = getattr(message, field.name)
            single = hasattr(value, "DESCRIPTOR")
            present = [value] if single and message.HasField(field.name) else []
            if not all(map(_all_text, present if single else value)):
                return False
    return True


def _array(onnx: Any, tensor: Any, folder: Path) -> Array:
    kinds = onnx.TensorProto.DataType.values()
    if tensor.data_type not in kinds or tensor.data_type in (0, onnx.TensorProto.STRING):
        raise ConvertError(f'initializer "{tensor.name}" has no numeric type')
    if min(tensor.dims, default=0) < 0:
        raise ConvertError(f'initializer "{tensor.name}" has a negative size')
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _outside(onnx, tensor, folder)
    try:
        found: Array = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as problem:
        raise ConvertError(f'initializer "{tensor.name}" is damaged: {problem}') from None
    return found


def _outside(onnx: Any, tensor: Any, folder: Path) -> Array:
    """Values from a file in the model's folder, and from nowhere else."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    place = (folder / location).resolve()
    inside = place.is_relative_to(folder.resolve()) and not Path(location).is_absolute()
    if not location or not inside or ".." in Path(location).parts:
        raise ConvertError(
            f'initializer "{tensor.name}" wants the file "{location}" outside the model\'s folder; '
            f"that is not read"
        )
    read_head(place, ConvertError, "weights")
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    try:
        offset = int(entries.get("offset", "0"))
    except ValueError:
        offset = -1
    length = prod(tensor.dims) * dtype.itemsize
    if offset < 0 or offset + length > place.stat().st_size:
        raise ConvertError(
            f'initializer "{tensor.name}" wants bytes {offset} to {offset + length} of '
            f'"{location}", which is shorter'
        )
    with open(place, "rb") as file:
        file.seek(offset)
        values = np.frombuffer(file.read(length), dtype.newbyteorder("<"))
    return values.astype(dtype, copy=False).reshape(tuple(tensor.dims))
