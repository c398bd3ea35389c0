"""A net in one runtime, for infer.py, which starts this file for each contender.

Every runtime is handed a NumPy array and gives one back, by the calls that its users write. It
imports what it needs when it is named, so that start and memory are its own.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from timing import BenchError, Contender, Stopwatch, serve

Array = Any  # of float32


class Runtime(ABC):
    """A net of `folder` (see infer.py for its files), ready to run on `threads` threads."""

    version: str

    @abstractmethod
    def __init__(self, folder: Path, threads: int) -> None: ...

    @abstractmethod
    def __call__(self, values: Array) -> Array: ...


class Fire(Runtime):
    """Ours, through pycaffe's names."""

    def __init__(self, folder: Path, threads: int) -> None:
        import pycaffe_fire as caffe
        from pycaffe_fire.backend import cpu_backend

        self.version = caffe.__version__
        self._net = caffe.Net(
            str(folder / "net.prototxt"), caffe.TEST, weights=str(folder / "net.caffemodel"),
            backend=cpu_backend(threads),
        )  # fmt: skip
        self._input, self._output = self._net.inputs[0], self._net.outputs[0]

    def __call__(self, values: Array) -> Array:
        return self._net.forward(**{self._input: values})[self._output]


class OnnxRuntime(Runtime):
    def __init__(self, folder: Path, threads: int) -> None:
        import onnxruntime

        self.version = onnxruntime.__version__
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(
            str(folder / "net.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name

    def __call__(self, values: Array) -> Array:
        return self._session.run(None, {self._input: values})[0]


class OpenCV(Runtime):
    def __init__(self, folder: Path, threads: int) -> None:
        import cv2

        self.version = cv2.__version__
        cv2.setNumThreads(threads)
        self._net = cv2.dnn.readNetFromONNX(str(folder / "net.onnx"))

    def __call__(self, values: Array) -> Array:
        self._net.setInput(values)
        return self._net.forward()


class OpenVINO(Runtime):
    def __init__(self, folder: Path, threads: int) -> None:
        import openvino

        self.version = openvino.__version__.split("-")[0]
        core = openvino.Core()
        model = core.read_model(folder / "net.onnx")
        model.reshape(json.loads((folder / "shape.json").read_text()))
        hints = {
            "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
        }  # fmt: skip
        self._request = core.compile_model(model, "CPU", hints).create_infer_request()

    def __call__(self, values: Array) -> Array:
        return self._request.infer([values], share_inputs=True)[0]


class Torch(Runtime):
    """Eager, in PyTorch's better memory format."""

    compiled = False

    def __init__(self, folder: Path, threads: int) -> None:
        import torch
        from torch_graph import Graph

        self.version = torch.__version__.split("+")[0]
        torch.set_num_threads(threads)
        self._torch, self._run = torch, Graph(folder)
        if self.compiled:
            from torch._inductor import config

            config.freezing = True  # weights are constants, packed while compiling
            self._run = torch.compile(self._run)

    def __call__(self, values: Array) -> Array:
        torch = self._torch
        with torch.inference_mode() if not self.compiled else torch.no_grad():
            given = torch.from_numpy(values).contiguous(memory_format=torch.channels_last)
            return self._run(given).numpy()


class CompiledTorch(Torch):
    compiled = True


RUNTIMES: dict[str, type[Runtime]] = {
    "pycaffe_fire": Fire,
    "onnxruntime": OnnxRuntime,
    "OpenVINO": OpenVINO,
    "OpenCV": OpenCV,
    "torch channels_last": Torch,
    "torch.compile": CompiledTorch,
}


class Inference(Contender):
    """The commands that infer.py gives."""

    def first(self, runtime: str, folder: str, threads: int) -> dict[str, Any]:
        """Load the net, run it once and leave its scores in a file."""
        place = Path(folder)
        self._values = np.load(place / "input.npy")
        try:
            self._run = RUNTIMES[runtime](place, threads)
        except ImportError as error:
            raise BenchError(f"not installed ({error})") from None
        scores = np.array(self._run(self._values))
        output = place / f"{runtime}.npy"
        np.save(output, scores)
        return {"version": self._run.version, "output": str(output)}

    def step(self, watch: Stopwatch) -> None:
        self._run(self._values)
        watch.lap("forward")


if __name__ == "__main__":
    contender = Inference()
    serve(
        {
            "first": contender.first, "warm": contender.warm, "sample": contender.sample,
            "memory": contender.memory,
        },
        RuntimeError,
    )  # fmt: skip
