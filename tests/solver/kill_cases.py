"""What the kill tests share: a run that uses everything a resumed run could get wrong.

Dropout, random crops and mirrors, a shuffled database, moving averages, passes, tests and their
best result, an averaged loss.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from pycaffe_fire import schema
from pycaffe_fire.cli.fire_train import main
from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.digits import render
from pycaffe_fire.data.writer import DatabaseWriter

ROOT = Path(__file__).resolve().parents[2]
ITERATIONS = 60
FILL = 'weight_filler { type: "xavier" }'
NET = f"""
name: "killed"
layer {{ name: "data" type: "Data" top: "data" top: "label" include {{ phase: TRAIN }}
  transform_param {{ crop_size: 12 mirror: true scale: 0.01 }}
  data_param {{ source: "digits" batch_size: 8 backend: LMDB shuffle: true }} }}
layer {{ name: "data" type: "Data" top: "data" top: "label" include {{ phase: TEST }}
  transform_param {{ crop_size: 12 scale: 0.01 }}
  data_param {{ source: "digits" batch_size: 10 backend: LMDB }} }}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param {{ num_output: 6 kernel_size: 3 stride: 2 {FILL} }} }}
layer {{ name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }}
layer {{ name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param {{ bias_term: true }} }}
layer {{ name: "relu" type: "ReLU" bottom: "conv" top: "conv" }}
layer {{ name: "drop" type: "Dropout" bottom: "conv" top: "conv" }}
layer {{ name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param {{ num_output: 10 {FILL} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
layer {{ name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy"
  include {{ phase: TEST }} }}
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.01 momentum: 0.9 momentum2: 0.99 lr_policy: "step" gamma: 0.5
stepsize: 25 weight_decay: 0.001 iter_size: 2 max_iter: %(iterations)d average_loss: 7
test_iter: 3 test_interval: 9 snapshot: %(every)d snapshot_prefix: "out/run" solver_mode: CPU
display: 10 random_seed: 11 %(extra)s
"""


class Case:
    """One run in a folder of its own; `flags` and solver lines say what kind."""

    def __init__(self, folder: Path, kind: str, leaves: int, form: str, every: int) -> None:
        self.folder = folder
        self.suffix = ".h5" if form == "HDF5" else ""
        with DatabaseWriter(folder / "digits") as writer:
            for i, (image, label) in enumerate(zip(*render("train", 0, 60), strict=True)):
                writer.put(b"%08d" % i, encode_datum(image[None], int(label)))
        (folder / "net.prototxt").write_text(NET)
        extra = f'type: "{kind}" snapshot_format: {form}'
        values = {"iterations": ITERATIONS, "every": every, "extra": extra}
        (folder / "solver.prototxt").write_text(SOLVER % values)
        threads = "2" if leaves > 1 else "1"  # OpenMP's own crawl on a busy machine
        self.arguments = [
            "--solver", "solver.prototxt", "--threads", threads, "--leaves", str(leaves),
            "--keep", "3", "--keep-best", "accuracy", "--snapshot", "auto",
        ]  # fmt: skip

    def start(self, program: str = "") -> subprocess.Popen[str]:
        """The run in a process of its own; `program` is executed there first."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
        train = "import sys; from pycaffe_fire.cli.fire_train import main; sys.exit(main())"
        with open(self.folder / "log.txt", "w") as log:
            return subprocess.Popen(
                [sys.executable, "-c", f"{program}\n{train}", *self.arguments],
                cwd=self.folder, env=environment, stderr=log, stdout=log, text=True,
            )  # fmt: skip

    def complete(self) -> str:
        """Go on to the end, in this process; returns the log."""
        before, log = os.getcwd(), io.StringIO()
        os.chdir(self.folder)
        try:
            with redirect_stderr(log), redirect_stdout(log):
                status = main(self.arguments)
        finally:
            os.chdir(before)
        assert status == 0, log.getvalue()[-3000:]
        return log.getvalue()

    def kill_at_random(self, chance: random.Random) -> None:
        """Start, and kill it some time after it began to train, unless it is done before."""
        log = self.folder / "log.txt"
        process = self.start()
        deadline = time.monotonic() + 240
        while "Solving" not in log.read_text() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.8))
        process.send_signal(signal.SIGKILL)
        process.wait(60)

    def result(self) -> tuple[bytes, Any, list[bytes], dict[str, Any]]:
        """The last weights, state, history and record, less when it was written."""
        stem = self.folder / "out" / f"run_iter_{ITERATIONS}"
        state = schema.read_state(f"{stem}.solverstate{self.suffix}")
        record = json.loads(state.extra)
        assert record.pop("written") <= time.time()
        del record["checksum"]
        blobs = schema.read_weights(f"{stem}.caffemodel{self.suffix}")
        weights = b"".join(blob.tobytes() for layer in blobs for blob in layer.blobs)
        facts = state.iter, state.current_step, state.learned_net
        return weights, facts, [h.tobytes() for h in state.history], record

    def files(self) -> list[str]:
        """Snapshots, whole and half, without the log beside them."""
        found = (path.name for path in (self.folder / "out").iterdir())
        return sorted(name for name in found if "_log." not in name)
