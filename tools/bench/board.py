"""How quickly the board answers about long runs, and what a run pays for its histograms.

python tools/bench/board.py                     a run of a million points, asked over HTTP
python tools/bench/board.py --points 100000 --runs 200
python tools/bench/board.py --histograms models/resnet50/train_val.prototxt

Answers are timed after the log has been read once; the time for that is shown, too. The median of
all rounds counts.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.layers import Context
from pycaffe_fire.net import Net
from pycaffe_fire.net.synthetic import with_synthetic_data
from pycaffe_fire.parallel.leaves import Output
from pycaffe_fire.report.json_log import JsonLog
from pycaffe_fire.solver.events import Started, Trained
from pycaffe_fire.solver.histograms import HistogramSampler

QUESTIONS = {
    "all of it": "",
    "smoothed": "&smooth=1000",
    "a tenth of it": "&from={low}&to={high}",
    "by hours, smoothed": "&by=hours&smooth=100",
}


def write_run(folder: Path, points: int) -> None:
    log = JsonLog(str(folder / "run_log.jsonl"))
    log(Started("net", schema.SolverParameter(max_iter=points), 0, 64, 1, "bench", 1))
    for i in range(points):
        loss = 2.0 / (1 + i / 1000) + (i * 7919 % 101) / 500
        log(Trained(i, loss, 0.01, 0.1, True, [Output("loss", loss, 1.0)]))
    log.close()


class Board:
    """A server of its own, as users start it."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "pycaffe_fire.cli.fire_board", str(folder), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        base, _, token = self.process.stdout.readline().strip().partition("/?token=")
        self.address = base.removeprefix("http://")
        self.headers = {"Authorization": f"token {token}"}

    def ask(self, path: str) -> bytes:
        connection = http.client.HTTPConnection(self.address, timeout=600)
        connection.request("GET", path, headers=self.headers)
        content = connection.getresponse().read()
        connection.close()
        return content

    def read_all(self, runs: int) -> str:
        """Wait until every log is read; the identity of one run."""
        connection = http.client.HTTPConnection(self.address, timeout=600)
        connection.request("GET", "/api/live", headers=self.headers)
        answer = connection.getresponse()
        known: dict[str, dict[str, Any]] = {}
        while len(known) < runs or any(row["reading"] for row in known.values()):
            line = answer.readline()
            if line.startswith(b"data: "):
                known |= {row["id"]: row for row in json.loads(line[6:])["rows"]}
        connection.close()
        return str(next(iter(known)))


def bench_answers(points: int, runs: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for i in range(runs):
            (folder / str(i)).mkdir()
            write_run(folder / str(i), points)
        began = time.perf_counter()
        board = Board(folder)
        try:
            run = board.read_all(runs)
            print(f"{runs} run(s) of {points:,} points read in {time.perf_counter() - began:.1f} s")
            for name, question in QUESTIONS.items():
                asked = question.format(low=points // 2, high=points // 2 + points // 10)
                path = f"/api/runs/{run}/curves?points=900{asked}"
                times, size = [], 0
                for _ in range(rounds):
                    start = time.perf_counter()
                    size = len(board.ask(path))
                    times.append(time.perf_counter() - start)
                median = 1e3 * statistics.median(times)
                print(f"{name:<20} {median:7.1f} ms  {size / 1e3:7.1f} kB, all curves of the run")
        finally:
            board.process.terminate()
            board.process.wait()


def bench_histograms(prototxt: str, rounds: int) -> None:
    param = with_synthetic_data(schema.read_net(prototxt))
    param.state.phase = schema.TRAIN
    net = Net(param, cpu_backend(), Context())
    gradients = net.parameters.zeros()
    times = []
    for _ in range(rounds):
        sampler = HistogramSampler(net.parameters, 1)
        start = time.perf_counter()
        sampler.after(0, sampler.before(), gradients, 1.0)
        times.append(time.perf_counter() - start)
    median = statistics.median(times)
    print(
        f"{prototxt}: {len(net.parameters.items)} parameters, a look takes {1e3 * median:.1f} ms; "
        f"there are at most 50 in a run, none within {200 * median:.1f} s of the last"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--histograms", metavar="PROTOTXT")
    options = parser.parse_args()
    if options.histograms:
        bench_histograms(options.histograms, options.rounds)
    else:
        bench_answers(options.points, options.runs, options.rounds)


if __name__ == "__main__":
    main()
