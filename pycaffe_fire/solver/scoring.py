"""What `caffe test` computes: a net's outputs over batches."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..net import Net
from ..parallel.leaves import Output
from .evaluation import Evaluation

log = logging.getLogger("pycaffe_fire")


def score(
    net: Net,
    iterations: int,
    after_batch: Callable[[], None] = lambda: None,
    ap_version: str = "Integral",
) -> tuple[list[Output], Evaluation]:
    """The net's outputs over this many batches, logged on the way as Caffe does: means, or the
    mean average precision of detections."""
    log.info("Running for %d iterations.", iterations)
    evaluation = Evaluation(net, version=ap_version)
    loss, passes = 0.0, []
    for batch in range(iterations):
        loss += float(net.run_forward())
        after_batch()
        net.context.step += 1
        passes.append(evaluation.keep())
        for name, value in evaluation.numbers(passes[-1]):
            log.info("Batch %d, %s = %g", batch, name, value)
    log.info("Loss: %g", loss / iterations)
    return evaluation.outputs(passes), evaluation
