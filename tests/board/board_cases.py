"""A small real run for the board's tests, a server over it, and requests to that server."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from pycaffe_fire.cli import fire_train
from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.writer import DatabaseWriter

CLASSES, SIDE, CROP = 3, 14, 12
TEST_RECORDS = 50  # no multiple of the batch
EVIL = "<img src=x onerror=document.title='pwned'>"

NET = """
name: "<script>document.title='pwned'</script>"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  data_param { source: "train_lmdb" batch_size: 16 backend: LMDB }
  transform_param { scale: 0.01 crop_size: 12 mirror: true } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  data_param { source: "test_lmdb" batch_size: 16 backend: LMDB }
  transform_param { scale: 0.01 crop_size: 12 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "EVIL" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool"
  pooling_param { pool: AVE kernel_size: 5 stride: 5 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy"
  include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
""".replace("EVIL", EVIL)

SOLVER = """
net: "net.prototxt" test_iter: 3 test_interval: 10 base_lr: {rate} momentum: 0.9
lr_policy: "step" gamma: 0.5 stepsize: 20 display: 1 max_iter: {iterations} snapshot: 20
random_seed: 3 solver_mode: CPU snapshot_prefix: "runs/{name}/net"
"""


def image(label: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Noise in which one colour, the label's, is brighter."""
    pixels = np.random.default_rng(seed).integers(0, 200, (3, SIDE, SIDE))
    pixels[label] += 45
    return pixels.astype(np.uint8)


def write_database(path: Path, records: int, seed: int) -> None:
    with DatabaseWriter(path) as writer:
        for i in range(records):
            label = (i * 7 + i // 3) % CLASSES
            writer.put(b"%08d" % i, encode_datum(image(label, seed + i), label))


def write_case(folder: Path) -> None:
    write_database(folder / "train_lmdb", 64, 1000)
    write_database(folder / "test_lmdb", TEST_RECORDS, 5000)
    (folder / "net.prototxt").write_text(NET)


def write_solver(folder: Path, name: str, rate: float = 0.05, iterations: int = 40) -> Path:
    path = folder / f"{abs(hash(name))}.prototxt"
    path.write_text(SOLVER.format(rate=rate, iterations=iterations, name=name))
    return path


def train(folder: Path, name: str, rate: float) -> Path:
    """A finished run; returns its log."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        assert fire_train.main(["--solver", str(write_solver(folder, name, rate))]) == 0
    finally:
        os.chdir(before)
    return folder / "runs" / name / "net_log.jsonl"


@dataclass
class Server:
    """A running board."""

    host: str
    port: int
    token: str
    process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}/?token={self.token}"

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """The path goes out as it is given, dots and all."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        given = {"authorization": f"token {self.token}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {k: v for k, v in given.items() if v != "none"})
        answer = connection.getresponse()
        found = answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
        connection.close()
        return found

    def json(self, path: str, method: str = "GET", body: bytes | None = None) -> Any:
        status, content, _ = self.ask(path, method, body)
        assert status == 200, content
        return json.loads(content)

    def rows(self) -> dict[str, dict[str, Any]]:
        """The runs by their folder, once all are read."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request("GET", "/api/live", headers={"Authorization": f"token {self.token}"})
        answer = connection.getresponse()
        found: dict[str, dict[str, Any]] = {}
        deadline = time.monotonic() + 120
        while not found and time.monotonic() < deadline:
            line = answer.readline()
            if line.startswith(b"data: "):
                found = {row["folder"]: row for row in json.loads(line[6:])["rows"]}
        connection.close()
        return found

    def job(self, path: str) -> Any:
        state = self.json(path, "POST")
        deadline = time.monotonic() + 120
        while state["state"] == "running" and time.monotonic() < deadline:
            time.sleep(0.1)
            state = self.json(path)
        assert state["state"] == "done", state
        return state["result"]


@contextmanager
def serving(folder: Path, *flags: str, stderr: IO[bytes] | None = None) -> Iterator[Server]:
    command = [sys.executable, "-m", "pycaffe_fire.cli.fire_board", str(folder), "--port", "0"]
    process = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    try:
        base, _, token = process.stdout.readline().strip().partition("/?token=")
        host, _, port = base.removeprefix("http://").rpartition(":")
        yield Server(host, int(port), token, process)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def eventually(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What the function gives as soon as that is something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen")
