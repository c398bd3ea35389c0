"""Loss scaling where gradients are stored in 16 bits: global_grad_scale and its adaptive relative.

A loss is multiplied by a factor, so that small gradients do not vanish; gradients are divided by it
before anything else looks at them. NVIDIA's global_grad_scale gives the factor. With
global_grad_scale_adaptive it is the first one: where a gradient overflows, the update is skipped
and the factor halved; after many sound iterations it is doubled. That is also what --precision
float16 does, unless the net gives a factor.
"""

from __future__ import annotations

from ..backend.base import Backend
from ..backend.plans import LossScale, UpdateStep
from ..backend.tensor import FLOAT32, Array
from ..errors import SolverError
from ..net import Net

FLOAT16 = "float16"  # whose range is small; bfloat16 has that of float32
FIRST = 2.0**16  # of an adaptive scale, where the net does not say


class StaticScale(LossScale):
    """The factor that the net gives."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def unscale(self, gradients: Array) -> None:
        gradients *= 1 / self.factor

    def state(self) -> list[float]:
        return []

    def restore(self, state: list[float]) -> None:
        """What the net says counts."""


def loss_scale(net: Net, backend: Backend, update: UpdateStep) -> LossScale | None:
    """What the net asks for; None where gradients are stored as float32, which need no scaling."""
    param = net.param
    kinds = {blob.gradient.kind for tops in net.tops for blob in tops}
    if kinds <= {FLOAT32}:
        return None
    if not param.global_grad_scale > 0:
        raise SolverError(f"global_grad_scale must be above 0, got {param.global_grad_scale:g}")
    given = param.HasField("global_grad_scale")
    if param.global_grad_scale_adaptive or (backend.precision == FLOAT16 and not given):
        return backend.dynamic_scale(param.global_grad_scale if given else FIRST, update)
    return StaticScale(param.global_grad_scale) if param.global_grad_scale != 1 else None
