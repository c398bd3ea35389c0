#!/usr/bin/env python3
"""Build wheels for other machines with the ziglang wheel, which is a C compiler for all of them.

    python tools/packaging/wheels.py                       all platforms, into dist/
    python tools/packaging/wheels.py --platform win_amd64 --folder wheels

A wheel depends on the platform, because of the CPU kernels, but on no version of Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from fire_backend import NATIVE, PLATFORM_VARIABLE, ROOT, native_build

PLATFORMS = native_build().PLATFORMS


def main() -> int:
    """Build the wheels that are asked for, and list them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--platform", action="append", choices=sorted(PLATFORMS), help="only this")
    parser.add_argument("--folder", type=Path, default=Path("dist"), help="where wheels go")
    options = parser.parse_args()
    for platform in options.platform or sorted(PLATFORMS):
        wheel = build_wheel(platform, options.folder)
        print(f"{wheel}: {', '.join(libraries(wheel))}", flush=True)
    return 0


def build_wheel(platform: str, folder: Path) -> Path:
    """Build the wheel of one platform and return its path."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", str(ROOT)]
        environment = {**os.environ, PLATFORM_VARIABLE: platform}
        subprocess.run([*command, "--wheel-dir", scratch], env=environment, check=True)
        (built,) = Path(scratch).glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(built, folder / built.name))


def libraries(wheel: Path) -> list[str]:
    """List the kernel libraries in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        inside = [Path(name) for name in archive.namelist()]
    return sorted(path.name for path in inside if path.parent == NATIVE and "libfire" in path.name)


if __name__ == "__main__":
    sys.exit(main())
