"""A timeline of one iteration: what is recorded, what becomes of it in logs, traces and pages."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from pycaffe_fire.errors import FireError
from pycaffe_fire.report.text import time_lines
from pycaffe_fire.report.timeline import ChromeTrace, chrome_trace, drawing, outline
from pycaffe_fire.solver import timeline
from pycaffe_fire.solver.events import Finished, Timed, Timeline
from pycaffe_fire.solver.timeline import Span
from pycaffe_fire.solver.timing import Times

from .solver_cases import body, make, rows_layer, write_rows

SETTINGS = 'base_lr: 0.01 lr_policy: "fixed" random_seed: 5 max_iter: 8'
SPANS = [
    Span("compute", "data", "data", 0.0, 0.010),
    Span("compute", "forward", "conv", 0.0101, 0.030),
    Span("compute", "forward", "ip", 0.0302, 0.040),
    Span("compute", "backward", "ip", 0.040, 0.060),
    Span("exchange", "exchange", "bucket 0", 0.061, 0.070),
    Span("compute", "backward", "conv", 0.060, 0.080),
    Span("exchange", "exchange", "bucket 1", 0.090, 0.099),
    Span("compute", "waiting", "for the sums", 0.080, 0.099),
    Span("compute", "update", "", 0.099, 0.100),
]
EVENT = Timeline(5, [SPANS, SPANS[:1]], ["here", "there"])


def test_neighbours_of_a_kind_become_one() -> None:
    found = [(s["lane"], s["kind"], s["start"], s["stop"]) for s in outline(SPANS)]
    assert found == [
        ("compute", "data", 0.0, 0.010),
        ("compute", "forward", 0.0101, 0.040),
        ("compute", "backward", 0.040, 0.080),
        ("exchange", "exchange", 0.061, 0.070),
        ("compute", "waiting", 0.080, 0.099),
        ("exchange", "exchange", 0.090, 0.099),
        ("compute", "update", 0.099, 0.100),
    ]
    assert outline([]) == []


def test_a_trace_has_a_process_for_each_rank() -> None:
    trace = chrome_trace(EVENT)
    names = {
        (e["name"], e["pid"], e["tid"]): e["args"]["name"]
        for e in trace["traceEvents"]
        if e["ph"] == "M"
    }
    assert names == {
        ("process_name", 0, 0): "rank 0 on here", ("thread_name", 0, 0): "compute",
        ("thread_name", 0, 1): "exchange", ("process_name", 1, 0): "rank 1 on there",
        ("thread_name", 1, 0): "compute",
    }  # fmt: skip
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(spans) == len(SPANS) + 1
    bucket = next(e for e in spans if e["name"] == "bucket 0")
    assert (bucket["pid"], bucket["tid"], bucket["cat"]) == (0, 1, "exchange")
    assert (bucket["ts"], bucket["dur"]) == pytest.approx((61_000, 9_000))


def test_the_file_is_written_once_it_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trace.json"
    trace = ChromeTrace(str(path))
    trace(Finished(3, False))
    assert not path.exists()
    assert "this one was shorter" in caplog.text
    caplog.clear()
    trace(EVENT)
    trace(Finished(8, False))
    trace.close()
    assert json.loads(path.read_text())["otherData"] == {"iteration": 5}
    assert not caplog.text
    with pytest.raises(FireError, match="cannot be written"):
        ChromeTrace(str(tmp_path / "nowhere" / "trace.json"))(EVENT)


def test_the_drawing_has_a_row_for_each_lane() -> None:
    text = drawing([outline(spans) for spans in EVENT.ranks])
    assert text.count(">rank ") == 2
    assert text.count("<rect") == 7 + 1
    rows = set(re.findall(r'<rect x="\S+" y="(\d+)"', text))
    assert len(rows) == 3, "two lanes of one rank, one of the other"
    assert "exchange: 9 ms" in text
    assert "<i" in text and "waiting" in text
    assert drawing([[]])


def test_an_iteration_that_is_rolled_back_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hooks go, and the next iteration is recorded in its place."""
    monkeypatch.setattr(timeline, "RECORDED", 2)
    solver = make(rows_layer(write_rows(tmp_path), 6) + body(), SETTINGS)
    recorder = timeline.TimelineRecorder(solver.leaves)
    hooks = solver.net.hooks
    found = []
    for rolled_back in (False, True, False, False):
        recorder.begin()
        found.append(len(hooks.before_forward))
        solver.step(1)
        now = time.perf_counter()
        spans = None if rolled_back else recorder.end(now, now)
        found.append(len(spans) if spans else 0)
    assert found[0:2] == [0, 0] and found[2] == 1
    assert found[4] == 1 and found[5] > 3, "data, layers and the update, once"
    assert found[6:] == [0, 0] and not hooks.after_backward


def test_the_slowest_rank_is_the_busiest_before_it_waits() -> None:
    """Rank 0 took as long as rank 1, but waited for it."""
    times = [Times(compute=1.0, exposed=2.0, update=0.1), Times(compute=2.9, data=0.2)]
    assert time_lines(Timed(7, times)) == [
        "    Time on rank 0: compute 1 s, data 0 s, exposed 2 s, hidden 0 s, update 0.1 s",
        "    Time on rank 1: compute 2.9 s, data 0.2 s, exposed 0 s, hidden 0 s, update 0 s",
        "    Slowest rank: 1",
    ]
    assert len(time_lines(Timed(7, times[:1]))) == 1, "alone there is no slowest"
