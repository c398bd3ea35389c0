"""The build backend that pyproject.toml names: setuptools, and a C compiler where there is none.

A build for a machine without a C compiler asks for the `ziglang` wheel, which is one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

NATIVE = Path("pycaffe_fire", "backend", "cpu", "native")
ROOT = Path(__file__).resolve().parents[2]
PLATFORM_VARIABLE = "FIRE_PLATFORM"  # the platform tag of a wheel for another machine


def native_build() -> ModuleType:
    """Load native/build.py, which compiles the CPU kernels, without importing the package."""
    spec = importlib.util.spec_from_file_location("fire_native_build", ROOT / NATIVE / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """List what a wheel's build needs beside what pyproject.toml says."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """List what an editable install's build needs beside what pyproject.toml says."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler()]


def platform() -> str | None:
    """Return the platform tag of the machine to build for; None for this one."""
    return os.environ.get(PLATFORM_VARIABLE)


def _compiler() -> list[str]:
    build = native_build()
    if platform():
        return ["ziglang"]
    try:
        build.compiler()
    except build.NoCompiler:
        return ["ziglang"] if build.this_machine().variants else []
    return []
