"""The loader: order, backpressure, errors, seeking and getting out of the way."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from pycaffe_fire.data.loader import Loader
from pycaffe_fire.data.order import leaf_schedule
from pycaffe_fire.errors import DataError


class Numbers:
    """Samples that are their own number; fills may be slow, fail, or be counted."""

    shapes = [(2,), ()]

    def __init__(self, delay: Any = None, fail_at: Any = None) -> None:
        self.delay = delay
        self.fail_at = fail_at
        self.filled: list[int] = []

    def fill(self, samples: range, data: Any, label: Any) -> None:
        if self.delay:
            time.sleep(self.delay(samples.start))
        if self.fail_at is not None and samples.start >= self.fail_at:
            raise DataError(f"sample {samples.start}")
        data[...] = np.arange(samples.start, samples.stop)[:, None]
        label[...] = np.arange(samples.start, samples.stop)
        self.filled.append(samples.start)


def loader(source: Any, threads: int = 2, depth: int = 3) -> Any:
    return Loader(source, leaf_schedule(4, 1, [0]), 4, depth=depth, threads=threads)


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_order_whatever_the_threads_do(threads: int) -> None:
    source = Numbers(delay=lambda start: 0.002 * (start % 3))
    with loader(source, threads) as batches:
        for i in range(30):
            batch = batches.next()
            assert batch.samples == range(4 * i, 4 * i + 4)
            assert batch.label.tolist() == list(batch.samples)
            assert batch.data[:, 1].tolist() == list(batch.samples)


def test_backpressure_and_reuse() -> None:
    source = Numbers()
    with loader(source, threads=2, depth=3) as batches:
        addresses = {batches.next().data.ctypes.data}
        wait_until(lambda: len(source.filled) == 4)  # the one taken and three ahead
        time.sleep(0.05)
        assert len(source.filled) == 4
        addresses |= {batches.next().data.ctypes.data for _ in range(20)}
        assert len(addresses) <= 4 and all(a % 64 == 0 for a in addresses)


def test_a_batch_stays_until_the_next_is_taken() -> None:
    with loader(Numbers(), threads=3) as batches:
        for i in range(20):
            batch = batches.next()
            time.sleep(0.002)
            assert batch.label.tolist() == list(range(4 * i, 4 * i + 4))


def test_errors_come_in_turn_with_their_type() -> None:
    source = Numbers(fail_at=8)
    with loader(source) as batches:
        batches.next()
        batches.next()
        for _ in range(2):
            with pytest.raises(DataError, match="sample 8"):
                batches.next()
        source.fail_at = None
        batches.seek(2)
        assert batches.next().samples.start == 8


def test_errors_of_the_schedule() -> None:
    with (
        Loader(cast(Any, Numbers()), leaf_schedule(10, 4, [0]), 4) as batches,
        pytest.raises(DataError, match="cannot be cut"),
    ):
        batches.next()


def test_seek() -> None:
    source = Numbers(delay=lambda start: 0.003)
    with loader(source) as batches:
        batches.seek(7)
        assert batches.next().samples.start == 28
        for target in (3, 100, 0):
            batches.seek(target)
            assert [batches.next().samples.start for _ in range(6)] == [
                4 * (target + i) for i in range(6)
            ]


def test_waiting_is_counted() -> None:
    with loader(Numbers(delay=lambda start: 0.05), threads=1) as batches:
        batches.next()
        assert 0.04 < batches.wait_seconds < 2


@pytest.fixture(autouse=True)
def others() -> Iterator[None]:
    """Threads of loaders that other tests keep are none of ours."""
    _others.update(threading.enumerate())
    yield
    _others.clear()


_others: set[threading.Thread] = set()


def loader_threads() -> Any:
    return [t for t in set(threading.enumerate()) - _others if t.name.startswith("loader-")]


def test_close_ends_the_threads_and_next() -> None:
    batches = loader(Numbers())
    assert not loader_threads()
    batches.next()
    assert loader_threads()
    batches.close()
    batches.close()
    assert not loader_threads()
    with pytest.raises(ValueError, match="closed"):
        batches.next()


def test_close_wakes_a_waiting_consumer() -> None:
    batches = loader(Numbers(delay=lambda start: 0.2))
    caught = []

    def consume() -> None:
        try:
            batches.next()
        except ValueError as error:
            caught.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    time.sleep(0.05)
    batches.close()
    consumer.join(60)
    assert len(caught) == 1


def test_a_dropped_loader_cleans_up() -> None:
    batches = loader(Numbers())
    batches.next()
    gone = weakref.ref(batches)
    del batches
    gc.collect()
    assert gone() is None
    wait_until(lambda: not loader_threads())


@pytest.mark.parametrize("ending", ["pass", "raise KeyboardInterrupt", "raise SystemExit(3)"])
def test_interpreter_exit_is_prompt(ending: str) -> None:
    program = (
        "import sys, time\n"
        "from pycaffe_fire.data.loader import Loader\n"
        "from pycaffe_fire.data.order import leaf_schedule\n"
        "class S:\n"
        "    shapes = [(2,), ()]\n"
        "    def fill(self, samples, data, label): time.sleep(0.01)\n"
        "b = Loader(S(), leaf_schedule(4, 1, [0]), 4)\n"
        "b.next()\n"
        f"{ending}\n"
    )
    result = subprocess.run([sys.executable, "-c", program], timeout=240, capture_output=True)
    assert result.returncode == {"pass": 0, "raise SystemExit(3)": 3}.get(ending, result.returncode)
    assert b"Fatal" not in result.stderr and b"Exception ignored" not in result.stderr
