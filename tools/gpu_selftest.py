#!/usr/bin/env python3
"""Run this once on a machine with a GPU: it compares the GPU with the CPU and writes a report.

    pip install "pycaffe_fire[gpu]" && python tools/gpu_selftest.py        the first GPU
    python tools/gpu_selftest.py --gpu 1 --report mine.txt                another one

It executes all reference cases of Caffe that the tests have, every update rule, short trainings
of LeNet on made-up images with blobs stored as float32, float16 and bfloat16, by our own kernels
and by cuDNN where that loads, launched one by one and as a CUDA graph, and measures their speed.
Send the report to the maintainers: the code was developed without a GPU, so yours may be the first
to run it.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pycaffe_fire as caffe  # noqa: E402
from pycaffe_fire import Net, schema  # noqa: E402
from pycaffe_fire.backend import cpu_backend  # noqa: E402
from pycaffe_fire.backend.base import Backend, Segment  # noqa: E402
from pycaffe_fire.backend.choice import GpuOptions, gpu_backend  # noqa: E402
from pycaffe_fire.backend.numpy import NumPyBackend  # noqa: E402
from pycaffe_fire.errors import FireError  # noqa: E402
from pycaffe_fire.solver import Solver, SolverOptions  # noqa: E402
from tests.solver.rule_cases import CASES, rule_of  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "layers"
SOLVER = (
    'base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005 random_seed: 1 '
    "snapshot_after_train: false"
)
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # of one number, relative
TYPES = {"float16": schema.FLOAT16, "bfloat16": schema.BFLOAT16}
Check = tuple[str, Callable[[], None]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, default=0, help="which GPU (default: 0)")
    parser.add_argument("--report", type=Path, default=Path("gpu_selftest.txt"))
    options = parser.parse_args()
    try:
        gpu = gpu_backend(options.gpu, GpuOptions(cudnn=False))
    except FireError as error:
        sys.exit(f"gpu_selftest: {error}")
    cudnn, reason = with_cudnn(options.gpu)
    report = Report(gpu)
    report.say("Blobs stored as: float32, float16, bfloat16")
    report.say(f"Engines: our kernels with cuBLAS, {'cuDNN' if cudnn else f'not cuDNN: {reason}'}")
    report.say("Launches: one by one, and replayed as a CUDA graph")
    for name, check in checks(gpu, cudnn):
        report.run(name, check)
    for line in timings(gpu):
        report.say(line)
    report.finish(options.report)
    return 1 if report.failures else 0


def with_cudnn(device: int) -> tuple[Backend | None, str]:
    """The same device with cuDNN, or why not."""
    try:
        return gpu_backend(device, GpuOptions(cudnn=True)), ""
    except FireError as error:
        return None, str(error)


class Report:
    """What was tried and what came of it, on the screen and in a file."""

    def __init__(self, gpu: Any) -> None:
        self.lines: list[str] = []
        self.failures = self.passed = 0
        self.say(f"pycaffe_fire GPU self-test, {time.strftime('%Y-%m-%d %H:%M')}")
        self.say(
            f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.platform()}"
        )
        self.say(f"CuPy {gpu.xp.__version__}, {gpu.describe()}")

    def say(self, line: str) -> None:
        print(line, flush=True)
        self.lines.append(line)

    def run(self, name: str, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception as error:
            self.failures += 1
            self.say(f"FAILED  {name}: {type(error).__name__}: {str(error).strip()[:600]}")
            self.lines.append(traceback.format_exc())
        else:
            self.passed += 1
            self.say(f"ok      {name}")

    def finish(self, path: Path) -> None:
        self.say(f"{self.passed} checks passed, {self.failures} failed")
        partial = path.with_suffix(".partial")
        partial.write_text("\n".join(self.lines) + "\n")
        partial.replace(path)
        print(f"The report is in {path}")


def checks(gpu: Backend, cudnn: Backend | None) -> Iterator[Check]:
    cases = sorted(GOLDEN.glob("*.npz"))
    for path in cases:
        yield f"layer {path.stem}", partial(reference_case, path, gpu)
    for path in cases:
        if "_max" not in path.stem:  # which one of several is the largest depends on rounding
            yield f"layer {path.stem}, float16", partial(reference_case, path, gpu, "float16")
    for name in CASES:
        yield f"update {name}", partial(update_rule, name, gpu)
    yield "LeNet, 20 iterations", partial(training, gpu, leaves=1)
    yield "LeNet, 20 iterations, 2 leaves", partial(training, gpu, leaves=2)
    yield "repeated training, bit for bit", partial(repeated, gpu)
    yield "CUDA graph, bit for bit", partial(repeated, gpu, cuda_graph=True)
    for kind in ROUNDING:
        yield f"LeNet, 20 iterations, {kind}", partial(rounded_training, gpu, kind)
        yield f"CUDA graph, {kind}, bit for bit", partial(repeated, gpu, kind, cuda_graph=True)
    yield "loss scale that adapts", partial(adapting, gpu)
    if cudnn is not None:
        for path in cases:
            if path.stem.startswith(("conv", "deconv")):
                yield f"cuDNN, layer {path.stem}", partial(reference_case, path, cudnn)
        yield "cuDNN, LeNet, 20 iterations", partial(training, cudnn, leaves=1)
        for kind in ROUNDING:
            yield f"cuDNN, LeNet, {kind}", partial(rounded_training, cudnn, kind)


# Layers against Caffe.


def reference_case(path: Path, gpu: Backend, kind: str = "float32") -> None:
    with np.load(path) as archive:
        case = dict(archive)
    close = close_to_float32 if kind == "float32" else partial(near, limit=limit(kind))
    param = stored_as(schema.parse_text(str(case["prototxt"]), schema.NetParameter()), kind)
    net = Net(param, getattr(caffe, str(case["phase"])), backend=gpu)
    weights = net.params.get("layer", [])
    for i, values in series(case, "bottom"):
        net.blobs[f"raw{i}" if f"raw{i}" in net.blobs else f"in{i}"].data[...] = values
    for i, values in series(case, "param"):
        weights[i].data[...] = values
    net.forward()
    for i, values in series(case, "top"):
        close(net.blobs[f"out{i}"].data, values, f"top {i}")
    if "top_diff0" not in case:
        return
    for i, values in series(case, "top_diff"):
        net.blobs[f"out{i}"].diff[...] = values
    for blob in weights:
        blob.diff[...] = 0
    net.backward()
    for i, values in series(case, "bottom_diff"):
        if values.any():
            close(net.blobs[f"in{i}"].diff, values, f"gradient of bottom {i}")
    for i, values in series(case, "param_diff"):
        close(weights[i].diff, values, f"gradient of weights {i}")


def series(case: dict[str, Any], prefix: str) -> list[tuple[int, Any]]:
    numbers = sorted(
        int(key[len(prefix) :])
        for key in case
        if key.startswith(prefix) and key[len(prefix) :].isdigit()
    )
    return [(i, case[f"{prefix}{i}"]) for i in numbers]


def stored_as(net: Any, kind: str) -> Any:
    if kind != "float32":
        net.default_forward_type = net.default_backward_type = TYPES[kind]
    return net


def near(got: Any, want: Any, what: str, limit: float) -> None:
    """The distance relative to the length: single values may differ where a maximum flips."""
    far = float(np.linalg.norm(np.reshape(got, np.shape(want)) - want))
    far /= max(float(np.linalg.norm(want)), 1e-30)
    if not far <= limit:
        raise AssertionError(f"{what}: off by {far:.2e}, more than {limit:.2e}")


def limit(kind: str) -> float:
    """How far blobs stored as `kind` may lead away."""
    return 64 * ROUNDING[kind]


def close_to_float32(got: Any, want: Any, what: str) -> None:
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    got = np.asarray(got).reshape(np.shape(want))
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * scale, err_msg=what)


# Updates and training against the CPU.


def update_rule(name: str, gpu: Backend) -> None:
    """A rule's kernel, if it has one, against its array code."""
    rule = rule_of(name)
    rng = np.random.default_rng(0)
    shape = 2 + rule.slots, 100_000
    arrays = np.abs(rng.standard_normal(shape).astype(np.float32))
    segments = [Segment(0, 70_001, 1.0, 1.0), Segment(70_016, 100_000, 2.0, 0.0)]
    found = []
    for backend in (gpu, NumPyBackend()):
        w, g, *history = (backend.xp.asarray(a.copy()) for a in arrays)
        step = backend.update(rule.formula, segments)
        step(w, g, history, 0.1, 0.01, False, 0.5, rule.numbers(1))
        found.append([a.get() if hasattr(a, "get") else a for a in (w, *history)])
    for i, (got, want) in enumerate(zip(*found, strict=True)):
        close_to_float32(got, want, f"buffer {i}")


def lenet(batch: int = 16) -> Any:
    """models/lenet on made-up images; DummyData's are the same on every backend."""
    net = schema.read_net(str(ROOT / "models" / "lenet" / "train_val.prototxt"))
    layers = [layer for layer in net.layer if layer.type != "Data"]
    text = (
        f'layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{ '
        f"shape {{ dim: {batch} dim: 1 dim: 28 dim: 28 }} shape {{ dim: {batch} }} "
        'data_filler { type: "uniform" } data_filler { value: 3 } } }'
    )
    made = schema.parse_text(text, schema.NetParameter())
    made.layer.extend(layers)
    return made


def trained(
    backend: Backend, leaves: int = 1, kind: str = "float32", scale: float | None = None,
    **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Weights after 20 iterations; `scale` is where an adaptive loss scale starts."""
    param = schema.parse_text(SOLVER, schema.SolverParameter())
    param.net_param.CopyFrom(stored_as(lenet(), kind))
    if scale is not None:
        param.net_param.global_grad_scale = scale
        param.net_param.global_grad_scale_adaptive = True
    solver = Solver(param, SolverOptions(backend, param.random_seed, leaves=leaves, **options))
    solver.step(20)
    weights = {
        f"{name}[{i}]": np.array(blob.data)
        for name, blobs in solver.net.params.items()
        for i, blob in enumerate(blobs)
    }
    solver.close()
    return weights


def training(gpu: Backend, leaves: int) -> None:
    want, got = trained(cpu_backend(), leaves), trained(gpu, leaves)
    for name, values in want.items():
        near(got[name], values, name, 1e-3)


def rounded_training(gpu: Backend, kind: str) -> None:
    want, got = trained(cpu_backend()), trained(gpu, kind=kind)
    for name, values in want.items():
        near(got[name], values, name, limit(kind))


def adapting(gpu: Backend) -> None:
    """It starts far too high, so the first updates must be skipped and later ones not."""
    first, got = trained(gpu, kind="float16", scale=2.0**23), trained(gpu, kind="float16")
    for name, values in first.items():
        if not np.isfinite(values).all() or np.array_equal(values, got[name]):
            raise AssertionError(f"{name}: not finite, or no update was skipped")


def repeated(gpu: Backend, kind: str = "float32", **options: Any) -> None:
    first, second = trained(gpu, kind=kind), trained(gpu, kind=kind, **options)
    for name, values in first.items():
        np.testing.assert_array_equal(second[name], values, err_msg=name)


# A few speeds, for the record.


def timings(gpu: Any) -> Iterator[str]:
    for kind in ("float32", *ROUNDING):
        for cuda_graph in (False, True):
            name = f"LeNet, batch 256, {kind}{', CUDA graph' if cuda_graph else ''}"
            try:
                yield f"{name}: {timing(gpu, kind, cuda_graph)}"
            except Exception as error:
                yield f"{name}: not measured: {type(error).__name__}: {error}"


def timing(gpu: Any, kind: str, cuda_graph: bool) -> str:
    param = schema.parse_text(SOLVER, schema.SolverParameter())
    param.net_param.CopyFrom(stored_as(lenet(256), kind))
    solver = Solver(param, SolverOptions(gpu, param.random_seed, cuda_graph=cuda_graph))
    solver.step(5)
    gpu.compute.synchronize()
    began = time.perf_counter()
    solver.step(50)
    queued = time.perf_counter() - began
    gpu.compute.synchronize()
    seconds = time.perf_counter() - began
    solver.close()
    return (
        f"{50 * 256 / seconds:,.0f} images/s, {20 * seconds:.2f} ms per iteration, of which "
        f"Python queued for {20 * queued:.2f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
