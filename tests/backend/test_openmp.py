"""Waiting threads: a bounded spin by default, and the user's own settings where there are any."""

from __future__ import annotations

import ctypes.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pycaffe_fire.backend.openmp import SPIN_COUNT, SPINS, WAIT_POLICY

pytestmark = pytest.mark.skipif(
    ctypes.util.find_library("gomp") is None, reason="there is no libgomp"
)

ROOT = Path(__file__).parents[2]
DROP_IN = ROOT / "pycaffe_fire" / "dropin"
NET = """
layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "in" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
"""
FORWARD = "import caffe; caffe.Net('net.prototxt', caffe.TEST).forward()"
KERNEL_FIRST = "from pycaffe_fire.backend.compiled import numba; numba(); " + FORWARD
LOADED_EARLIER = "import ctypes; ctypes.CDLL('libgomp.so.1'); "
DEBUG_LOG = (
    "import logging; logging.basicConfig(format='%(levelname)s %(message)s'); "
    "logging.getLogger('pycaffe_fire').setLevel('DEBUG')"
)


def run(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run Python in `folder`, beside net.prototxt, with these OpenMP settings and no others."""
    (folder / "net.prototxt").write_text(NET)
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{DROP_IN}", **settings},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def spin_counts(folder: Path, *arguments: str, **settings: str) -> set[int]:
    """The spin counts that libgomp itself reports when a process loads it."""
    done = run(folder, *arguments, OMP_DISPLAY_ENV="verbose", **settings)
    return {int(count) for count in re.findall(rf"{SPIN_COUNT} = '(\d+)'", done.stderr)}


def test_a_net_of_a_script(tmp_path: Path) -> None:
    assert spin_counts(tmp_path, "-c", FORWARD) == {SPINS}


def test_the_command(tmp_path: Path) -> None:
    command = ("-m", "pycaffe_fire.cli.caffe", "time", "-model", "net.prototxt", "-iterations", "1")
    assert spin_counts(tmp_path, *command) == {SPINS}


def test_kernels_are_loaded_first(tmp_path: Path) -> None:
    pytest.importorskip("numba.np.ufunc.omppool")
    assert spin_counts(tmp_path, "-c", KERNEL_FIRST) == {SPINS}


@pytest.mark.parametrize("program", [FORWARD, KERNEL_FIRST])
@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({SPIN_COUNT: "12345"}, 12345),
        ({WAIT_POLICY: "passive"}, 0),
        ({WAIT_POLICY: "active"}, 30_000_000_000),
        ({WAIT_POLICY: "passive", SPIN_COUNT: "12345"}, 12345),
    ],
)
def test_users_choice(program: str, settings: dict[str, str], count: int, tmp_path: Path) -> None:
    assert spin_counts(tmp_path, "-c", program, **settings) == {count}


@pytest.mark.parametrize("settings", [{}, {SPIN_COUNT: "12345"}, {WAIT_POLICY: "passive"}])
def test_the_environment_stays(settings: dict[str, str], tmp_path: Path) -> None:
    show = f"; import os; print([os.environ.get(n) for n in ('{SPIN_COUNT}', '{WAIT_POLICY}')])"
    expected = [settings.get(SPIN_COUNT), settings.get(WAIT_POLICY)]
    assert run(tmp_path, "-c", KERNEL_FIRST + show, **settings).stdout.strip() == str(expected)


@pytest.mark.parametrize("program", [FORWARD, KERNEL_FIRST])
def test_loaded_by_another_module(program: str, tmp_path: Path) -> None:
    done = run(tmp_path, "-c", f"{LOADED_EARLIER}{DEBUG_LOG}; {program}")
    (line,) = (line for line in done.stderr.splitlines() if "libgomp" in line)
    assert line.startswith("DEBUG") and f"{SPIN_COUNT}={SPINS}" in line


@pytest.mark.parametrize(
    ("program", "settings"),
    [
        (f"{DEBUG_LOG}; {FORWARD}", {}),
        (f"{DEBUG_LOG}; {KERNEL_FIRST}", {}),
        (f"{LOADED_EARLIER}{DEBUG_LOG}; {FORWARD}", {SPIN_COUNT: "12345"}),
    ],
)
def test_nothing_to_say(program: str, settings: dict[str, str], tmp_path: Path) -> None:
    assert "libgomp" not in run(tmp_path, "-c", program, **settings).stderr
