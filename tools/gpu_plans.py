#!/usr/bin/env python3
"""What cuDNN will do with the convolutions of a net, on a GPU that need not be there.

    python tools/gpu_plans.py                                          all models, four GPUs
    python tools/gpu_plans.py --models googlenet --devices A100 --all  every product's plan
    python tools/gpu_plans.py --models resnet50 --math tf32 --batch 64

It asks the real library (pip install nvidia-cudnn-frontend nvidia-cudnn-cu13) for the plans that a
training on such a GPU would use, with channels last for 16 bits, and maps that are parts of a
Concat's top. It needs no driver: small stand-ins for libcuda and libcublasLt are compiled where
those are missing (by cc). Engines that need a driver to be compiled at run time are left out then,
so a real GPU may use a better one. Exit status 1: cuDNN refused something.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pycaffe_fire import Net, schema  # noqa: E402
from pycaffe_fire.backend.blob import Blob  # noqa: E402
from pycaffe_fire.backend.choice import FP32, TF32  # noqa: E402
from pycaffe_fire.backend.cuda import cudnn as engine  # noqa: E402
from pycaffe_fire.backend.numpy import NumPyBackend  # noqa: E402
from pycaffe_fire.backend.plans import JoinPlan, WeightedPlan, Window  # noqa: E402
from pycaffe_fire.backend.tensor import FLOAT32  # noqa: E402
from pycaffe_fire.net.graph import filter_net  # noqa: E402
from pycaffe_fire.net.synthetic import with_synthetic_data  # noqa: E402

AMPERE = {
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536, "multiProcessorCount": 108, "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 166912,
    "reservedSharedMemoryPerBlock": 1024, "oversizedSharedMemoryPerBlock": 0,
    "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "pciDeviceId": 0x20B010DE, "isTccDriver": 0, "supportCoopLaunch": 1,
    "totalGlobalMem": 42949672960, "smClockRateKHz": 1410000, "memClockRateKHz": 1215000,
    "memoryBusWidth": 5120, "l2CacheSize": 41943040, "cudaDeviceId": 0, "deviceVer": 800,
    "driverVer": 13000, "deviceName": "NVIDIA A100-SXM4-40GB",
}  # fmt: skip
DEVICES: dict[str, dict[str, Any]] = {
    "A100": AMPERE,
    "H100": AMPERE | {
        "deviceVer": 900, "multiProcessorCount": 132, "maxSharedMemoryPerBlockOptin": 232448,
        "l2CacheSize": 52428800, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000,
        "totalGlobalMem": 85899345920, "deviceName": "NVIDIA H100 80GB HBM3",
        "pciDeviceId": 0x233010DE,
    },
    "RTX4090": AMPERE | {
        "deviceVer": 890, "multiProcessorCount": 128, "maxSharedMemoryPerBlockOptin": 101376,
        "l2CacheSize": 75497472, "maxCtasPerSM": 24, "maxThreadsPerSM": 1536,
        "smClockRateKHz": 2520000, "memClockRateKHz": 10501000, "memoryBusWidth": 384,
        "totalGlobalMem": 25769803776, "deviceName": "NVIDIA GeForce RTX 4090",
        "pciDeviceId": 0x268410DE,
    },
    "T4": AMPERE | {
        "deviceVer": 750, "multiProcessorCount": 40, "maxSharedMemoryPerBlockOptin": 65536,
        "l2CacheSize": 4194304, "maxCtasPerSM": 16, "maxThreadsPerSM": 1024,
        "smClockRateKHz": 1590000, "memClockRateKHz": 5001000, "memoryBusWidth": 256,
        "totalGlobalMem": 15843721216, "deviceName": "Tesla T4", "pciDeviceId": 0x1EB810DE,
    },
}  # fmt: skip

# What cuDNN takes from libraries that are missing here; every call answers with this number.
NO_DEVICE, NOT_INITIALIZED = 100, 1
DRIVER = (
    "cuGetErrorString cuModuleGetFunction cuModuleLoadData cuModuleUnload cuTensorMapEncodeIm2col "
    "cuTensorMapEncodeTiled cuGetErrorName cuCtxGetCurrent cuCtxGetLimit cuCtxPopCurrent "
    "cuCtxPushCurrent cuStreamGetCtx cuLinkCreate cuLinkAddData cuLinkComplete cuLinkDestroy "
    "cuLaunchCooperativeKernel cuDeviceGet cuLibraryLoadData cuLibraryLoadFromFile "
    "cuLibraryGetKernel cuLibraryUnload cuKernelSetAttribute cuKernelGetAttribute "
    "cuKernelGetFunction cuOccupancyMaxPotentialClusterSize cuInit cuDriverGetVersion "
    "cuDeviceGetCount cuGetProcAddress cuGetProcAddress_v2 cuModuleGetGlobal_v2 cuLaunchKernel "
    "cuLaunchKernelEx cuFuncSetAttribute cuFuncGetAttribute "
    "cuOccupancyMaxActiveBlocksPerMultiprocessor"
)
LT = "cublasLt"
LT_CALLS = (
    "Create Destroy Matmul MatmulDescCreate MatmulDescDestroy MatmulDescSetAttribute "
    "MatmulAlgoGetHeuristic MatrixLayoutCreate MatrixLayoutDestroy MatrixLayoutSetAttribute "
    "MatmulPreferenceCreate MatmulPreferenceDestroy MatmulPreferenceSetAttribute MatmulAlgoCheck "
    "MatmulAlgoConfigGetAttribute MatmulAlgoConfigSetAttribute MatmulAlgoInit MatmulAlgoGetIds "
    "MatmulAlgoCapGetAttribute"
)
LT_VERSIONS = (
    "#include <stddef.h>\nsize_t cublasLtGetVersion() { return 130100; }\n"
    "size_t cublasLtGetCudartVersion() { return 13010; }\n"
)


class Convolution(NamedTuple):
    """One layer's, as a training net has it."""

    images: tuple[int, ...]
    weights: tuple[int, ...]
    maps: tuple[int, ...]
    window: Window
    bias: bool
    relu: float | None
    transposed: bool
    part_of: int = 0  # channels of the blob that its maps are a part of, if a Concat follows


class Row(NamedTuple):
    device: str
    model: str
    batch: int
    product: engine.Product
    plan: engine.CudnnPlan | None
    notes: tuple[str, ...]


def main() -> int:
    options = _parser().parse_args()
    stand_in_for_missing_libraries()
    cudnn = engine.load()
    refused = 0
    print(f"cuDNN {cudnn.backend_version_string()}, math {options.math}, {options.precision}")
    for device in options.devices.split(","):
        properties = cudnn.create_device_properties(json.dumps(DEVICES[device]))
        planner = engine.Planner(cudnn, options.math == TF32, properties=properties)
        for model in options.models.split(","):
            for batch in options.batch.split(","):
                found = list(rows(planner, device, model, int(batch), options.precision))
                refused += sum(row.plan is None for row in found)
                print(_summary(found), flush=True)
                for row in found if options.all else [r for r in found if r.plan is None]:
                    print(f"  {_line(row)}")
    print(f"{refused} products refused" if refused else "cuDNN has a plan for every product")
    return 1 if refused else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    models = sorted(path.parent.name for path in ROOT.glob("models/*/train_val.prototxt"))
    flag = parser.add_argument
    flag("--models", default=",".join(models), help="names in models/, with commas")
    flag("--devices", default=",".join(DEVICES), help=f"some of {', '.join(DEVICES)}")
    flag("--batch", default="32,256", help="batch sizes, with commas (default: 32,256)")
    flag("--math", choices=[FP32, TF32], default=FP32)
    flag("--precision", choices=["float32", "float16", "bfloat16"], default="float32")
    flag("--all", action="store_true", help="show every product's plan")
    return parser


def stand_in_for_missing_libraries() -> None:
    """Load libcuda and libcublasLt, or libraries of the same names that refuse everything."""
    lt = " ".join(LT + name for name in LT_CALLS.split())
    for name, calls, answer, text in (
        ("libcuda.so.1", DRIVER, NO_DEVICE, ""),
        ("libcublasLt.so.13", lt, NOT_INITIALIZED, LT_VERSIONS),
    ):
        try:
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
        except OSError:
            body = "".join(f"int {call}() {{ return {answer}; }}\n" for call in calls.split())
            with tempfile.TemporaryDirectory() as folder:
                source, library = Path(folder, "stub.c"), Path(folder, name)
                source.write_text(text + body)
                subprocess.run(
                    ["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", source, "-o", library],
                    check=True,
                )
                ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


class Recording(NumPyBackend):
    """Notes every convolution of a net that is made on it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, Convolution] = {}  # by the blob that it writes

    def convolution(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window, groups: int,
        relu: float | None = None, transposed: bool = False,
    ) -> WeightedPlan:  # fmt: skip
        images, maps = (y, x) if transposed else (x, y)
        shapes = (tuple(images.shape), tuple(w.shape), tuple(maps.shape))
        made = Convolution(*shapes, window, b is not None, relu, transposed)
        self.found[id(y)] = made
        return super().convolution(x, w, b, y, window, groups, relu, transposed)

    def concat(self, xs: Sequence[Blob], y: Blob, axis: int) -> JoinPlan:
        for x in xs if axis == 1 else ():
            if id(x) in self.found and not self.found[id(x)].transposed:
                self.found[id(x)] = self.found[id(x)]._replace(part_of=y.shape[1])
        return super().concat(xs, y, axis)


@cache
def convolutions(model: str, batch: int) -> list[Convolution]:
    """Of a model's training net, each kind once; weights are left as zeros."""
    net = schema.read_net(str(ROOT / "models" / model / "train_val.prototxt"))
    net.state.phase = schema.TRAIN
    image = {"lenet": (1, 28, 28)}.get(model) or ((3, 32, 32) if "cifar" in model else None)
    made = with_synthetic_data(filter_net(net), image)
    for layer in made.layer:
        for shape in layer.dummy_data_param.shape:
            shape.dim[0] = batch
        for field in ("convolution_param", "inner_product_param"):
            if layer.HasField(field):
                getattr(layer, field).ClearField("weight_filler")
    backend = Recording()
    Net(made, schema.TRAIN, backend=backend)
    return list(dict.fromkeys(backend.found.values()))


def rows(planner: engine.Planner, device: str, model: str, batch: int, kind: str) -> Iterator[Row]:
    for conv in convolutions(model, batch):
        last = kind != FLOAT32  # as trainings in 16 bits have it
        pitch = conv.part_of * (1 if last else prod(conv.maps[2:]))
        shapes = (conv.images, conv.weights, conv.maps)
        made = engine.products(kind, *shapes, conv.window, last, pitch)
        for product in made.values():
            yield row(planner, device, model, batch, product)
        if not conv.transposed and (conv.bias or conv.relu is not None):
            product = engine.fused(made[engine.FORWARD], conv.bias, conv.relu)
            found = row(planner, device, model, batch, product)
            if found.plan is not None:  # else a pass of our own follows the plain product
                yield found


def row(
    planner: engine.Planner, device: str, model: str, batch: int, product: engine.Product
) -> Row:
    try:
        plan = planner.plan(product)
    except engine.Refused:
        return Row(device, model, batch, product, None, ())
    return Row(device, model, batch, product, plan, planner.notes_of(plan))


def _summary(found: Sequence[Row]) -> str:
    planned = [r for r in found if r.plan is not None]
    largest = max((r.plan.workspace for r in planned if r.plan), default=0)
    fused = sum(r.product.fused for r in planned)
    notes = sorted({note for r in planned for note in r.notes})
    first = found[0]
    return (
        f"{first.device:8} {first.model:16} batch {first.batch:3}: {len(planned)} of {len(found)} "
        f"products planned, {fused} with bias or ReLU, workspace up to {largest / 2**20:.1f} MiB, "
        f"notes: {', '.join(notes) or 'none'}"
    )


def _line(row: Row) -> str:
    product = row.product
    shapes = " ".join("x".join(map(str, s)) for s in (product.images, product.weights))
    also = f"{' + bias' if product.bias else ''}{' + ReLU' if product.relu is not None else ''}"
    what = f"{product.direction}{also}, {shapes}"
    if row.plan is None:
        return f"{what}: refused"
    size = f"{row.plan.workspace / 2**20:.1f} MiB"
    return f"{what}: {row.plan.engine}, {size}, {', '.join(row.notes) or 'no notes'}"


if __name__ == "__main__":
    sys.exit(main())
