#!/usr/bin/env python3
"""From a fresh clone to a running command, with Python alone: makes .venv, installs, runs.

    python3 tools/start.py train    render the digits, train LeNet on them, print its accuracy
    python3 tools/start.py test     check style and types, run all tests

Nothing is installed outside .venv. Both can be repeated; what is done is not done again.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
MARK = "installed"  # of an environment: what was installed into it
LIBGOMP = "libgomp.so.1"
INTERRUPTED = 130  # what shells call a process that Ctrl-C ended

COMMANDS = {
    "train": [
        ["fire_data", "digits", "data"],
        ["fire_train", "--solver", "models/lenet/solver.prototxt"],
    ],
    "test": [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["python", "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"],
    ],
}
EXTRAS = {"train": "", "test": "[dev]"}


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in COMMANDS:
        print(__doc__)
        return 2
    what = sys.argv[1]
    prepare(EXTRAS[what])
    warn_about_libgomp()
    *first, last = COMMANDS[what]
    try:
        for command in first:
            status = subprocess.run(shown(command), cwd=ROOT).returncode
            if status:
                return status
    except KeyboardInterrupt:  # the command has said what it had to say
        return INTERRUPTED
    return become(shown(last))


def shown(command: list[str]) -> list[str]:
    """The command with its place in the environment, after it was printed."""
    print("$", " ".join(command), flush=True)
    return [program(ENVIRONMENT, command[0]), *command[1:]]


def program(environment: Path, name: str) -> str:
    return str(environment / ("Scripts" if os.name == "nt" else "bin") / name)


def become(command: list[str]) -> int:
    """Let the command take our place, so that signals reach it as if it had been started alone."""
    if os.name == "nt":  # which would return to the shell at once
        return subprocess.run(command, cwd=ROOT).returncode
    os.chdir(ROOT)
    os.execv(command[0], command)


def prepare(extras: str) -> None:
    """Make .venv and install the checkout into it, unless just that was done already."""
    if not is_installed(ENVIRONMENT, extras):
        make(ENVIRONMENT)
        install(ENVIRONMENT, extras)


def is_installed(environment: Path, extras: str) -> bool:
    mark = environment / MARK
    return mark.exists() and state(extras) in mark.read_text().splitlines()


def state(extras: str) -> str:
    return extras + hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()


def make(environment: Path) -> None:
    print(f"Setting up {environment} (once) ...", flush=True)
    if not Path(program(environment, "python")).exists():
        try:
            venv.create(environment, with_pip=True)
        except subprocess.CalledProcessError:
            sys.exit(
                "this Python cannot make virtual environments; on Debian: install python3-venv"
            )


def install(environment: Path, extras: str, *options: str) -> None:
    command = [*pip(environment), "install", "--quiet", *options, "-e", f".{extras}"]
    if subprocess.run(command, cwd=ROOT).returncode:
        sys.exit("pip could not install the project; its message above says why")
    with (environment / MARK).open("a") as file:
        file.write(state(extras) + "\n")


def pip(environment: Path) -> list[str]:
    return [program(environment, "python"), "-m", "pip", "--disable-pip-version-check"]


def warn_about_libgomp() -> None:
    """oneDNN's wheel needs it, and it has no wheel of its own."""
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(LIBGOMP)
    except OSError:
        print(f"{LIBGOMP} is missing, so the slower NumPy ops will be used; on Debian or Ubuntu: "
              "apt-get install libgomp1")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
