"""A checkout of BVLC's Caffe that was never built, or not on this machine: its scripts call
build/tools/caffe, and its python/caffe lacks the compiled part that `import caffe` needs."""

from __future__ import annotations

import shlex
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from ..errors import FireError
from ..installation import PACKAGE, checkout

# Caffe's programs and the modules that take their place.
TOOLS = {
    "build/tools/caffe": "caffe",
    "build/tools/caffe.bin": "caffe",
    "build/tools/convert_imageset": "convert_imageset",
    "build/tools/convert_imageset.bin": "convert_imageset",
    "build/tools/compute_image_mean": "compute_image_mean",
    "build/tools/compute_image_mean.bin": "compute_image_mean",
    "build/tools/extract_features": "extract_features",
    "build/tools/extract_features.bin": "extract_features",
    "build/tools/device_query": "device_query",
    "build/tools/upgrade_net_proto_text": "upgrade:net_text",
    "build/tools/upgrade_net_proto_text.bin": "upgrade:net_text",
    "build/tools/upgrade_net_proto_binary": "upgrade:net_binary",
    "build/tools/upgrade_net_proto_binary.bin": "upgrade:net_binary",
    "build/tools/upgrade_solver_proto_text": "upgrade:solver_text",
    "build/tools/upgrade_solver_proto_text.bin": "upgrade:solver_text",
    "build/examples/mnist/convert_mnist_data.bin": "convert_mnist_data",
    "build/examples/cifar10/convert_cifar_data.bin": "convert_cifar_data",
    "build/examples/siamese/convert_mnist_siamese_data.bin": "convert_mnist_siamese_data",
}
MARK = "# Written by fire_model link-caffe: runs pycaffe_fire in place of Caffe's program."
REMEDY = (
    "BVLC's Python files are here without their compiled part (_caffe), and they hide the module "
    "caffe that pycaffe_fire brings. Take the folder {folder} out of PYTHONPATH and out of "
    "sys.path.insert(...), or write `import pycaffe_fire as caffe`."
)


def link_caffe(root: Path) -> list[str]:
    """Write a script for each of Caffe's programs, and let python/caffe say what to do.

    Returns lines on what was done. Programs that somebody has built stay as they are.
    """
    if not (root / "src" / "caffe").is_dir() and not (root / "python" / "caffe").is_dir():
        raise FireError(f"{root}: is no checkout of Caffe: neither src/caffe nor python/caffe")
    lines = [_write(root / place, _script(module)) for place, module in TOOLS.items()]
    old = root / "python" / "caffe"
    if old.is_dir() and not is_compiled(old):
        text = REMEDY.format(folder=root / "python")
        lines.append(_write(old / "_caffe.py", f"{MARK}\nraise ImportError(\n    {text!r}\n)\n"))
        lines.append(f"import caffe: {text}")
    return lines


def is_compiled(package: Path) -> bool:
    """Does pycaffe's folder hold its compiled module?"""
    return any(path.suffix in (".so", ".pyd", ".dylib") for path in package.glob("_caffe*"))


def shadow() -> str:
    """What to do about a `caffe` that is found before ours and cannot work; "" if there is none."""
    spec = PathFinder.find_spec("caffe")
    found = Path(spec.origin).parent if spec is not None and spec.origin else None
    if found is None or not (found / "pycaffe.py").exists() or is_compiled(found):
        return ""
    return f"import caffe finds {found}: " + REMEDY.format(folder=found.parent)


def _script(module: str) -> str:
    """A shell script that runs a module of ours with this very Python."""
    name, _, function = module.partition(":")
    full = f"{__package__}.{name}"
    call = f"import sys; from {full} import {function or 'main'} as main; sys.exit(main())"
    python = [sys.executable, "-c", call]
    # Where the package is not installed, but used from its source tree.
    source = f"{shlex.quote(str(PACKAGE.parent))}${{PYTHONPATH:+:$PYTHONPATH}}"
    path = "" if checkout() is None else f"export PYTHONPATH={source}\n"
    return f'#!/bin/sh\n{MARK}\n{path}exec {shlex.join(python)} "$@"\n'


def _write(path: Path, text: str) -> str:
    """Write a program, unless one is there that we have not written."""
    try:
        if path.exists() and MARK.encode() not in path.read_bytes()[:4096]:
            return f"{path}: is there already, left alone"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    except OSError as error:
        raise FireError(f"{path}: cannot be written: {error.strerror}") from error
    return f"{path}: written"
