"""A converted net as a PyTorch module: the nodes of an ONNX file, listed by infer.py.

It imports nothing of ours and no ONNX, so that its memory is PyTorch's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Attributes = dict[str, Any]


class Graph(torch.nn.Module):  # type: ignore[misc]
    """Runs nodes (op, inputs, output, attributes) in order; constants are its buffers."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        graph = json.loads((folder / "graph.json").read_text())
        self._input, self._output = graph["input"], graph["output"]
        self._names: dict[str, str] = {}
        with np.load(folder / "constants.npz") as constants:
            for number, name in enumerate(constants.files):
                self._names[name] = f"constant{number}"
                self.register_buffer(f"constant{number}", _laid_out(constants[name]))
        self._nodes = [
            (OPS[op], inputs, output, attributes)
            for op, inputs, output, attributes in graph["nodes"]
        ]

    def forward(self, values: Tensor) -> Tensor:
        found = {name: getattr(self, place) for name, place in self._names.items()}
        found[self._input] = values
        for run, inputs, output, attributes in self._nodes:
            found[output] = run([found[name] for name in inputs], attributes)
        return found[self._output]


def _laid_out(values: Any) -> Tensor:
    tensor = torch.from_numpy(values)
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _even(pads: list[int]) -> list[int] | None:
    """Pads that are the same at both ends, as most ops want them."""
    half = len(pads) // 2
    return pads[:half] if pads[:half] == pads[half:] else None


def _padded(x: Tensor, a: Attributes, value: float) -> tuple[Tensor, list[int]]:
    """The image and the pads that are left to the op; uneven ones are made here."""
    pads = a.get("pads", [0] * 4)
    even = _even(pads)
    if even is not None:
        return x, even
    top, left, bottom, right = pads
    return F.pad(x, (left, right, top, bottom), value=value), [0, 0]


def _conv(x: list[Tensor], a: Attributes) -> Tensor:
    image, pads = _padded(x[0], a, 0.0)
    bias = x[2] if len(x) > 2 else None
    return F.conv2d(
        image, x[1], bias, a.get("strides", 1), pads, a.get("dilations", 1), a.get("group", 1)
    )


def _max_pool(x: list[Tensor], a: Attributes) -> Tensor:
    image, pads = _padded(x[0], a, float("-inf"))
    return F.max_pool2d(image, a["kernel_shape"], a.get("strides", 1), pads)


def _average_pool(x: list[Tensor], a: Attributes) -> Tensor:
    counted = bool(a.get("count_include_pad", 0))
    image, pads = x[0], _even(a.get("pads", [0] * 4))
    if pads is None:
        if not counted:
            raise NotImplementedError("AveragePool with uneven pads that do not count")
        image, pads = _padded(x[0], a, 0.0)
    return F.avg_pool2d(image, a["kernel_shape"], a.get("strides", 1), pads, False, counted)


def _gemm(x: list[Tensor], a: Attributes) -> Tensor:
    weight = x[1] if a.get("transB", 0) else x[1].t()
    return F.linear(x[0], weight, x[2] if len(x) > 2 else None)


def _lrn(x: list[Tensor], a: Attributes) -> Tensor:
    return F.local_response_norm(
        x[0], a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("bias", 1.0)
    )


OPS: dict[str, Callable[[list[Tensor], Attributes], Tensor]] = {
    "Conv": _conv,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": lambda x, a: F.adaptive_avg_pool2d(x[0], 1),
    "Relu": lambda x, a: F.relu(x[0]),
    "Add": lambda x, a: x[0] + x[1],
    "Mul": lambda x, a: x[0] * x[1],
    "Concat": lambda x, a: torch.cat(x, a["axis"]),
    "Flatten": lambda x, a: x[0].flatten(a.get("axis", 1)),
    "Gemm": _gemm,
    "LRN": _lrn,
    "Softmax": lambda x, a: F.softmax(x[0], a.get("axis", -1)),
    "Identity": lambda x, a: x[0],
}
