"""A stand-in for nvidia-cudnn-frontend: graphs of one convolution, with bias and ReLU or without,
executed by NumPy at the addresses they are given, as work of the handle's stream.

Every graph offers three plans: one that needs tensor cores, one that gives other bits every time,
and one that is neither, with a workspace. What the real frontend lacks is missing here, too: a test
compares the names.
"""

from __future__ import annotations

import ctypes
import enum
import os
from collections import Counter
from math import prod
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Window
from tests.cuda.fake_cupy import cuda
from tests.cuda.fake_cupy.blas import read_floats, rounded, write_floats
from tests.cuda.fake_cupy.races import checker

WORKSPACE = 20
PLANS = ("tensor cores", "chance", "plain")


class cudnnGraphNotSupportedError(RuntimeError):
    pass


class data_type(enum.Enum):
    FLOAT, HALF, BFLOAT16 = np.float32, np.float16, np.uint16


heur_mode = enum.Enum("heur_mode", "A FALLBACK")
numerical_note = enum.Enum(
    "numerical_note",
    "TENSOR_CORE DOWN_CONVERT_INPUTS REDUCED_PRECISION_REDUCTION NONDETERMINISTIC",
)


class Tensor:
    def __init__(self) -> None:
        self.dim: list[int] = []
        self.stride: list[int] = []
        self.data_type: Any = None
        self.uid = 0
        self.output = False

    def set_output(self, output: bool) -> Tensor:
        self.output = output
        return self

    def set_uid(self, uid: int) -> Tensor:
        self.uid = uid
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = stride
        return self

    def set_data_type(self, data_type: Any) -> Tensor:
        self.data_type = data_type
        return self


class FakeCudnn:
    """The module; `calls` counts what was executed, `refuses` what has no plans."""

    cudnnGraphNotSupportedError = cudnnGraphNotSupportedError
    data_type, heur_mode, numerical_note = data_type, heur_mode, numerical_note

    def __init__(self) -> None:
        if os.environ.get("REAL_CUPY") == "1":
            pytest.skip("the stand-in for cuDNN works on the stand-in for CuPy")
        self.calls: Counter[str] = Counter()
        self.refuses: set[str] = set()
        self.streams: dict[int, int] = {}

    def backend_version_string(self) -> str:
        return "9.0"

    def create_handle(self) -> int:
        self.streams[len(self.streams) + 1] = 0
        return len(self.streams)

    def set_stream(self, handle: int, stream: int) -> None:
        self.streams[handle] = stream

    def pygraph(self, **settings: Any) -> Graph:
        return Graph(self, **settings)


class Graph:
    def __init__(
        self, module: FakeCudnn, io_data_type: Any, intermediate_data_type: Any,
        compute_data_type: Any, handle: int,
    ) -> None:  # fmt: skip
        assert intermediate_data_type is compute_data_type is data_type.FLOAT
        assert handle in module.streams
        self._module, self._type = module, io_data_type
        self._inputs: dict[str, Tensor] = {}
        self._how: dict[str, Any] = {}
        self._direction, self._fused = "", ""
        self._slope: float | None = None
        self._barred: set[str] = set()
        self._index = -1

    def tensor(self, dim: list[int], stride: list[int], data_type: Any, uid: int) -> Tensor:
        return Tensor().set_dim(dim).set_stride(stride).set_data_type(data_type).set_uid(uid)

    def _convolution(self, direction: str, inputs: dict[str, Tensor], how: Any) -> Tensor:
        assert set(how) == {"pre_padding", "post_padding", "stride", "dilation"}
        assert how["pre_padding"] == how["post_padding"]
        self._direction, self._inputs, self._how = direction, inputs, how
        self.out = Tensor()
        return self.out

    def conv_fprop(self, image: Tensor, weight: Tensor, **how: Any) -> Tensor:
        return self._convolution("fprop", {"image": image, "weight": weight}, how)

    def conv_dgrad(self, loss: Tensor, filter: Tensor, **how: Any) -> Tensor:
        return self._convolution("dgrad", {"maps": loss, "weight": filter}, how)

    def conv_wgrad(self, image: Tensor, loss: Tensor, **how: Any) -> Tensor:
        return self._convolution("wgrad", {"image": image, "maps": loss}, how)

    def bias(self, input: Tensor, bias: Tensor) -> Tensor:
        assert input is self.out
        self._inputs["bias"] = bias
        self._fused += "bias"
        self.out = Tensor()
        return self.out

    def relu(self, input: Tensor, negative_slope: float | None = None) -> Tensor:
        assert input is self.out
        self._slope = negative_slope or 0.0
        self._fused += "relu"
        self.out = Tensor()
        return self.out

    # Plans.

    @property
    def name(self) -> str:
        return self._direction + self._fused

    @property
    def _role(self) -> str:
        return {"fprop": "maps", "dgrad": "image", "wgrad": "weight"}[self._direction]

    def _shapes(self) -> Any:
        tensors = {**self._inputs, self._role: self.out}
        return tuple(tuple(tensors[name].dim) for name in ("image", "weight", "maps"))

    def validate(self) -> None:
        for tensor in (*self._inputs.values(), self.out):
            assert tensor.data_type is self._type and tensor.uid
        self._check_strides()
        assert self.out.output and len(self.out.dim) >= 4
        x, w, y = self._shapes()
        assert x[0] == y[0] and w[0] == y[1] and x[1] % w[1] == 0
        for i, size in enumerate(x[2:]):
            extent = self._how["dilation"][i] * (w[2 + i] - 1) + 1
            windows = (size + 2 * self._how["pre_padding"][i] - extent) // self._how["stride"][i]
            assert windows + 1 == y[2 + i]
        self._groups = x[1] // w[1]

    def _check_strides(self) -> None:
        """All tensors with channels last or none; only maps may be parts of larger ones."""
        tensors = {self._role: self.out, **self._inputs}
        orders = set()
        for name, tensor in tensors.items():
            (_, channels, *sizes), (sample, channel, *within) = tensor.dim, tensor.stride
            steps, pixels = [prod(sizes[i + 1 :]) for i in range(len(sizes))], prod(sizes)
            row = within[-1]
            last = channel == 1 and sample == row * pixels
            last &= within == [row * step for step in steps]
            first = channel == pixels and within == steps
            assert first or last
            gap = (last and row - channels) or (first and sample - channels * pixels)
            assert gap == 0 or (name == "maps" and gap > 0)
            if first != last:
                orders.add(last)
        assert len(orders) <= 1

    def build_operation_graph(self) -> None:
        if self.name in self._module.refuses:
            raise cudnnGraphNotSupportedError("no engine for this graph")

    def create_execution_plans(self, heuristics: list[Any]) -> None:
        assert heuristics[0] is heur_mode.A

    def deselect_numeric_notes(self, notes: list[Any]) -> None:
        notes_of = {"tensor cores": numerical_note.TENSOR_CORE, "chance":
                    numerical_note.NONDETERMINISTIC}  # fmt: skip
        self._barred |= {plan for plan, note in notes_of.items() if note in notes}

    def deselect_workspace_greater_than(self, workspace_limit: int) -> None:
        assert workspace_limit >= WORKSPACE

    def get_execution_plan_count(self) -> int:
        return len(PLANS)

    def build_plan_at_index(self, index: int) -> None:
        if PLANS[index] in self._barred:
            raise cudnnGraphNotSupportedError("Deselecting execution plan")
        self._index = index

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return WORKSPACE

    def get_plan_name_at_index(self, index: int) -> str:
        return PLANS[index]

    # Execution.

    def execute(self, tensor_dict: dict[int, int], workspace: int | None, handle: int) -> None:
        assert workspace, "its plans need a workspace"
        tensors = {"out": self.out, **self._inputs}
        assert {t.uid for t in tensors.values()} == set(tensor_dict)
        views = {name: _view(t, tensor_dict[t.uid]) for name, t in tensors.items()}
        out = views.pop("out")
        stream = cuda.get_current_stream()
        assert stream.ptr == self._module.streams[handle]
        self._module.calls[self.name] += 1
        used = (workspace, workspace + WORKSPACE)
        cuda.enqueue(
            f"cuDNN {self.name}", lambda: self._compute(views, out), list(views.values()),
            [out, used],
        )  # fmt: skip
        assert not checker.found

    def _compute(self, views: dict[str, Any], out: Any) -> None:
        values = {name: read_floats(view) for name, view in views.items()}
        if PLANS[self._index] == "tensor cores":
            values = {n: rounded(v) if n != "bias" else v for n, v in values.items()}
        x, w, y = self._shapes()
        backend = NumPyBackend()
        blobs = [Blob(backend, shape) for shape in (x, w, y)]
        pad, stride, dilation = (
            tuple(self._how[name]) for name in ("pre_padding", "stride", "dilation")
        )
        window = Window(tuple(w[2:]), stride, pad, dilation)
        plan = backend.convolution(blobs[0], blobs[1], None, blobs[2], window, self._groups)
        for name, blob in zip(("image", "weight"), blobs, strict=False):
            if name in values:
                blob.data[...] = values[name]
        if self._direction == "fprop":
            plan.forward()
            made = blobs[2].data
            if "bias" in values:
                made = made + values["bias"]
            if self._slope is not None:
                made = np.where(made > 0, made, self._slope * made)
        else:
            blobs[2].diff[...] = values["maps"]
            plan.backward(self._direction == "dgrad", self._direction == "wgrad", False)
            made = blobs[0 if self._direction == "dgrad" else 1].diff
        write_floats(out, made)


def _view(tensor: Tensor, address: int) -> Any:
    dtype = np.dtype(tensor.data_type.value)
    size = 1 + sum((n - 1) * step for n, step in zip(tensor.dim, tensor.stride, strict=True))
    raw = (ctypes.c_ubyte * (size * dtype.itemsize)).from_address(address)
    strides = [step * dtype.itemsize for step in tensor.stride]
    return np.lib.stride_tricks.as_strided(np.frombuffer(raw, dtype), tensor.dim, strides)
