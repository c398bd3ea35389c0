#!/usr/bin/env python3
"""Tests on the oldest versions that pyproject.toml allows, in an environment of their own.

    python3 tools/oldest.py                      the tests that depend most on other packages
    python3 tools/oldest.py tests/layers -k LRN  others: arguments are pytest's

Packages that we use are as old as their bounds and each other allow, and have a wheel for the
Python that runs this; those of the tests are new. The environment is build/oldest-3.x.
"""

from __future__ import annotations

import re
import subprocess
import sys

import start

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
ENVIRONMENT = start.ROOT / "build" / f"oldest-{PYTHON}"
EXTRAS = ["mpi", "plot", "board", "convert", "leveldb"]
TESTS = [
    "tests/backend", "tests/schema", "tests/data", "tests/convert", "tests/report", "tests/board",
    "tests/pycaffe_tools", "tests/parallel/test_communicators.py", "tests/cli/test_fire_plot.py",
]  # fmt: skip


def main(arguments: list[str]) -> int:
    extras = f"[{','.join([*EXTRAS, 'test'])}]"
    constraints = ENVIRONMENT / "constraints.txt"
    if not start.is_installed(ENVIRONMENT, extras):
        start.make(ENVIRONMENT)
        pyproject = (start.ROOT / "pyproject.toml").read_text()
        constraints.write_text("".join(line + "\n" for line in pinned(pyproject, resolved())))
        start.install(ENVIRONMENT, extras, "--constraint", str(constraints))
    print(f"Python {PYTHON} with", constraints.read_text(), sep="\n", flush=True)
    start.warn_about_libgomp()
    python, *options = start.COMMANDS["test"][-1]
    return start.become([start.program(ENVIRONMENT, python), *options, *(arguments or TESTS)])


def resolved() -> str:
    """All packages that the package and EXTRAS lead to, those of pyproject.toml at their oldest.

    uv finds them, since pip always takes the newest.
    """
    uv = [
        start.program(ENVIRONMENT, "uv"), "pip", "compile", "--quiet", "--no-annotate",
        "--resolution", "lowest-direct", "--only-binary", ":all:",
        "--python", start.program(ENVIRONMENT, "python"), "pyproject.toml",
    ]  # fmt: skip
    for extra in EXTRAS:
        uv += ["--extra", extra]
    printed([*start.pip(ENVIRONMENT), "install", "--quiet", "uv"])
    return printed(uv)


def printed(command: list[str]) -> str:
    done = subprocess.run(command, cwd=start.ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("the oldest versions were not found; the message above says why")
    return done.stdout


def pinned(pyproject: str, versions: str) -> list[str]:
    """Constraints for pip: of the versions those that pyproject.toml bounds, and why a version is
    not the lowest."""
    lines = []
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", versions, re.MULTILINE):
        bound = re.search(rf'"{re.escape(name)}>=([\w.]+)', pyproject)
        if bound:
            higher = release(version) != release(bound[1])
            note = f"  # {bound[1]} has no wheel, or another package needs this one"
            lines.append(f"{name}=={version}{note if higher else ''}")
    return lines


def release(version: str) -> str:
    """Without zeros that say nothing: 1.26 and 1.26.0 are the same."""
    return re.sub(r"(\.0)+$", "", version)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
