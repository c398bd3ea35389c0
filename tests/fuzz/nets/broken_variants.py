"""Backends that are wrong on purpose, to see that the oracle notices."""

from __future__ import annotations

from typing import Any

import numpy as np

from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Plan
from pycaffe_fire.errors import BackendError

from .case import Case
from .execute import Variant
from .oracle import judge

CASE = Case.parse("""# phase TRAIN; actions [["fwd", 1], ["bwd", 2]]; seen:
force_backward: true
layer { name: "data1" type: "Input" top: "data1" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "relu" type: "ReLU" bottom: "data1" top: "b1" }
""")


class _Leaking(NumPyBackend):
    """Its ReLU leaks a thousandth of negative values."""

    def relu(self, x: Blob, y: Blob, slope: float) -> Plan:
        return super().relu(x, y, slope + 1e-3)


class _Raising(NumPyBackend):
    def relu(self, x: Blob, y: Blob, slope: float) -> Plan:
        raise IndexError("on purpose")


class _Refusing(NumPyBackend):
    def relu(self, x: Blob, y: Blob, slope: float) -> Plan:
        raise BackendError("on purpose")


def findings() -> list[str]:
    """What the oracle finds in each of them."""

    def variant(kind: Any) -> Variant:
        return Variant(kind.__name__, lambda threads: kind(1, np.float32), fused=True)

    return [judge(CASE, (variant(kind),)).finding for kind in (_Leaking, _Raising, _Refusing)]
