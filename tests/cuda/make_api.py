"""Writes cupy_api.json: what CuPy offers. Run it with CuPy and its CUDA libraries installed.

    pip install "cupy-cuda13x[ctk]" nvidia-nccl-cu13 && python tests/cuda/make_api.py

A device is not needed. Signatures of compiled functions stand in the first line of their text.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

MODULES = ("cuda", "cuda.cublas", "cuda.runtime", "cuda.device", "cuda.nccl", "linalg", "random")
CLASSES = (
    *("ndarray", "cuda.Stream", "cuda.Event", "cuda.Device", "RawModule"),
    "cuda.nccl.NcclCommunicator",
)


def main() -> None:
    cupy, cupyx = importlib.import_module("cupy"), importlib.import_module("cupyx")
    api: dict[str, Any] = {"version": cupy.__version__, "top": names(cupy), "cupyx": names(cupyx)}
    signatures = {name: signature(getattr(cupy, name)) for name in api["top"]}
    signatures["cupyx.empty_pinned"] = signature(cupyx.empty_pinned)
    for path in MODULES:
        module = importlib.import_module(f"cupy.{path}") if path != "cuda.cublas" else cublas()
        api[path] = names(module)
        signatures |= {f"{path}.{n}": signature(getattr(module, n)) for n in api[path]}
    # Loaded when first asked for, so dir() does not show them.
    api["cuda"] += [
        n for n in ("cublas", "nccl") if hasattr(importlib.import_module("cupy.cuda"), n)
    ]
    for path in CLASSES:
        kind = find(cupy, path)
        api[path] = names(kind)
        signatures |= {f"{path}.{n}": signature(getattr(kind, n)) for n in api[path]}
        signatures[path] = signature(kind)
    api["signatures"] = {name: text for name, text in sorted(signatures.items()) if text}
    target = Path(__file__).parent / "cupy_api.json"
    target.write_text(json.dumps(api, indent=0) + "\n")


def cublas() -> Any:
    return importlib.import_module("cupy.cuda").cublas


def find(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def names(thing: Any) -> list[str]:
    return sorted(name for name in dir(thing) if not name.startswith("_"))


def signature(function: Any) -> str:
    try:
        return re.sub(r" at 0x\w+", "", str(inspect.signature(function)))
    except (TypeError, ValueError):
        first = (getattr(function, "__doc__", "") or "").strip().splitlines()[:1]
        found = re.match(r"[\w.]+(\(.*\))", first[0]) if first else None
        return found.group(1) if found else ""


if __name__ == "__main__":
    main()
