"""How much faster this CPU is with products of bfloat16 than with those of float32: by trying.

Having the instructions says little. A processor may take four times as long for one of them as for
a multiply-add of float32, which does half as much; and only float32 has Winograd's method.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import Window

if TYPE_CHECKING:
    from . import OneDNNBackend

SHAPES = ((1, 256), (3, 128))  # window and channels, as much work as nets have of both
IMAGES, SIZE = 8, 14
ROUNDS = 6


def speedup(plain: OneDNNBackend, other: OneDNNBackend) -> float:
    """How many times as fast convolutions, forward and backward, are on the other backend."""
    passes = [_passes(plain), _passes(other)]
    least = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for number, run in enumerate(passes):
            began = time.perf_counter()
            run()
            least[number] = min(least[number], time.perf_counter() - began)
    return least[0] / least[1]


def _passes(backend: OneDNNBackend) -> Callable[[], None]:
    """All of SHAPES once forward and backward, after they have run once."""
    plans = []
    for kernel, channels in SHAPES:
        pixels, weights = (IMAGES, channels, SIZE, SIZE), (channels, channels, kernel, kernel)
        x, w, b, y = (Blob(backend, shape) for shape in (pixels, weights, (channels,), pixels))
        window = Window((kernel, kernel), (1, 1), (kernel // 2, kernel // 2), (1, 1))
        plans.append(backend.convolution(x, w, b, y, window, 1))

    def run() -> None:
        for plan in plans:
            plan.forward()
            plan.backward(True, True, True)

    run()
    return run
