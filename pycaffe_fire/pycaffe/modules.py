"""pycaffe's modules under the names that scripts import them by."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

MODULES = (
    "classifier", "coord_map", "detector", "draw", "io", "model_libs", "net_spec", "proto",
    "proto.caffe_pb2",
)  # fmt: skip


def publish(package: str) -> dict[str, ModuleType]:
    """Let `import package.io` and the like find these modules: the same, not copies of them."""
    own = __name__.rpartition(".")[0]
    found = {name: importlib.import_module(f"{own}.{name}") for name in MODULES}
    sys.modules.update((f"{package}.{name}", module) for name, module in found.items())
    return {name: module for name, module in found.items() if "." not in name}
