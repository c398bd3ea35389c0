"""Communicators over MPI, one file each; `mpi4py` is imported only when one is made."""

from __future__ import annotations

import importlib
import pkgutil

from .base import COMMUNICATORS, RankCommunicator

__all__ = ["COMMUNICATORS", "RankCommunicator"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
