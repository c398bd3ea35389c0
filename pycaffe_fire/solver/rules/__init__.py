"""One file per update rule; importing this package registers all of them.

A new rule is one file here, with its formula as array code (see base.py), and one row in
tests/solver/rule_cases.py. That serves on every backend. Where a profile shows it to matter, a
kernel under the formula's name makes it faster: in backend/cpu/native/update.c for the CPU, in
backend/cuda/kernels/update.cu for GPUs; the tests compare it with the array code.
"""

from __future__ import annotations

import importlib
import pkgutil

from .base import RULES, Formula, Rule

__all__ = ["RULES", "Formula", "Rule"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
