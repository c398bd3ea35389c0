"""device_query: which GPUs there are and whether they work."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from ..backend.cuda.device import probe
from ..errors import BackendError
from .common import Parser, run

COMMANDS = """
  device_query              all GPUs of this machine
  device_query --gpu 0      one of them
"""


def _parser() -> Parser:
    parser = Parser("device_query", COMMANDS)
    parser.add_argument("--gpu", metavar="ID", default="all", help="a GPU's number, or all")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), _query, arguments)


def _query(options: argparse.Namespace) -> None:
    if options.gpu != "all" and not options.gpu.isdecimal():
        raise BackendError(f'--gpu takes a device number or "all", got "{options.gpu}"')
    found = probe(0 if options.gpu == "all" else int(options.gpu))
    if found.cupy is None:
        raise BackendError(found.reason)
    chosen = range(found.devices) if options.gpu == "all" else [int(options.gpu)]
    for device in chosen:
        print("\n".join(_lines(found.cupy, device)))


def _lines(cupy: Any, device: int) -> list[str]:
    """Caffe's lines, as far as they still mean something."""
    about = cupy.cuda.runtime.getDeviceProperties(device)
    name = about["name"].decode() if isinstance(about["name"], bytes) else about["name"]
    with cupy.cuda.Device(device) as current:
        free, total = current.mem_info
    works = probe(device)
    facts = {
        "Device id": device,
        "Name": name,
        "Major revision number": about["major"],
        "Minor revision number": about["minor"],
        "Total global memory": f"{total:,} bytes ({free:,} free)",
        "Number of multiprocessors": about["multiProcessorCount"],
        "Driver and runtime": f"{cupy.cuda.runtime.driverGetVersion()}, "
        f"{cupy.cuda.runtime.runtimeGetVersion()}",
        "Trial kernel": "works" if works.cupy is not None else works.reason,
    }
    return [f"{label + ':':<27}{value}" for label, value in facts.items()]


if __name__ == "__main__":
    sys.exit(main())
