"""tools/start.py: what it starts gets signals as if it had been started alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Stands for fire_train: the first Ctrl-C stops it after it has saved.
SAVES = """#!{python}
import signal, sys, time
def stop(*_):
    time.sleep(0.5)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGINT, stop)
print("training", flush=True)
time.sleep(60)
"""
ENDLESS = """#!{python}
import time
print("training", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise SystemExit(130)
"""
NOTHING = "#!{python}\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose environment is complete, with stand-ins for its commands."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "start.py", tmp_path / "tools")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    digest = hashlib.sha256((tmp_path / "pyproject.toml").read_bytes()).hexdigest()
    (tmp_path / ".venv" / "installed").write_text(digest + "\n")
    return tmp_path


def interrupted(checkout: Path, commands: dict[str, str]) -> tuple[int, str]:
    """Status and output of `start.py train` when Ctrl-C is pressed while it trains."""
    for name, code in commands.items():
        path = checkout / ".venv" / "bin" / name
        path.write_text(code.format(python=sys.executable))
        path.chmod(0o755)
    out = checkout / "out"
    with out.open("w") as file:
        started = subprocess.Popen(
            [sys.executable, "tools/start.py", "train"], cwd=checkout, stdout=file,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 240
        while "training" not in out.read_text():
            assert started.poll() is None and time.monotonic() < deadline, out.read_text()
            time.sleep(0.05)
        os.killpg(started.pid, signal.SIGINT)  # a terminal sends it to all
        status = started.wait(60)
    return status, out.read_text()


def test_ctrl_c_lets_training_save(checkout: Path) -> None:
    status, out = interrupted(checkout, {"fire_data": NOTHING, "fire_train": SAVES})
    assert status == 0 and out.splitlines()[-1] == "saved" and "Traceback" not in out


def test_ctrl_c_in_an_earlier_command_is_one_line(checkout: Path) -> None:
    status, out = interrupted(checkout, {"fire_data": ENDLESS, "fire_train": NOTHING})
    assert status == 130 and out.splitlines()[-1] == "interrupted" and "Traceback" not in out
