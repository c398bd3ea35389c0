"""A real Slurm on this machine: munged, slurmctld and some slurmd, for as long as a command runs.

    sh tools/slurm/install.sh                                       once, as root
    python3 tools/slurm/local_slurm.py srun -N2 -n4 hostname        four tasks on two nodes

Everything it writes lies in a folder of its own, and all it started ends with it. Run as root:
slurmd starts tasks.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
PATIENCE = 60.0  # seconds for daemons to start
CONFIGURATION = """
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
KillWait=30
SchedulerParameters=sched_interval=2,bf_interval=2
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


def missing() -> str:
    """Why there can be no Slurm here; empty if there can."""
    absent = [name for name in PROGRAMS if not _program(name)]
    if absent:
        return f"{', '.join(absent)} not installed; see tools/slurm/install.sh"
    return "" if os.geteuid() == 0 else "slurmd must run as root"


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


class LocalSlurm:
    """Between `with` and its end `environment` is one in which srun and sbatch find the nodes."""

    def __init__(self, folder: Path, nodes: int = 2, cores: int = 4) -> None:
        self.folder, self._nodes, self._cores = folder, nodes, cores
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> LocalSlurm:
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        self._write_configuration()
        try:
            self._start_munge()
            self._start("slurmctld", "-D", "-i")
            for node in range(self._nodes):
                self._start("slurmd", "-D", "-N", f"n{node}")
            self._wait_for_nodes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _write_configuration(self) -> None:
        controller, *ports = _free_ports(self._nodes + 1)
        host = socket.gethostname()
        nodes = "\n".join(
            f"NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={self._cores} State=UNKNOWN"
            for node, port in enumerate(ports)
        )
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=host, controller_port=controller, folder=self.folder, nodes=nodes
            )
        )

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        files = {name: f"{self.folder}/munge.{name}" for name in ("socket", "pid", "log", "seed")}
        self._start(
            "munged", "--foreground", "--force", "--key-file", str(key),
            "--socket", files["socket"], "--pid-file", files["pid"],
            "--log-file", files["log"], "--seed-file", files["seed"],
        )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(files["socket"]):
            self._check(deadline, "munged")

    def _start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self._daemons.append(
                subprocess.Popen(
                    [str(_program(name)), *arguments], env=self.environment, cwd=self.folder,
                    stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                )
            )  # fmt: skip

    def _wait_for_nodes(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self.run("sinfo", "-h", "-N", "-o", "%t").stdout.split()
            if len(found) == self._nodes and set(found) <= {"idle", "mix", "alloc"}:
                return
            self._check(deadline, f"nodes (sinfo: {' '.join(found)})")

    def _check(self, deadline: float, what: str) -> None:
        if time.monotonic() > deadline or any(d.poll() is not None for d in self._daemons):
            logs = [path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log")]
            raise RuntimeError(f"no {what}\n" + "\n".join(logs))
        time.sleep(0.2)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """One of Slurm's commands, to its end."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def main(command: Sequence[str]) -> int:
    reason = missing() or ("" if command else "say which command is to run in it")
    if reason:
        print(f"local_slurm: {reason}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="slurm") as folder, LocalSlurm(Path(folder)) as slurm:
        return subprocess.run(command, env=slurm.environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
