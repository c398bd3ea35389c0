"""Where time goes on every rank of a real job: --times, the slowest rank, and --trace."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mpi4py", reason="several ranks need mpi4py")

from pycaffe_fire.report.json_log import read_events  # noqa: E402
from pycaffe_fire.report.page import page  # noqa: E402
from pycaffe_fire.report.record import record_tables  # noqa: E402
from pycaffe_fire.report.runs import read_run  # noqa: E402
from tests.parallel.test_jobs import PYTHON, folder, start, write  # noqa: E402, F401

PARTS = ("compute", "data", "exposed", "hidden", "update")
NAP = 0.05  # seconds that rank 1 takes longer for every pass
SLOW = f"""
import os
import time
import pycaffe_fire as caffe


class Trouble(caffe.Layer):
    def setup(self, bottom, top): ...
    def reshape(self, bottom, top): ...

    def forward(self, bottom, top):
        if os.environ.get("PMI_RANK") == "1":
            time.sleep({NAP})

    def backward(self, top, propagate_down, bottom): ...
"""


def seconds(spans: list[dict[str, Any]], kind: str) -> float:
    return sum(span["stop"] - span["start"] for span in spans if span["kind"] == kind)


def test_a_slow_rank_is_seen_in_times_trace_and_page(folder: Path) -> None:  # noqa: F811
    write(folder, extra=PYTHON, iterations=8)
    (folder / "trouble.py").write_text(SLOW)
    job = start(
        folder, "-n", "2", "--allow-python-layers", "--log", "--times", "--trace", "trace.json"
    )
    output, _ = job.communicate(timeout=240)
    assert job.returncode == 0, output
    log = folder / "snap_log.jsonl"

    # --times: a line for each rank at every display, and who was slowest. Nothing but what rank 1
    # sleeps is certain on a busy machine.
    parts = ", ".join(rf"{name} (\S+) s" for name in PARTS)
    lines = re.findall(rf"Time on rank (\d): {parts}", output)
    assert [line[0] for line in lines] == ["0", "1"] * 8
    times = [dict(zip(PARTS, map(float, line[1:]), strict=True)) for line in lines]
    assert all(rank_1["compute"] >= NAP for rank_1 in times[1::2])
    busy = [part["compute"] + part["data"] + part["update"] for part in times]
    told = [int(rank) for rank in re.findall(r"Slowest rank: (\d)", output)]
    assert len(told) == 8
    for slowest, pair in zip(told, zip(busy[::2], busy[1::2], strict=True), strict=True):
        assert pair[slowest] >= 0.99 * max(pair)

    # The header and the record: what the job ran on, with its measured interconnect.
    link = r"within a host \S+ us, \S+ Gbit/s"
    assert re.search(rf"Interconnect: {link} \(ranks 0 and 1\)", output)
    tables = {title: dict(rows) for title, rows in record_tables(read_run(str(log)))}
    assert re.fullmatch(link, tables["Hardware and software"]["interconnect"])
    assert ", 2 ranks each (" in tables["Hardware and software"]["hosts"]
    assert 'type: "' in tables["Hyperparameters"]["initialisation"]

    # The log and the page: the same in one iteration.
    (event,) = (e for e in read_events(str(log)) if e["event"] == "timeline")
    assert event["iteration"] == 5 and len(event["hosts"]) == 2
    assert seconds(event["ranks"][1], "forward") >= NAP
    for spans in event["ranks"]:
        assert {"forward", "backward", "exchange", "waiting", "update"} <= {
            s["kind"] for s in spans
        }
        compute = [s for s in spans if s["lane"] == "compute"]
        assert all(a["stop"] <= b["start"] for a, b in zip(compute, compute[1:], strict=False))
    assert "An iteration, rank by rank" in page([read_run(str(log))])

    # The trace: every layer of both ranks.
    trace = json.loads((folder / "trace.json").read_text())["traceEvents"]
    forward = {(e["pid"], e["name"]): e["dur"] for e in trace if e.get("cat") == "forward"}
    assert forward[1, "python"] >= 1e6 * NAP
    assert (0, "conv") in forward and (1, "conv") in forward
    buckets = [e["pid"] for e in trace if e.get("cat") == "exchange"]
    assert set(buckets) == {0, 1}
