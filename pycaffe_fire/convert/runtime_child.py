"""The process in which other libraries run models: a model that ends it ends nothing else.

Requests come on standard input, answers leave on standard output: a line of JSON, then the bytes of
arrays. One model is open at a time. The process imports nothing else of the package.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Head = dict[str, Any]

_QUIET = 4  # onnxruntime logs what it is about to raise; we say it once
_NUMBERS = "biufc"  # kinds of dtypes


def send(stream: IO[bytes], head: Head, arrays: Sequence[Array] = ()) -> None:
    """Write a message."""
    kinds = [(array.dtype.str, array.shape) for array in arrays]
    stream.write(json.dumps({**head, "arrays": kinds}).encode() + b"\n")
    for array in arrays:
        stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[Head, list[Array]]:
    """Read a message; raises EOFError where the other side has ended."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    head = json.loads(line)
    return head, [_read(stream, np.dtype(kind), shape) for kind, shape in head.pop("arrays")]


def _read(stream: IO[bytes], dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
    array = np.empty(tuple(shape), dtype)
    if stream.readinto(array.reshape(-1).view(np.uint8).data) < array.nbytes:  # type: ignore[attr-defined]
        raise EOFError
    return array


class _OnnxRuntime:
    """A model in onnxruntime: its bytes and large arrays that are lent to it, or a file."""

    def __init__(self, head: Head, arrays: list[Array]) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        levels = onnxruntime.GraphOptimizationLevel
        options.log_severity_level = _QUIET
        options.graph_optimization_level = getattr(levels, head["level"])
        options.enable_mem_pattern = False  # shapes change
        options.enable_cpu_mem_arena = False  # which would keep what the largest run took
        options.intra_op_num_threads = head["threads"]
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        for name, value in head["entries"].items():
            options.add_session_config_entry(name, value)
        source: Any = head.get("path")
        if source is None:
            source, *lent = arrays
            source = source.tobytes()
            self._lent = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in lent]
            if lent:
                options.add_external_initializers(head["lent"], self._lent)
        self.version = onnxruntime.__version__
        self._session = onnxruntime.InferenceSession(  # without a second try announced on stdout
            source, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )

    def run(self, names: list[str], feeds: dict[str, Array]) -> list[Any]:
        found: list[Any] = self._session.run(names, feeds)
        return found


class _OpenCV:
    """A file in OpenCV's dnn module."""

    def __init__(self, head: Head, arrays: list[Array]) -> None:
        import cv2

        if not hasattr(cv2, "dnn"):
            raise RuntimeError("it has no dnn module: pip install opencv-python-headless")
        self.version, self._path = cv2.__version__, head["path"]
        self._read = cv2.dnn.readNetFromONNX

    def run(self, names: list[str], feeds: dict[str, Array]) -> list[Any]:
        net = self._read(self._path)
        for name, values in feeds.items():
            net.setInput(values, name)
        found: list[Any] = list(net.forward(names))
        return found


_LIBRARIES: dict[str, Any] = {"onnxruntime": _OnnxRuntime, "OpenCV": _OpenCV}


def _as_numbers(name: str, value: Any) -> Array:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in _NUMBERS:
        raise TypeError(f'"{name}" is no tensor of numbers')
    return value


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not stand between answers
    model: Any = None
    while True:
        try:
            head, arrays = receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if head["do"] == "close":
                model = None
                send(answers, {})
            elif head["do"] == "open":
                model = None  # its memory, before the next one takes some
                model = _LIBRARIES[head["library"]](head, arrays)
                send(answers, {"version": model.version})
            else:
                names, feeds = head["names"], dict(zip(head["feeds"], arrays, strict=True))
                found = dict(zip(names, model.run(names, feeds), strict=True))
                found = {name: _as_numbers(name, value) for name, value in found.items()}
                shapes = {name: value.shape for name, value in found.items()}
                send(answers, {"shapes": shapes}, [found[name] for name in head["wanted"]])
                del feeds, found
        except Exception as problem:  # each library has errors of its own
            send(answers, {"error": " ".join(str(problem).split()) or type(problem).__name__})
        del head, arrays
