"""Finding out whether there is a GPU that works, and why not."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from ...errors import BackendError
from ...installation import install_hint


@dataclass(frozen=True)
class Found:
    """Devices that can be used, or the reason why there are none."""

    cupy: Any
    devices: int
    reason: str


def count() -> Found:
    """Import CuPy and count devices, which leaves no context on any of them; never raises."""
    try:
        cupy = importlib.import_module("cupy")
    except Exception as error:  # a broken installation fails in many ways
        how = f"{install_hint('gpu')}, or for older drivers {install_hint('gpu-cuda12')}"
        return Found(None, 0, f"CuPy cannot be imported ({_short(error)}); {how}")
    try:
        devices = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:
        return Found(None, 0, f"no usable CUDA driver or device ({_short(error)})")
    if not devices:
        return Found(None, 0, "there is a CUDA driver, but no device")
    return Found(cupy, devices, "")


def probe(device: int = 0) -> Found:
    """Run a trial kernel on a device; never raises.

    CuPy imports without a driver, so only a kernel that ran proves anything.
    """
    found = count()
    cupy, devices = found.cupy, found.devices
    if cupy is None:
        return found
    if not 0 <= device < devices:
        return Found(None, devices, f"there is no device {device}; devices: 0 to {devices - 1}")
    try:
        with cupy.cuda.Device(device):
            if float((cupy.arange(4, dtype="float32") + 1).sum()) != 10:
                raise ValueError("a trial sum is wrong")
    except Exception as error:
        return Found(None, devices, f"a trial kernel failed on device {device} ({_short(error)})")
    return Found(cupy, devices, "")


def open_device(device: int) -> Any:
    """The cupy module, with a device proven to work; else a BackendError with the reason."""
    found = probe(device)
    if found.cupy is None:
        raise BackendError(f"cannot run on GPU {device}: {found.reason}. Leave out --gpu, or say "
                           "--gpu auto, to run on the CPU")  # fmt: skip
    return found.cupy


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
