"""The race checker finds what no event orders, and finds nothing in our training loops."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.cuda.streams import event_on, using
from pycaffe_fire.backend.cuda.uploads import Uploads
from tests.cuda.cuda_nets import inception, lenet, solver_of, train
from tests.cuda.fake_cupy.races import NULL, RaceError, checker


@pytest.fixture
def expected(cupy: Any) -> Iterator[None]:
    """For a test that makes a race on purpose: the fixture of `cupy` must not find it again."""
    yield
    assert checker.found
    checker.found.clear()


@pytest.fixture
def streams(cupy: Any) -> Any:
    return [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]


def test_with_ends_on_the_null_stream_after_use(cupy: Any, streams: Any) -> None:
    """CuPy's own rule (its test is called test_mix_use_context)."""
    first, second = streams
    first.use()
    with second:
        assert cupy.cuda.get_current_stream() is second
    assert cupy.cuda.get_current_stream().ptr == NULL
    first.use()
    with using(cupy, second):
        assert cupy.cuda.get_current_stream() is second
    assert cupy.cuda.get_current_stream() is first
    with first:
        with second:
            pass
        assert cupy.cuda.get_current_stream() is first


def test_reading_what_is_not_contiguous_changes_the_stream(cupy: Any, streams: Any) -> None:
    streams[0].use()
    array = cupy.asarray(np.ones((3, 4), np.float32))
    assert array.get().sum() == 12 and cupy.cuda.get_current_stream() is streams[0]
    assert array.T.get().sum() == 12 and cupy.cuda.get_current_stream().ptr == NULL


@pytest.mark.usefixtures("expected")
@pytest.mark.parametrize("writes_first", [True, False])
def test_an_access_that_nothing_orders(cupy: Any, streams: Any, writes_first: bool) -> None:
    first, second = streams
    first.use()
    array = cupy.asarray(np.ones(4, np.float32))
    event = event_on(cupy, first)
    if writes_first:
        array += 1
    else:
        array + 1
    second.use()
    second.wait_event(event)  # of before the access
    with pytest.raises(RaceError, match=r"test_races.py:\d+\)\n.*test_races.py:\d+"):
        array += 1


def test_events_and_waits_order(cupy: Any, streams: Any) -> None:
    first, second = streams
    first.use()
    array, other = (cupy.asarray(np.ones(4, np.float32)) for _ in range(2))
    array += 1
    second.wait_event(event_on(cupy, first))
    second.use()
    array += 1
    second.synchronize()  # the host knows, and with it whatever it queues from now on
    first.use()
    array += 1
    other[:2] += 1
    second.use()
    other[2:] += 1  # other bytes
    assert array.host.tolist() == [4.0] * 4


@pytest.mark.usefixtures("expected")
def test_memory_that_another_stream_still_uses(cupy: Any, streams: Any) -> None:
    first, second = streams
    first.use()
    array = cupy.empty(1000, np.float32)
    second.wait_event(event_on(cupy, first))
    second.use()
    array[:] = 1.0
    del array  # to the arena of the first stream
    first.use()
    cupy.empty(2000, np.float32)  # too large for it
    with pytest.raises(RaceError, match="given away again while another stream may use it"):
        cupy.empty(500, np.float32)
    first.wait_event(event_on(cupy, second))
    cupy.empty(500, np.float32)


@pytest.mark.usefixtures("expected")
def test_pinned_memory_is_not_to_be_touched_before_a_wait(cupy: Any, streams: Any) -> None:
    host = sys.modules["cupyx"].empty_pinned(4, np.float32)
    host[...] = 1
    streams[0].use()
    array = cupy.empty(4, np.float32)
    array.set(host)
    host[...] = 2
    with pytest.raises(RaceError, match="pinned memory changed before its copy had left"):
        streams[0].synchronize()
    array.get(out=host, blocking=False)
    assert np.isnan(host).all()  # it may still be under way
    streams[0].synchronize()
    assert host.tolist() == [1.0] * 4


def _with_stream(self: Any, values: Any) -> Any:
    """How buffers of batches were made once: after it the NULL stream is current."""
    with self._stream:
        return self._xp.empty(values.size, values.dtype)


@pytest.mark.usefixtures("expected")
@pytest.mark.parametrize("make", [lenet, inception])
def test_a_stream_that_is_not_restored_is_found(
    make: Callable[[Path], Any], cuda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Uploads, "_new_buffer", _with_stream)
    with pytest.raises(RaceError, match=r"uploads.py:\d+\)\nreads on the NULL stream: "):
        train(make(tmp_path), cuda, 1)


@pytest.mark.parametrize("make", [lenet, inception])
def test_training_leaves_the_null_stream_alone(
    make: Callable[[Path], Any], cuda: Any, tmp_path: Path
) -> None:
    checker.work.clear()
    solver = solver_of(make(tmp_path), cuda)
    solver.step(3)
    assert NULL not in checker.work
    assert len(checker.work[cuda.compute.ptr]) > 100
    solver.close()
