"""A job on three emulated hosts loses one of them: it goes on with all ranks of the other two.

python tools/netlab/lost_host.py [--keep FOLDER]      needs root and a minute or two; see README.md

Checks that six ranks become four on the two hosts that are left, that the ranks on the lost host
end by themselves, and that the weights are those of one process that was never disturbed.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import netlab

ITERATIONS, SNAPSHOT, PATIENCE = 600, 50, 180.0
NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 12 dim: 3 dim: 8 dim: 8 } shape { dim: 12 }
  data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "msra" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = f"""
net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 max_iter: {ITERATIONS}
display: 10 snapshot: {SNAPSHOT} snapshot_prefix: "snap" random_seed: 3 solver_mode: CPU
"""
TRAIN = [sys.executable, "-m", "pycaffe_fire.cli.fire_train", "--solver", "solver.prototxt"]
TRAIN += ["--leaves", "12", "--threads", "1"]


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / f"snap_iter_{ITERATIONS}.caffemodel").read_bytes()).hexdigest()


def prepare(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(SOLVER)
    return folder


def wait_for(what: str, there: object) -> float:
    """Seconds until it is there; `there` is asked again and again."""
    began = time.monotonic()
    while not there():  # type: ignore[operator]
        if time.monotonic() - began > PATIENCE:
            raise netlab.LabError(f"{what} did not happen within {PATIENCE:.0f} s")
        time.sleep(0.2)
    return time.monotonic() - began


def lose_a_host(folder: Path) -> str:
    """The job's output; host 2 is cut off after the first snapshot."""
    addresses = ",".join(f"{netlab.NETWORK}.{i + 1}" for i in range(3))
    command = [*TRAIN, "-n", "6", "--hosts", addresses, "--restarts", "1"]
    netlab.up(3, 1000)
    try:
        with (folder / "out.txt").open("w") as out:
            job = netlab.start(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
            wait_for("a snapshot", (folder / f"snap_iter_{SNAPSHOT}.solverstate").exists)
            time.sleep(2)  # every rank has reported by now
            netlab.cut(2)
            seconds = wait_for("the end of the ranks cut off", lambda: not netlab.processes(2))
            print(f"the ranks on the lost host ended by themselves after {seconds:.0f} s")
            job.wait(PATIENCE)
    finally:
        netlab.down()
    return (folder / "out.txt").read_text()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", metavar="FOLDER", help="leave everything there (default: not)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lost") as temporary:
        base = Path(options.keep or temporary).resolve()
        try:
            job = prepare(base / "job")
            output = lose_a_host(job)
        except (netlab.LabError, subprocess.TimeoutExpired) as error:
            print(f"lost_host: {error}", file=sys.stderr)
            return 1
        for line in output.splitlines():
            if line.startswith("fire_train:") or "Resuming" in line:
                print(line)
        alone = prepare(base / "alone")
        subprocess.run(TRAIN, cwd=alone, check=True, capture_output=True)
        same = digest(job) == digest(alone)
        right = "starting again with 4 rank(s) on 2 host(s)" in output
    print("the weights are", "those of one process" if same else "DIFFERENT from one process's")
    return 0 if same and right else 1


if __name__ == "__main__":
    sys.exit(main())
