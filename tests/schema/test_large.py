"""Files beyond 2 GB, without writing any: lengths and places are counted right."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.schema import binary, wire
from pycaffe_fire.schema.hdf5 import _Sink

HUGE = 3 * 2**30  # bytes; a file of zeros this long takes no space


@pytest.fixture
def zeros(tmp_path: Path) -> Any:
    """3 GB of nothing."""
    path = tmp_path / "zeros"
    with path.open("wb") as empty:
        empty.truncate(HUGE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        yield view
        view.release()


class Counter:
    """A file that keeps what is small and counts the rest."""

    def __init__(self) -> None:
        self.kept: list[bytes | int] = []

    def write(self, data: Any) -> int:
        self.kept.append(bytes(data) if len(data) < 1000 else len(data))
        return len(data)


def test_lengths_above_2_gb_are_written(zeros: Any) -> None:
    blob, layer, net = wire.Parts(), wire.Parts(), wire.Parts()
    blob.add_bytes(5, zeros)
    layer.add_message(7, blob)
    layer.add_message(7, blob)
    net.add_message(100, layer)
    head = 1 + 5  # a tag of one byte and 3 GB as a varint of five
    assert blob.size == HUGE + head
    assert layer.size == 2 * (blob.size + head)
    assert net.size == layer.size + 2 + 5
    file = Counter()
    net.write(file)
    sizes = [piece if isinstance(piece, int) else len(piece) for piece in file.kept]
    assert sum(sizes) == net.size and sizes.count(HUGE) == 2
    tag, length = file.kept[:2]
    assert wire.varint(b"".join((tag, length)), 2, 7) == (layer.size, 7)  # type: ignore[arg-type]


def test_a_state_above_2_gb_is_read(tmp_path: Path) -> None:
    """A blob of 3 GB in the middle of a sparse file is walked over to what is behind it."""
    path = tmp_path / "huge.solverstate"
    start, end = wire.Parts(), wire.Parts()
    start.add_number(1, 77)
    inner = wire.number_bytes(5 << 3 | wire.LENGTH) + wire.number_bytes(HUGE)
    start.add(wire.number_bytes(3 << 3 | wire.LENGTH), wire.number_bytes(len(inner) + HUGE), inner)
    end.add_number(4, 3)
    end.add_bytes(20000, b"behind")
    with path.open("wb") as file:
        start.write(file)
        file.seek(HUGE, 1)
        end.write(file)
    state = schema.read_state(path, history=False)
    assert (state.iter, state.current_step, state.extra) == (77, 3, b"behind")


def test_who_writes_too_much_for_caffe_is_warned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(binary, "_PROTOBUF_LIMIT", 1000)
    state = schema.SolverStateFile(1, "n", [np.zeros(1000, np.float32)])
    schema.write_state(tmp_path / "s.solverstate", state)
    assert "Caffe cannot read messages above 2 GB, use .h5" in caplog.text


def test_short_writes_go_on(zeros: Any) -> None:
    """Linux writes at most 2 GB at a time."""

    class Short:
        written = 0

        def write(self, data: Any) -> int:
            part = min(len(data), 0x7FFFF000)
            self.written += part
            return part

        seek = tell = read = readinto = truncate = None

    file: Any = Short()
    assert _Sink(file).write(zeros) == HUGE
    assert file.written == HUGE
