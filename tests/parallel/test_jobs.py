"""Real jobs of several ranks: the same bits as one process, and failures that end the job."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mpi4py", reason="several ranks need mpi4py")

from pycaffe_fire.cli import fire_train
from pycaffe_fire.data.datum import encode_datum
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.parallel.launch import STOPPED, find_mpiexec
from tests.parallel.ranks import JOBS

NET = """
name: "job"
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 8 dim: 3 dim: 6 dim: 6 } shape { dim: 8 }
    data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "msra" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }
%(extra)s
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.001
max_iter: %(iterations)d display: 1 snapshot: %(snapshot)d snapshot_prefix: "snap"
random_seed: 3 solver_mode: CPU test_interval: 1000000 test_iter: 4 test_initialization: true
clip_gradients: 0.5
"""
PYTHON = """
layer { name: "python" type: "Python" bottom: "conv" top: "conv"
  python_param { module: "trouble" layer: "Trouble" } }
"""
TROUBLE = """
import os
import time
import pycaffe_fire as caffe


class Trouble(caffe.Layer):
    passes = 0

    def setup(self, bottom, top): ...
    def reshape(self, bottom, top): ...

    def forward(self, bottom, top):
        self.passes += 1
        if self.passes == 4 and os.environ.get("PMI_RANK") == "1" and self.phase == caffe.TRAIN:
            if os.environ.get("HANG"):
                time.sleep(1000)
            raise RuntimeError("the fourth pass is too much")

    def backward(self, top, propagate_down, bottom): ...
"""
SHORT_PATIENCE = """
from pycaffe_fire.parallel import waiting
waiting.PATIENCE = 4
"""
IMPATIENT = "tests.parallel.impatient_fire_train"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trouble.py").write_text(TROUBLE)
    write(tmp_path, 6)
    return tmp_path


def write(folder: Path, iterations: int, snapshot: int = 0, extra: str = "") -> None:
    (folder / "net.prototxt").write_text(NET % {"extra": extra})
    text = SOLVER % {"iterations": iterations, "snapshot": snapshot}
    (folder / "solver.prototxt").write_text(text)


def start(
    folder: Path, *flags: str, launcher: Sequence[str] = (),
    module: str = "pycaffe_fire.cli.fire_train", **more: str,
) -> Any:  # fmt: skip
    """fire_train as a job; `launcher` starts it in place of its own -n, `more` is environment."""
    command = [*launcher, sys.executable, "-m", module]
    command += ["--solver", "solver.prototxt"]
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join([root, str(folder)])
    environment = {**os.environ, "PYTHONPATH": paths, **more}
    job = subprocess.Popen(
        [*command, "--threads", "1", *flags], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    JOBS.append(job)
    return job


def run(folder: Path, *flags: str) -> str:
    """The log of a job that succeeds."""
    job = start(folder, *flags)
    output, _ = job.communicate(timeout=240)
    assert job.returncode == 0, output
    return str(output)


def run_here(folder: Path, *flags: str) -> str:
    """The same in this process: one rank, without the time that a new process takes to start."""
    before, log = os.getcwd(), io.StringIO()
    os.chdir(folder)
    try:
        with contextlib.redirect_stderr(log), contextlib.redirect_stdout(log):
            status = fire_train.main(["--solver", "solver.prototxt", "--threads", "1", *flags])
    finally:
        os.chdir(before)
    assert status == 0, log.getvalue()
    return log.getvalue()


def weights(folder: Path, *flags: str) -> str:
    (run if "-n" in flags else run_here)(folder, *flags)
    (model,) = folder.glob("snap_iter_6.caffemodel")
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    model.unlink()
    return digest


def test_ranks_give_the_bits_of_one_process(folder: Path) -> None:
    alone = weights(folder, "--leaves", "8")
    assert weights(folder, "--leaves", "8", "--threads", "2") == alone
    assert weights(folder, "--leaves", "8", "-n", "3", "--communicator", "tree") == alone


def ranks_of(job: subprocess.Popen[str]) -> Iterator[int]:
    """The processes of the job that are ranks, not launchers or guardians."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            _, *arguments = (entry / "cmdline").read_text().split("\0")
            pid = int(entry.name)
            is_python = arguments[:1] == ["-m"] and arguments[1].endswith("fire_train")
            if is_python and "-n" not in arguments and pid != job.pid and _descends(pid, job.pid):
                yield pid


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(stat.rsplit(")", 1)[1].split()[1])
        if pid == ancestor:
            return True
    return False


def wait_for(folder: Path, job: subprocess.Popen[str], pattern: str) -> None:
    deadline = time.monotonic() + 120
    while not list(folder.glob(pattern)):
        assert job.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def wait_until_training(folder: Path, job: subprocess.Popen[str]) -> None:
    """Until rank 0 has logged that it begins; by then every rank is watched and hears signals."""
    wait_for(folder, job, "snap_log.jsonl")
    deadline = time.monotonic() + 120
    while '"started"' not in (folder / "snap_log.jsonl").read_text():
        assert job.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)


def alive(pid: int) -> bool:
    """Not when it has ended and nobody has asked for its status."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def wait_until_gone(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the ranks in /proc")
@pytest.mark.parametrize(
    ("launcher", "victim"), [("fire_train", 1), ("mpiexec", 0), ("mpiexec", 1)]
)
def test_a_silent_rank_ends_the_job_and_is_named(folder: Path, launcher: str, victim: int) -> None:
    """What is killed, and not only stopped, see test_kills.py.

    Guardians end slowly here: mpiexec forgets the stopped rank if the one that aborts leaves its
    guardian behind.
    """
    if (launcher, victim) == ("mpiexec", 1) and "FIRE_KILLS" not in os.environ:
        pytest.skip("as if rank 0 were stopped; set FIRE_KILLS to run it")
    write(folder, 10**7, snapshot=5)
    if launcher == "mpiexec":
        path = os.pathsep.join([str(slow_shell(folder)), os.environ["PATH"]])
        launched_by = [find_mpiexec(), "-n", "2"]
        job = start(folder, "--leaves", "2", launcher=launched_by, module=IMPATIENT, PATH=path)
    else:
        job = start(folder, "--leaves", "2", "-n", "2", module=IMPATIENT)
    wait_for(folder, job, "snap_iter_5.solverstate")
    ranks = sorted(ranks_of(job), key=_rank)
    assert len(ranks) == 2
    os.kill(ranks[victim], signal.SIGSTOP)
    output, _ = job.communicate(timeout=120)
    assert job.returncode != 0
    named = re.findall(r"fire_train: rank (\d) on \S+ has been silent for 5 s; last seen: ", output)
    assert named == [str(victim)], output
    wait_until_gone(ranks)


def slow_shell(folder: Path) -> Path:
    """A folder with an sh that takes a second to end, and says something meanwhile."""
    shell = folder / "bin" / "sh"
    shell.parent.mkdir()
    shell.write_text('#!/bin/sh\ntrap "" HUP INT\n/bin/sh "$@"\nsleep 0.5\necho >&2\nsleep 0.5\n')
    shell.chmod(0o755)
    return shell.parent


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the ranks in /proc")
def test_no_rank_waits_in_vain_for_the_others_to_end(folder: Path) -> None:
    """Rank 1 stops when all have said that they are done, and nobody watches it any more."""
    job = start(
        folder, launcher=[find_mpiexec(), "-n", "2"], module="tests.parallel.lazy_fire_train"
    )
    output, _ = job.communicate(timeout=120)
    assert job.returncode != 0
    (line,) = re.findall("fire_train: rank .*", output)
    assert re.search(r"rank 0 on \S+: not all ranks have ended 2 s after this one", line)
    assert "Optimization Done" in output
    wait_until_gone([*ranks_of(job)])


def _rank(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next(v for v in variables if v.startswith("PMI_RANK="))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the ranks in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_go_on_to_the_ranks(folder: Path, number: int) -> None:
    """As for one process: SIGHUP takes a snapshot, the others stop with one."""
    write(folder, 10**7, snapshot=10**7)
    solver = (folder / "solver.prototxt").read_text()  # nobody reads the log while it runs
    (folder / "solver.prototxt").write_text(solver.replace("display: 1", "display: 0"))
    job = start(folder, "-n", "2", "--leaves", "2", "--restarts", "1")
    wait_until_training(folder, job)
    ranks = list(ranks_of(job))
    job.send_signal(signal.SIGHUP)
    wait_for(folder, job, "snap_iter_*.solverstate")
    job.send_signal(number)
    output, _ = job.communicate(timeout=120)
    assert job.returncode == STOPPED, output
    assert "starting again" not in output and "fire_train: rank" not in output
    assert len(list(folder.glob("snap_iter_*.solverstate"))) == 2
    wait_until_gone(ranks)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the ranks in /proc")
def test_a_test_of_many_passes_does_not_keep_ranks_from_stopping(folder: Path) -> None:
    """One rank is told, in a test that would take hours; mpiexec has the status of the ranks."""
    write(folder, 10, snapshot=10)
    solver = (folder / "solver.prototxt").read_text()
    (folder / "solver.prototxt").write_text(solver.replace("test_iter: 4", "test_iter: 10000001"))
    job = start(folder, "--leaves", "2", launcher=[find_mpiexec(), "-n", "2"])
    wait_until_training(folder, job)
    os.kill(sorted(ranks_of(job), key=_rank)[1], signal.SIGTERM)
    output, _ = job.communicate(timeout=120)
    assert job.returncode == STOPPED, output
    assert "Test interrupted." in output


def test_a_request_to_stop_a_job_that_is_being_started_is_no_failure(folder: Path) -> None:
    write(folder, 10**7)
    job = start(folder, "-n", "2", "--restarts", "1")
    time.sleep(1)
    job.send_signal(signal.SIGTERM)
    output, _ = job.communicate(timeout=120)
    assert job.returncode in (STOPPED, -signal.SIGTERM), output  # or Python itself was starting
    assert "starting again" not in output


def test_an_error_in_one_rank_ends_all_with_one_message(folder: Path) -> None:
    write(folder, 100, extra=PYTHON)
    job = start(folder, "-n", "2", "--allow-python-layers")
    output, _ = job.communicate(timeout=240)
    assert job.returncode != 0
    assert len(re.findall("fire_train: rank 1 on .* failed", output)) == 1
    assert "the fourth pass is too much" in output


def test_a_rank_that_hangs_is_named_with_what_it_did_last(folder: Path) -> None:
    """Its process lives and reports, but its training does not go on."""
    write(folder, 100, extra=PYTHON)
    (folder / "trouble.py").write_text(TROUBLE + SHORT_PATIENCE)
    job = start(folder, "-n", "2", "--allow-python-layers", HANG="1")
    output, _ = job.communicate(timeout=240)
    assert job.returncode != 0
    (line,) = re.findall("fire_train: rank .*", output)
    assert re.search(r"rank 1 on \S+ has not answered for \d+ s; last seen: iteration 3", line)


def test_an_error_under_mpiexec_is_told_once(folder: Path) -> None:
    """Not again by those that watch the rank, or see others end because of it."""
    write(folder, 100, extra=PYTHON)
    job = start(folder, "--allow-python-layers", launcher=[find_mpiexec(), "-n", "3"])
    output, _ = job.communicate(timeout=240)
    assert job.returncode != 0
    (line,) = re.findall("fire_train: rank .*", output)
    assert re.search("rank 1 on .* failed .*: .*the fourth pass is too much", line), output


def test_mpiexec_starts_ranks_and_a_hang_ends_them_too(folder: Path) -> None:
    write(folder, 100, extra=PYTHON)
    (folder / "trouble.py").write_text(TROUBLE + SHORT_PATIENCE)
    launcher = [find_mpiexec(), "-n", "2"]
    job = start(folder, "--allow-python-layers", launcher=launcher, HANG="1")
    output, _ = job.communicate(timeout=240)
    assert job.returncode != 0
    (line,) = re.findall("fire_train: rank .*", output)
    assert re.search(r"rank 0 on \S+ failed \(iteration 3\): no answer from rank 1 on \S+ ", line)


def test_ranks_that_differ_refuse_to_start(folder: Path) -> None:
    """A rank that sees another solver: the files change between two ranks' reading them."""
    (folder / "trouble.py").write_text(
        TROUBLE
        + """

import pycaffe_fire.solver.solver as solver
if os.environ.get("PMI_RANK") == "1":
    solver.VERSION = "0.0.1"
"""
    )
    write(folder, 5, extra=PYTHON)
    job = start(folder, "-n", "2", "--allow-python-layers")
    output, _ = job.communicate(timeout=240)
    assert job.returncode != 0
    assert re.search("the version of pycaffe_fire differs between rank 0 .* and rank 1", output)


def test_ranks_that_see_other_records_refuse_to_start(folder: Path) -> None:
    """As many, with the same names, but not the same: each rank has a folder of its own."""
    records = [folder / f"host{rank}" for rank in range(2)]
    for rank, place in enumerate(records):
        place.mkdir()
        with DatabaseWriter(place / "lmdb") as writer:
            for i in range(16):
                pixels = np.full((3, 6, 6), 7 * i + (rank and i == 8), np.uint8)
                writer.put(b"%08d" % i, encode_datum(pixels, 1))
    data = 'layer { name: "data" type: "Data" top: "data" top: "label" data_param { '
    data += 'source: "lmdb" batch_size: 8 backend: LMDB } }'
    net = NET % {"extra": ""}
    write(folder, 4)
    (folder / "net.prototxt").write_text(data + net[net.index('layer { name: "conv"') :])
    mover = ["sh", "-c", 'cd host$PMI_RANK && cp ../*.prototxt . && exec "$@"', "sh"]
    job = start(folder, launcher=[find_mpiexec(), "-n", "2", *mover])
    output, _ = job.communicate(timeout=240)
    assert job.returncode != 0
    assert re.search("the data differs between rank 0 .* and rank 1", output), output
