#!/usr/bin/env python3
"""Run this once on a machine with a GPU: it compares the GPU with the CPU and writes a report.

    pip install -e '.[gpu]' && python tools/gpu_selftest.py               the first GPU
    python tools/gpu_selftest.py --gpu 1 --report mine.json               another one
    python tools/gpu_selftest.py --quick                                  speeds of one image only
    python tools/gpu_selftest.py --only resnet50                          what has this in its name

It executes all reference cases of Caffe that the tests have, every update rule, short trainings of
LeNet, from memory and from an LMDB, with blobs stored as float32, float16 and bfloat16, by our
kernels and by cuDNN where that loads, with exact products and with TF32, launched one by one and as
a CUDA graph; one iteration of GoogLeNet and ResNet-50 against the CPU; JPEGs decoded on the device
where nvImageCodec is installed; where there are two GPUs, two ranks with the tree over NCCL and
with NCCL's own sum; and it measures LeNet, GoogLeNet and ResNet-50 beside what the device could do
at best. Send the report to the maintainers: the code was developed without a GPU, so yours may be
the first to run it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pycaffe_fire as caffe  # noqa: E402
from pycaffe_fire import Net, schema  # noqa: E402
from pycaffe_fire.backend import cpu_backend  # noqa: E402
from pycaffe_fire.backend.base import Backend  # noqa: E402
from pycaffe_fire.backend.choice import ON_GPU, TF32, GpuOptions, gpu_backend  # noqa: E402
from pycaffe_fire.backend.numpy import NumPyBackend  # noqa: E402
from pycaffe_fire.backend.plans import Segment  # noqa: E402
from pycaffe_fire.data.datum import encode_datum, image_datum  # noqa: E402
from pycaffe_fire.data.image import encode_image  # noqa: E402
from pycaffe_fire.data.writer import DatabaseWriter  # noqa: E402
from pycaffe_fire.errors import FireError  # noqa: E402
from pycaffe_fire.layers import Context  # noqa: E402
from pycaffe_fire.net.graph import filter_net  # noqa: E402
from pycaffe_fire.net.summary import facts  # noqa: E402
from pycaffe_fire.net.synthetic import with_synthetic_data  # noqa: E402
from pycaffe_fire.solver import Solver, SolverOptions  # noqa: E402
from tests.solver.rule_cases import CASES, rule_of  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "layers"
SOLVER = (
    'base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005 random_seed: 1 '
    "snapshot_after_train: false"
)
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # of one number, relative
TF32_ROUNDING = 2.0**-11
TYPES = {"float16": schema.FLOAT16, "bfloat16": schema.BFLOAT16}
Check = tuple[str, Callable[[], None]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, default=0, help="which GPU (default: 0)")
    parser.add_argument("--report", type=Path, default=Path("gpu_selftest.json"))
    parser.add_argument("--quick", action="store_true", help="measure with one image, once")
    parser.add_argument("--only", metavar="TEXT", default="", help="what has this in its name")
    options = parser.parse_args()
    try:
        engines = Engines.of(options.gpu)
    except FireError as error:
        sys.exit(f"gpu_selftest: {error}")
    report = Report(engines)
    for name, check in (*checks(engines), *checks_of_ranks(engines.ours)):
        if options.only in name:
            report.run(name, check)
    for name, timing in timings(engines, options.quick):
        if options.only in name:
            report.measure(name, timing)
    report.finish(options.report)
    return 1 if report.failures else 0


class Engines(NamedTuple):
    """One device, as it computes with our kernels, and with other libraries where those load."""

    ours: Any
    ours_tf32: Any = None
    cudnn: Any = None
    cudnn_tf32: Any = None
    jpeg: Any = None  # decodes images, too
    missing: tuple[str, ...] = ()  # why there is no more

    @classmethod
    def of(cls, device: int) -> Engines:
        ours = {
            "ours": gpu_backend(device, GpuOptions(cudnn=False)),
            "ours_tf32": gpu_backend(device, GpuOptions(cudnn=False, math=TF32)),
        }
        more = {
            "cudnn": GpuOptions(cudnn=True),
            "cudnn_tf32": GpuOptions(cudnn=True, math=TF32),
            "jpeg": GpuOptions(cudnn=False, jpeg=ON_GPU),
        }
        found, missing = {}, []
        for name, options in more.items():
            try:
                found[name] = gpu_backend(device, options)
            except FireError as error:
                missing.append(str(error))
        return cls(**ours, **found, missing=tuple(dict.fromkeys(missing)))

    @property
    def measured(self) -> dict[str, Any]:
        """What is measured, by name."""
        every = {
            "our kernels": self.ours, "our kernels, TF32": self.ours_tf32, "cuDNN": self.cudnn,
            "cuDNN, TF32": self.cudnn_tf32,
        }  # fmt: skip
        return {name: backend for name, backend in every.items() if backend is not None}


class Report:
    """What was tried and what came of it: on the screen, and as JSON in a file."""

    def __init__(self, engines: Engines) -> None:
        gpu = engines.ours
        runtime = gpu.xp.cuda.runtime
        properties = runtime.getDeviceProperties(gpu.device)
        plain = {k: v.decode() if isinstance(v, bytes) else v for k, v in properties.items()}
        best = engines.cudnn or gpu
        self.about = {
            "time": time.strftime("%Y-%m-%d %H:%M"), "python": platform.python_version(),
            "numpy": np.__version__, "platform": platform.platform(), "cupy": gpu.xp.__version__,
            "device": best.describe(), "missing": list(engines.missing),
            "driver": runtime.driverGetVersion(), "runtime": runtime.runtimeGetVersion(),
            "properties": {k: v for k, v in plain.items() if isinstance(v, (int, str))},
        }  # fmt: skip
        self.checks: list[dict[str, str]] = []
        self.timings: dict[str, dict[str, Any]] = {}
        print(f"pycaffe_fire GPU self-test: {best.describe()}", *engines.missing, sep="\n")

    @property
    def failures(self) -> int:
        return sum("error" in check for check in self.checks)

    def run(self, name: str, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception as error:
            text = f"{type(error).__name__}: {str(error).strip()[:600]}"
            self.checks.append({"name": name, "error": text, "trace": traceback.format_exc()})
            print(f"FAILED  {name}: {text}", flush=True)
        else:
            self.checks.append({"name": name})
            print(f"ok      {name}", flush=True)

    def measure(self, name: str, timing: Callable[[], dict[str, Any]]) -> None:
        try:
            figures = timing()
        except Exception as error:
            figures = {"not measured": f"{type(error).__name__}: {error}"}
        self.timings[name] = figures
        print(f"{name}: {', '.join(f'{k} {v}' for k, v in figures.items())}", flush=True)

    def finish(self, path: Path) -> None:
        passed = len(self.checks) - self.failures
        whole = {"about": self.about, "passed": passed, "failed": self.failures,
                 "checks": self.checks, "timings": self.timings}  # fmt: skip
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(whole, indent=1) + "\n")
        partial.replace(path)
        print(f"{passed} checks passed, {self.failures} failed. The report is in {path}")


def checks(engines: Engines) -> Iterator[Check]:
    gpu, cudnn = engines.ours, engines.cudnn
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
    yield "LeNet from an LMDB, 20 iterations", partial(training_from_data, gpu)
    yield "repeated training, bit for bit", partial(repeated, gpu)
    yield "CUDA graph, bit for bit", partial(repeated, gpu, cuda_graph=True)
    for kind in ROUNDING:
        yield f"LeNet, 20 iterations, {kind}", partial(rounded_training, gpu, kind)
        yield f"CUDA graph, {kind}, bit for bit", partial(repeated, gpu, kind, cuda_graph=True)
    yield "loss scale that adapts", partial(adapting, gpu)
    yield "LeNet, 20 iterations, TF32", partial(training, engines.ours_tf32, 1, 64 * TF32_ROUNDING)
    if engines.jpeg is not None:
        yield "JPEGs decoded on the device", partial(decoded_jpegs, engines.jpeg)
    if cudnn is not None:
        for path in cases:
            if path.stem.startswith(("conv", "deconv")):
                yield f"cuDNN, layer {path.stem}", partial(reference_case, path, cudnn)
        yield "cuDNN, LeNet, 20 iterations", partial(training, cudnn, leaves=1)
        yield "cuDNN, LeNet from an LMDB", partial(training_from_data, cudnn)
        yield "cuDNN, CUDA graph, bit for bit", partial(repeated, cudnn, cuda_graph=True)
        for kind in ROUNDING:
            yield f"cuDNN, LeNet, {kind}", partial(rounded_training, cudnn, kind)
        tf32 = partial(training, engines.cudnn_tf32, 1, 64 * TF32_ROUNDING)
        yield "cuDNN, LeNet, 20 iterations, TF32", tf32
    for name, backend in (("our kernels", gpu), ("cuDNN", cudnn)):
        for model in ("googlenet", "resnet50"):
            if backend is not None:
                yield f"{model}, one iteration, {name}", partial(one_iteration, backend, model)


def checks_of_ranks(gpu: Any) -> Iterator[Check]:
    if gpu.xp.cuda.runtime.getDeviceCount() > 1:
        yield "two ranks, tree over NCCL, bit for bit", partial(two_ranks, [], 0.0)
        yield "two ranks, NCCL's own sum", partial(two_ranks, ["--communicator", "nccl"], 1e-3)


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


def lenet_on_data(folder: str, jpeg: bool = False) -> Any:
    """models/lenet on an LMDB of random images, cropped, mirrored and scaled: batches take the way
    that they take in every real training, on a stream of their own."""
    rng = np.random.default_rng(0)
    with DatabaseWriter(f"{folder}/images") as database:
        for i in range(64):
            coarse = rng.integers(0, 256, (3 if jpeg else 1, 8, 8), np.uint8)
            pixels = coarse.repeat(4, axis=1).repeat(4, axis=2)
            record = encode_datum(pixels, i % 10)
            if jpeg:
                record = image_datum(encode_image(pixels, "jpg", "an image"), i % 10)
            database.put(f"{i:08}".encode(), record)
    text = (
        'layer { name: "data" type: "Data" top: "data" top: "label" data_param { '
        f'source: "{folder}/images" backend: LMDB batch_size: 16 }} '
        "transform_param { crop_size: 28 mirror: true scale: 0.00390625 } }"
    )
    made = schema.parse_text(text, schema.NetParameter())
    made.layer.extend(layer for layer in lenet().layer if layer.type != "DummyData")
    return made


def trained(
    backend: Backend, leaves: int = 1, kind: str = "float32", scale: float | None = None,
    net: Any = None, iterations: int = 20, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Weights after some iterations; `scale` is where an adaptive loss scale starts."""
    param = schema.parse_text(SOLVER, schema.SolverParameter())
    param.net_param.CopyFrom(stored_as(net or lenet(), kind))
    if scale is not None:
        param.net_param.global_grad_scale = scale
        param.net_param.global_grad_scale_adaptive = True
    solver = Solver(param, SolverOptions(backend, param.random_seed, leaves=leaves, **options))
    solver.step(iterations)
    weights = {
        f"{name}[{i}]": np.array(blob.data)
        for name, blobs in solver.net.params.items()
        for i, blob in enumerate(blobs)
    }
    solver.close()
    return weights


def training(gpu: Backend, leaves: int, limit: float = 1e-3) -> None:
    want, got = trained(cpu_backend(), leaves), trained(gpu, leaves)
    for name, values in want.items():
        near(got[name], values, name, limit)


def one_iteration(gpu: Backend, model: str) -> None:
    """What an update changes in all weights, of two images. BatchNorm over so few makes much of
    rounding: two ways of computing on the CPU say how much."""
    net = synthetic(model, 2)
    start = trained(cpu_backend(), net=net, iterations=0)
    backends = (cpu_backend(), NumPyBackend(), gpu)
    want, other, got = (trained(it, net=net, iterations=1) for it in backends)
    for name, values in want.items():
        change = values - start[name]
        if change.any():
            rounding = float(np.linalg.norm(other[name] - values) / np.linalg.norm(change))
            near(got[name] - start[name], change, name, max(0.02, 4 * rounding))


def training_from_data(gpu: Backend) -> None:
    with tempfile.TemporaryDirectory() as folder:
        net = lenet_on_data(folder)
        want, got = trained(cpu_backend(), net=net), trained(gpu, net=net)
    for name, values in want.items():
        near(got[name], values, name, 1e-3)


def decoded_jpegs(gpu: Backend) -> None:
    """Batches of them are, in the mean, one level or less away from the CPU's pixels."""
    with tempfile.TemporaryDirectory() as folder:
        param = lenet_on_data(folder, jpeg=True)
        del param.layer[1:]
        for phase in (schema.TRAIN, schema.TEST):
            found = []
            for backend in (cpu_backend(), gpu):
                net = Net(param, phase, backend=backend, context=Context(1))
                net.forward()
                found.append([np.array(net.blobs[name].data) for name in ("data", "label")])
                net.close()
            (want, labels), (got, others) = found
            np.testing.assert_array_equal(others, labels)
            far = float(np.abs(got - want).mean()) * 256
            if not far <= 1:
                raise AssertionError(f"pixels are off by {far:.2f} levels in the mean")


def two_ranks(flags: list[str], limit: float) -> None:
    """Two processes with a GPU each against one with two leaves."""
    with tempfile.TemporaryDirectory() as folder:
        net = Path(folder, "net.prototxt")
        net.write_text(str(lenet()))
        alone = fire_trained(Path(folder), "alone", 1, ["--gpu", "0"])
        both = fire_trained(Path(folder), "both", 2, ["--gpu", "0,1", *flags])
    for i, (got, want) in enumerate(zip(both, alone, strict=True)):
        near(got, want, f"weights {i}", limit)


def fire_train(ranks: int) -> list[str]:
    """The command that trains on so many ranks."""
    return [sys.executable, "-m", "pycaffe_fire.cli.fire_train", "-n", str(ranks)]


def fire_trained(folder: Path, name: str, ranks: int, flags: list[str]) -> list[Any]:
    """Weights after five iterations of two leaves by fire_train with these flags."""
    solver = folder / f"{name}.prototxt"
    solver.write_text(
        f'net: "{folder}/net.prototxt" snapshot_prefix: "{folder}/{name}" max_iter: 5 '
        f"{SOLVER.replace('false', 'true')}"
    )
    command = [*fire_train(ranks), "--solver", str(solver), "--leaves", "2", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    layers = schema.read_weights(f"{folder}/{name}_iter_5.caffemodel")
    return [blob for layer in layers for blob in layer.blobs]


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


# Speeds, beside what the device could do at best.

BATCHES = {"lenet": 256, "googlenet": 32, "resnet50": 32}
PASSES = 5  # over a blob at least: written and read twice, its gradient written and read once


def timings(engines: Engines, quick: bool) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for model, usual in BATCHES.items():
        batch, iterations = (1, 1) if quick else (usual, 20)
        for engine, backend in engines.measured.items():
            tf32 = engine.endswith("TF32")
            for kind in ("float32",) if tf32 else ("float32", *ROUNDING):
                for cuda_graph in (False, True):
                    name = f"{model}, batch {batch}, {engine}, {kind}"
                    name += ", CUDA graph" if cuda_graph else ""
                    units = "tf32" if tf32 else kind
                    yield (
                        name,
                        partial(timing, backend, model, batch, kind, units, cuda_graph, iterations),
                    )


def timing(
    gpu: Any, model: str, batch: int, kind: str, units: str, cuda_graph: bool, iterations: int
) -> dict[str, Any]:
    """Of a training; `units` say what multiplies."""
    param = schema.parse_text(SOLVER, schema.SolverParameter())
    param.net_param.CopyFrom(stored_as(synthetic(model, batch), kind))
    solver = Solver(param, SolverOptions(gpu, param.random_seed, cuda_graph=cuda_graph))
    solver.step(3)  # plans, allocates, and records a graph
    gpu.compute.synchronize()
    began = time.perf_counter()
    solver.step(iterations)
    queued = time.perf_counter() - began
    gpu.compute.synchronize()
    seconds = (time.perf_counter() - began) / iterations
    net = facts(solver.net)
    operations = 3 * 2 * net.multiply_adds
    moved = PASSES * sum(layer.memory for layer in net.layers)
    solver.close()
    return {
        "images/s": round(batch / seconds), "ms": round(1e3 * seconds, 2),
        "ms of Python": round(1e3 * queued / iterations, 2),
        "TFLOP/s": round(1e-12 * operations / seconds, 2),
        "GB/s": round(1e-9 * moved / seconds, 1), **roofline(gpu, units, batch, operations, moved),
    }  # fmt: skip


def roofline(gpu: Any, units: str, batch: int, operations: float, moved: float) -> dict[str, Any]:
    """What the device could do at best; nothing where it does not say how fast it is."""
    speeds = {"arithmetic": peak(gpu, units), "memory": bandwidth(gpu)}
    if not all(speeds.values()):
        return {}
    best = {"arithmetic": operations / speeds["arithmetic"], "memory": moved / speeds["memory"]}
    bound = max(best, key=lambda name: best[name])
    return {"images/s at best": round(batch / best[bound]), "bound by": bound}


def synthetic(model: str, batch: int) -> Any:
    if model == "lenet":
        return lenet(batch)
    net = schema.read_net(str(ROOT / "models" / model / "train_val.prototxt"))
    net.state.phase = schema.TRAIN
    made = with_synthetic_data(filter_net(net))
    for layer in made.layer:
        for shape in layer.dummy_data_param.shape:
            shape.dim[0] = batch
    return made


# Multiplications with addition in a cycle of a multiprocessor's tensor cores, of 16-bit numbers, as
# NVIDIA's papers on the architectures give them; of TF32 half as many.
TENSOR_CORES = {(7, 5): 512, (8, 0): 1024, (8, 6): 512, (8, 9): 512, (9, 0): 2048, (10, 0): 4096}


def peak(gpu: Any, units: str) -> float:
    """Operations per second: two for each multiplication with addition, of which a multiprocessor
    does 64 or 128 of float32 numbers in every cycle, and more with its tensor cores."""
    about = gpu.xp.cuda.runtime.getDeviceProperties(gpu.device)
    version = about["major"], about["minor"]
    plain = 64 if version in ((7, 5), (8, 0)) else 128
    wide = TENSOR_CORES.get(version, 512) / (2 if units == "tf32" else 1)
    if units == "tf32" and version < (8, 0):
        wide = plain  # tensor cores know no TF32 there
    each = plain if units == "float32" else wide
    return float(2e3 * each * about["multiProcessorCount"] * about.get("clockRate", 0))


def bandwidth(gpu: Any) -> float:
    """Bytes per second of the device's memory, which moves two words in a cycle."""
    about = gpu.xp.cuda.runtime.getDeviceProperties(gpu.device)
    return float(2e3 * about.get("memoryClockRate", 0) * about.get("memoryBusWidth", 0) / 8)


if __name__ == "__main__":
    sys.exit(main())
