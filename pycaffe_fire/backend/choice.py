"""Which device a process uses: what `--gpu` says, and its place among the processes of its host."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cache

from ..errors import BackendError
from . import cpu_backend
from .base import Backend
from .cuda.device import count, probe
from .onednn import OneDNNBackend
from .onednn.precision_trial import speedup
from .tensor import BFLOAT16, FLOAT32

log = logging.getLogger("pycaffe_fire")

FP32, TF32 = "fp32", "tf32"  # how float32 numbers are multiplied
ON_CPU, ON_GPU = "cpu", "gpu"  # where JPEGs are decoded

# What launchers tell a process about its place on its own host.
LOCAL_RANKS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


def local_rank() -> int:
    """Which of the processes on this host we are."""
    return next((int(os.environ[name]) for name in LOCAL_RANKS if name in os.environ), 0)


@dataclass(frozen=True)
class GpuOptions:
    """How a GPU computes."""

    cudnn: bool | None = None  # None: where it loads
    math: str = FP32
    precision: str = FLOAT32  # of blobs, where the net does not say how they are stored
    jpeg: str = ON_CPU  # who decodes
    time_plans: bool = False  # of cuDNN against each other
    timed: str | None = None  # in a job of several ranks: what rank 0 knows of them

    @property
    def needing_a_gpu(self) -> list[str]:
        """The flags that mean nothing on a CPU."""
        given = {
            "--cudnn": self.cudnn, "--jpeg gpu": self.jpeg == ON_GPU,
            "--time-plans": self.time_plans,
        }  # fmt: skip
        return [flag for flag, is_given in given.items() if is_given]


def gpu_backend(device: int | None = None, options: GpuOptions | None = None) -> Backend:
    """This device, or the one that falls to this process; nets of a process share it."""
    return _gpu_backend(_own_device() if device is None else device, options or GpuOptions())


@cache
def _gpu_backend(device: int, options: GpuOptions) -> Backend:
    from .cuda import CudaBackend

    return CudaBackend(
        device, options.cudnn, options.math == TF32, options.precision, options.jpeg == ON_GPU,
        options.time_plans, options.timed,
    )  # fmt: skip


def _own_device(first: int = 0) -> int:
    """Processes on one host take its devices in turn, from this one on."""
    devices = count().devices
    return (first + local_rank()) % devices if first < devices else first


def choose_backend(
    gpu: str | None,
    threads: int | None = None,
    level: int = logging.WARNING,
    options: GpuOptions | None = None,
    first: int = 0,
) -> Backend:
    """What `--gpu` says: nothing is the CPU; a device, several ("0,2": one for each process on
    this host) or "all"; "auto" is a GPU where one works, and the CPU otherwise, which is said
    at this log level. Processes that are not given a device take them in turn from `first` on."""
    options = options or GpuOptions()
    if gpu is None:
        for flag in options.needing_a_gpu:
            raise BackendError(f"{flag} needs a GPU: say which, as in --gpu 0")
        return _cpu_backend(threads, options)
    if gpu == "auto":
        device = _own_device(first)
        found = probe(device)
        if found.cupy is None:
            for flag in options.needing_a_gpu:
                raise BackendError(f"{flag} needs a GPU: {found.reason}")
            log.log(level, "Running on the CPU: %s", found.reason)
            return _cpu_backend(threads, options)
        return gpu_backend(device, options)
    if gpu == "all":
        return gpu_backend(options=options)
    return gpu_backend(_listed_device(gpu), options)


def _cpu_backend(threads: int | None, options: GpuOptions) -> Backend:
    """The CPU with products in the precision asked for; refused where that would be slower."""
    backend = cpu_backend(threads)
    if options.precision == FLOAT32:
        return backend
    flag = f"--precision {options.precision}"
    if options.precision != BFLOAT16:
        raise BackendError(f"{flag} needs a GPU: say which, as in --gpu 0")
    if not isinstance(backend, OneDNNBackend) or not backend.library.multiplies_bf16:
        raise BackendError(
            f"{flag}: this CPU multiplies no bfloat16 (avx512_bf16 or AMX), and float32 is faster "
            f"on it; leave the flag out, or say which GPU, as in --gpu 0"
        )
    rounding = OneDNNBackend(backend.threads, BFLOAT16)
    gain = speedup(backend, rounding)
    if gain < 1:
        raise BackendError(
            f"{flag}: this CPU multiplies bfloat16, but takes {1 / gain:.1f} times as long for "
            f"convolutions as with float32; leave the flag out, or say which GPU, as in --gpu 0"
        )
    log.info("Convolutions in bfloat16 are %.1f times as fast as in float32", gain)
    return rounding


def _listed_device(gpu: str) -> int:
    if not all(part.isdecimal() for part in gpu.split(",")):
        raise BackendError(f'--gpu takes device numbers, "all" or "auto", got "{gpu}"')
    devices, rank = [int(part) for part in gpu.split(",")], local_rank()
    if rank >= len(devices):
        raise BackendError(
            f"--gpu {gpu} names {len(devices)} device(s), but process {rank} of this host needs "
            f"one too; start one process per device"
        )
    return devices[rank]
