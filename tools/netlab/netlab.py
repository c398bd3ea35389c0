"""Emulated hosts on one machine: network namespaces on a switch, every link shaped to a rate.

python tools/netlab/netlab.py up 8 --mbit 1000                       eight hosts at 1 Gbit/s
python tools/netlab/netlab.py run -- python tools/bench/allreduce.py one MPI rank on each of them
python tools/netlab/netlab.py down                                   remove them
python tools/netlab/netlab.py run --hosts 8 --mbit 1000 -- COMMAND   all three, whatever happens
python tools/netlab/netlab.py launch -- fire_train -n 8 --hosts 10.77.0.1,10.77.0.2 ...
                                                a command that starts the ranks on them itself
python tools/netlab/netlab.py cut 1                                  nobody reaches 10.77.0.2 now
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LAB = os.environ.get("FIRELAB", "firelab")  # another name makes another lab
SWITCH, HOST = f"{LAB}-switch", f"{LAB}-host"
NETWORK, CONTROLLER = "10.77.0", 254  # host i is NETWORK.(i+1); nobody outside ever sees it
MOST_HOSTS = 128
# Seconds of a link's rate: below such a burst the kernel's timer cannot keep it; what waits longer
# is dropped. A slow link has room for a packet, and for the first ones of many hosts at once.
BURST, QUEUE = 0.002, 0.05
LEAST_BURST, LEAST_QUEUE = 16_000, 1_000_000  # bytes
# The kernel gives a socket 4 MB, 34 ms of a link of 1 Gbit/s. The same of a slow link would hold a
# whole message: it would count as sent, and the next one would share the link with it.
SOCKET, LEAST_SOCKET = 0.034, 65_536  # seconds of a link's rate; bytes
# The machine may prefer BBR, which guesses a link's rate and takes seconds to; a cluster does not.
CONGESTION = "reno"
PLACES = ("round-robin", "blocks")
LAUNCHER = Path(__file__).with_name("nslaunch")


class LabError(Exception):
    """A failure to tell the user about; the text is the whole explanation."""


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` runs
    try:
        _check_means()
        if options.action == "up":
            up(options.hosts, options.mbit)
            return 0
        if options.action == "down":
            down()
            return 0
        if options.action == "cut":
            cut(options.host)
            return 0
        return _run(options)
    except LabError as error:
        print(f"netlab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    start = actions.add_parser("up", help="make the hosts")
    start.add_argument("hosts", type=int)
    start.add_argument("--mbit", type=float, default=1000, help="rate of each link, both ways")
    actions.add_parser("down", help="remove the hosts and whatever runs on them")
    off = actions.add_parser("cut", help="take a host off the network")
    off.add_argument("host", type=int, help="its number, from 0")
    work = actions.add_parser("run", help="run a command on every host, as the ranks of one job")
    work.add_argument("-n", type=int, metavar="P", help="ranks (default: one per host)")
    work.add_argument(
        "--place", choices=PLACES, default=PLACES[0], help="which ranks share a host, with -n"
    )
    launch = actions.add_parser("launch", help="run a command that reaches the hosts by mpiexec")
    for action in (work, launch):
        action.add_argument(
            "--hosts", type=int, help="make so many hosts now and remove them after"
        )
        action.add_argument("--mbit", type=float, default=1000, help="with --hosts: their rate")
        action.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command")
    return parser.parse_args(arguments)


def _check_means() -> None:
    if os.name != "posix" or os.geteuid() != 0:
        raise LabError("network namespaces need root: run this with sudo or in a container")
    missing = [tool for tool in ("ip", "tc", "unshare") if not shutil.which(tool)]
    if missing:
        raise LabError(f"{' and '.join(missing)} not found; on Debian: apt-get install iproute2")


# The hosts.


def up(hosts: int, mbit: float) -> None:
    """Make the switch and the hosts; a lab that was up before is removed first."""
    if not 1 <= hosts <= MOST_HOSTS or mbit <= 0:
        raise LabError(f"needs 1 to {MOST_HOSTS} hosts and a positive rate")
    down()
    try:
        _ip("netns", "add", SWITCH)
        _inside(SWITCH, "ip", "link", "set", "lo", "up")
        _inside(SWITCH, "ip", "link", "add", "br0", "type", "bridge")
        _inside(SWITCH, "ip", "link", "set", "br0", "up")
        _inside(SWITCH, "ip", "addr", "add", f"{NETWORK}.{CONTROLLER}/24", "dev", "br0")
        for i in range(hosts):
            _add_host(i, mbit)
    except BaseException:
        down()
        raise


def _add_host(i: int, mbit: float) -> None:
    host, port = f"{HOST}{i}", f"port{i}"
    _ip("netns", "add", host)
    _inside(host, "ip", "link", "set", "lo", "up")
    _inside(
        SWITCH, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host
    )
    _inside(SWITCH, "ip", "link", "set", port, "master", "br0", "up")
    _inside(host, "ip", "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", "eth0")
    _inside(host, "ip", "link", "set", "eth0", "up")
    most = f"{max(LEAST_SOCKET, SOCKET * 125_000 * mbit):.0f}"
    for setting, value in (
        ("tcp_congestion_control", CONGESTION),
        ("tcp_wmem", f"4096 16384 {most}"),
        ("tcp_rmem", f"4096 {LEAST_SOCKET} {most}"),
    ):
        _inside(host, "sysctl", "-q", "-w", f"net.ipv4.{setting}={value}")
    for where, device in ((host, "eth0"), (SWITCH, port)):  # the way out and the way in
        _inside(
            where,
            "tc",
            "qdisc",
            "add",
            "dev",
            device,
            "root",
            "tbf",
            *_shape(mbit),
        )


def _shape(mbit: float) -> list[str]:
    """tbf's arguments for a link of that rate."""
    rate = 125_000 * mbit  # bytes per second
    burst, queue = max(LEAST_BURST, BURST * rate), max(LEAST_QUEUE, QUEUE * rate)
    return ["rate", f"{mbit:g}mbit", "burst", f"{burst:.0f}", "limit", f"{burst + queue:.0f}"]


def down() -> None:
    """End what runs inside the lab's namespaces and remove them."""
    namespaces = _namespaces()
    for namespace in namespaces:
        for pid in _ip("netns", "pids", namespace).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    for namespace in namespaces:
        _ip("netns", "del", namespace)


def cut(host: int) -> None:
    """Pull the plug of a host's link: its processes go on, but nobody hears them."""
    if not 0 <= host < host_count():
        raise LabError(f"there is no host {host}")
    _inside(SWITCH, "ip", "link", "set", f"port{host}", "down")


def processes(host: int) -> list[int]:
    """What runs on a host."""
    return [int(pid) for pid in _ip("netns", "pids", f"{HOST}{host}").split()]


def _namespaces() -> list[str]:
    names = [line.split()[0] for line in _ip("netns", "list").splitlines() if line]
    return [name for name in names if name == SWITCH or name.startswith(HOST)]


def host_count() -> int:
    return sum(name.startswith(HOST) for name in _namespaces())


def _ip(*arguments: str) -> str:
    return _call(["ip", *arguments])


def _inside(namespace: str, *command: str) -> str:
    return _call(["ip", "netns", "exec", namespace, *command])


def _call(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.strip() or f"status {done.returncode}"
        raise LabError(f"{' '.join(command)}: {reason}")
    return done.stdout


# Jobs.


def _run(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise LabError(f"{options.action} needs a command after --")
    if options.hosts is not None:
        up(options.hosts, options.mbit)
    try:
        if options.action == "launch":
            return launch(command)
        return job(command, options.n, options.place)
    finally:
        if options.hosts is not None:
            down()


def job(command: list[str], ranks: int | None = None, place: str = "round-robin") -> int:
    """Run a command as one MPI job, its ranks on the hosts in turn or in blocks: its status."""
    return launch(_mpi_command(command, ranks, place))


def job_output(command: list[str], ranks: int | None, place: str) -> str:
    """What the ranks of such a job print; a LabError if it fails."""
    done = subprocess.run(
        _on_switch(_mpi_command(command, ranks, place)), env={**os.environ, **environment()},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    if done.returncode:
        raise LabError(f"the job ended with status {done.returncode}")
    return done.stdout


def _mpi_command(command: list[str], ranks: int | None, place: str) -> list[str]:
    hosts = host_count()
    ranks = ranks or hosts
    each = 1 if place == "round-robin" or not hosts else -(-ranks // hosts)
    addresses = ",".join(f"{NETWORK}.{i + 1}" for i in range(hosts))
    placement = ["-hosts", addresses, "-ppn", str(each), "-n", str(ranks)]
    return [_mpiexec(), *placement, *command]


def launch(command: list[str]) -> int:
    """Run a command on the switch, where mpiexec finds the hosts; returns its status."""
    process = start(command)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        process.kill()
        raise
    finally:
        time.sleep(0.2)  # the proxies of mpiexec leave after it


def start(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a command on the switch; `how` is said to Popen."""
    if not host_count():
        raise LabError("there are no hosts: netlab.py up N, or give run --hosts N")
    return subprocess.Popen(_on_switch(command), env={**os.environ, **environment()}, **how)


def _on_switch(command: list[str]) -> list[str]:
    """A command where the switch is, under the name by which hosts reach it."""
    named = f'hostname {NETWORK}.{CONTROLLER}; exec "$@"'
    inside = ["ip", "netns", "exec", SWITCH, "unshare", "--uts"]
    return [*inside, "/bin/sh", "-c", named, "sh", *command]


def environment() -> dict[str, str]:
    """MPICH over TCP between hosts that share this machine's few cores."""
    return {
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(LAUNCHER),
        "FIRELAB": LAB,
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": "eth0",
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "MPIR_CVAR_POLLS_BEFORE_YIELD": "10",
    }


def _mpiexec() -> str:
    """MPICH's mpiexec beside this Python, or the one on the path."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise LabError("mpiexec not found: pip install -e '.[mpi]'")
    return found


if __name__ == "__main__":
    sys.exit(main())
