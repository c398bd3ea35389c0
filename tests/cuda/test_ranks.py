"""Gradients of a device summed over ranks: host copies go out, sums come back."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.parallel.communicator import SerialCommunicator
from pycaffe_fire.parallel.tree import Node
from tests.cuda.cuda_nets import inception, solver_of


class Twins(SerialCommunicator):
    """Two ranks of which the other always has the same gradients and losses."""

    name = "twins"
    size = 2

    def __init__(self) -> None:
        self._flying: list[Any] = []

    def start(self, nodes: Sequence[Node]) -> None:
        assert all(type(node.sum) is np.ndarray for node in nodes)
        self._flying.append(nodes[0].sum)

    @property
    def under_way(self) -> int:  # type: ignore[override]
        return len(self._flying)

    def advance(self) -> None:
        self._flying.pop()[...] *= 2

    def gather(self, value: Any) -> list[Any]:
        return [value, value]


def trained(folder: Path, backend: Any) -> dict[str, Any]:
    solver = solver_of(inception(folder), backend, communicator=Twins(), leaves=2)
    assert ("through host memory" in solver.leaves.communicator.describe()) == (
        backend.name == "cuda"
    )
    solver.step(3)
    found = {
        f"{name}[{i}]": np.array(blob.data)
        for name, blobs in solver.net.params.items()
        for i, blob in enumerate(blobs)
    }
    solver.close()
    return found


def test_ranks_train_as_on_the_cpu(cuda: Any, tmp_path: Path) -> None:
    want, got = trained(tmp_path, NumPyBackend()), trained(tmp_path, cuda)
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-3, atol=1e-5, err_msg=name)


def test_buffers_are_used_again(cuda: Any) -> None:
    values = cuda.xp.asarray(np.array([1, 2, 3], np.float32))
    for _ in range(3):
        host = cuda.download(values)
        host += 1
        cuda.bring_back([(host, values)])
    np.testing.assert_array_equal(values.get(), [4, 5, 6])
    assert [len(buffers) for buffers in cuda._staging._free.values()] == [1]


def test_other_threads_queue_on_the_same_stream(cuda: Any) -> None:
    """The stand-in refuses work on a thread's default stream, which nothing would order."""
    total, part = (cuda.xp.asarray(np.array([1, 2], np.float32)) for _ in range(2))
    loss = cuda.total(part)
    found: list[float] = []

    def work() -> None:
        cuda.accumulate(total, part)
        found.append(float(loss))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    np.testing.assert_array_equal(total.get(), [2, 4])
    assert found == [3.0]
