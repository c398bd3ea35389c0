"""One rank of a job on stand-ins for CuPy and NCCL: fire_train with this file's arguments."""

from __future__ import annotations

import sys
import types
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "cuda"), str(TESTS / "parallel")]

import fake_cupy  # noqa: E402
import queued_nccl  # noqa: E402
from mpi4py import MPI  # noqa: E402

from pycaffe_fire.cli import fire_train  # noqa: E402


class AtOnce:
    """Streams of the stand-in for CuPy do their work when it is queued."""

    def __getitem__(self, address: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(enqueue=lambda step: step())


if __name__ == "__main__":
    fake_cupy.install(sys.modules)
    fake_cupy.cuda.Event.done = True
    sys.modules["cupy.cuda.nccl"] = queued_nccl
    queued_nccl.streams, queued_nccl.comm = AtOnce(), MPI.COMM_WORLD
    sys.exit(fire_train.main(sys.argv[1:]))
