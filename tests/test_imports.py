"""What a command needs before it knows what to do is loaded quickly: nothing large in vain."""

from __future__ import annotations

import subprocess
import sys

LATER = (
    "h5py", "matplotlib", "cupy", "mpi4py", "plyvel", "rich.progress", "starlette", "uvicorn",
    "onnx", "onnxruntime",
)  # fmt: skip


def test_large_libraries_are_loaded_where_they_are_used() -> None:
    code = f"import sys, pycaffe_fire; print([name for name in {LATER} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"
