"""One rank of a job on stand-ins for CuPy and NCCL: fire_train with this file's arguments."""

from __future__ import annotations

import sys
import types

from mpi4py import MPI

from pycaffe_fire.cli import fire_train
from tests.cuda import fake_cupy
from tests.parallel import queued_nccl


class AtOnce:
    """Streams of the stand-in for CuPy do their work when it is queued."""

    def __getitem__(self, address: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(enqueue=lambda step: step())


if __name__ == "__main__":
    fake_cupy.install(sys.modules)
    sys.modules["cupy.cuda.nccl"] = queued_nccl
    vars(queued_nccl).update(streams=AtOnce(), comm=MPI.COMM_WORLD)
    sys.exit(fire_train.main(sys.argv[1:]))
