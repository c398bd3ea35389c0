"""Nets and solvers that are dropped give their threads and files back at once."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.writer import DatabaseWriter

NET = """
layer { name: "d" type: "Data" top: "d" top: "l" data_param { source: "db" batch_size: 4
  backend: LMDB } }
layer { name: "bn" type: "BatchNorm" bottom: "d" top: "bn" }
layer { name: "scale" type: "Scale" bottom: "bn" top: "bn" }
layer { name: "ip" type: "InnerProduct" bottom: "bn" top: "ip" inner_product_param {
  num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "l" top: "loss" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with DatabaseWriter("db") as writer:
        for i in range(20):
            writer.put(b"%02d" % i, encode_datum(np.full((1, 4, 4), i, np.uint8), i % 3))
    Path("net.prototxt").write_text(NET)
    Path("solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 5 snapshot_prefix: "s" '
        "solver_mode: CPU test_iter: 1 test_interval: 100"
    )
    gc.collect()
    gc.disable()
    yield tmp_path
    gc.enable()


@pytest.fixture
def before() -> set[threading.Thread]:
    """Threads that are here already: a test that failed before this one may keep its nets."""
    return set(threading.enumerate())


def held(folder: Path, before: set[threading.Thread]) -> list[str]:
    """Loaders' threads, and open files of the database."""
    new = set(threading.enumerate()) - before
    names = [thread.name for thread in new if thread.name.startswith("loader")]
    links = Path("/proc/self/fd")
    for link in links.iterdir() if links.is_dir() else ():
        try:
            target = os.readlink(link)
        except OSError:  # the listing's own
            continue
        names += [target] if str(folder / "db") in target else []
    return names


def test_a_net(folder: Path, before: set[threading.Thread]) -> None:
    net = caffe.Net("net.prototxt", caffe.TRAIN)
    net.forward()
    net.backward()
    assert held(folder, before)
    gone = weakref.ref(net)
    del net
    assert gone() is None and not held(folder, before)


def test_a_solver(folder: Path, before: set[threading.Thread]) -> None:
    solver = caffe.get_solver("solver.prototxt")
    solver.step(2)
    assert held(folder, before)
    gone = weakref.ref(solver)
    del solver
    assert gone() is None and not held(folder, before)
