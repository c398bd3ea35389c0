"""Memory stays where it is, however often a net runs and its blobs are looked at."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from tests.pycaffe.cases import DEPLOY

STATUS = Path("/proc/self/statm")
PAGE = 4096
PASSES, LEAK = 4000, 100  # bytes that each pass might leave behind


def resident() -> int:
    gc.collect()
    return int(STATUS.read_text().split()[1]) * PAGE


@pytest.mark.skipif(not STATUS.exists(), reason="resident memory is read from /proc")
def test_memory_of_many_forwards() -> None:
    # One thread: on a busy machine threads that wait for each other take very long.
    net = caffe.Net(
        schema.parse_text(DEPLOY, schema.NetParameter()), caffe.TEST, backend=cpu_backend(1)
    )
    image = np.random.RandomState(0).rand(4, 2, 6, 6).astype(np.float32)

    def run(times: int) -> float:
        total = 0.0
        for _ in range(times):
            out = net.forward(blobs=["conv"], data=image)
            total += float(out["prob"][0, 0]) + float(net.blobs["conv"].data[0, 0, 0, 0])
            total += float(net.blobs["ip"].diff[0, 0]) + float(net.params["conv"][0].data.sum())
        return total

    def growth() -> int:
        before = resident()
        run(PASSES)
        return resident() - before

    # A leak grows every time. Once may be due to pages of other tests that the kernel had put away.
    run(1000)
    assert any(growth() < PASSES * LEAK for _ in range(4))
