"""What `caffe test` computes: a net's outputs as means over batches."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..net import Net
from ..parallel.leaves import Output, output_names, output_values

log = logging.getLogger("pycaffe_fire")


def score(
    net: Net, iterations: int, after_batch: Callable[[], None] = lambda: None
) -> list[Output]:
    """The net's outputs as means over this many batches, logged on the way as Caffe does."""
    log.info("Running for %d iterations.", iterations)
    names = output_names(net)
    loss, sums = 0.0, [0.0] * len(names)
    for batch in range(iterations):
        loss += float(net.run_forward())
        after_batch()
        net.context.step += 1
        for i, ((name, _), value) in enumerate(zip(names, output_values(net), strict=True)):
            sums[i] += value
            log.info("Batch %d, %s = %g", batch, name, value)
    log.info("Loss: %g", loss / iterations)
    return [
        Output(name, total / iterations, weight)
        for (name, weight), total in zip(names, sums, strict=True)
    ]
