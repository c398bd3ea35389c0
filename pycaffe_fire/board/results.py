"""What weights are worth on the test data: who is taken for whom, and the worst mistakes.

Runs in a worker process.
"""

from __future__ import annotations

import base64
import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..backend import cpu_backend
from ..data.bad_records import SKIP
from ..errors import NetError
from ..layers import Context
from ..layers.feed import Feed
from ..net import Net
from .deploy import SCORES, harmless
from .images import image_png

HARDEST = 48  # images that are shown
BLUNT = 4096  # samples of a source whose length nobody knows
TOP = 5

Floats = NDArray[np.float32]


class Evaluation:
    """A test net with a snapshot's weights."""

    def __init__(self, prototxt: str, model: str) -> None:
        param = harmless(schema.parse_text(prototxt, schema.NetParameter()))
        param.state.phase = schema.TEST
        self._net = Net(param, cpu_backend(), Context(seed=1, bad_records=SKIP))
        self._net.copy_from(model)
        self._scores, self._labels, self._softmax = self._judged()

    def _judged(self) -> tuple[str, str, bool]:
        """The blobs with scores and labels, and whether scores are yet to become probabilities."""
        for layer in reversed(self._net.layers):
            bottoms = layer.bottom
            if len(bottoms) > 1 and (layer.type in SCORES or layer.type == "Accuracy"):
                return (
                    bottoms[0],
                    bottoms[1],
                    layer.type != "Accuracy" or not self._is_softmax(bottoms[0]),
                )
        raise NetError(
            "the test net compares nothing with labels: it needs an Accuracy or SoftmaxWithLoss "
            "layer"
        )

    def _is_softmax(self, blob: str) -> bool:
        return any(blob in layer.top and layer.type == "Softmax" for layer in self._net.layers)

    def do_run(self) -> Iterator[dict[str, Any]]:
        """Every test record once; progress, then the tables."""
        net = self._net
        feed = next((layer for layer in net.layers if isinstance(layer, Feed)), None)
        index = net.layers.index(feed) if feed is not None else 0
        batch = net.tops[index][0].shape[0]
        total = feed.records if feed is not None else BLUNT
        tally: Tally | None = None
        for done in range(0, total, batch):
            net.run_forward()
            net.context.step += 1
            count = min(batch, total - done)
            scores = probabilities(np.array(net.blobs[self._scores].data), self._softmax)
            labels = np.array(net.blobs[self._labels].data).reshape(-1)
            images = np.asarray(net.tops[index][0].data)[:count]
            places = scores.shape[0] // batch  # pixels of a segmentation count one by one
            tally = tally or Tally(scores.shape[1])
            tally.add(scores[: count * places], labels[: count * places], images, done)
            yield {"progress": [done + count, total]}
        net.close()
        assert tally is not None
        yield {"result": tally.tables()}


def probabilities(scores: Floats, softmax: bool) -> Floats:
    """Rows of (samples or pixels, classes)."""
    if scores.ndim > 2:
        scores = np.moveaxis(scores, 1, -1).reshape(-1, scores.shape[1])
    scores = scores.reshape(len(scores), -1)
    if not softmax:
        return scores
    powers = np.exp(scores - scores.max(1, keepdims=True))
    rows: Floats = powers / powers.sum(1, keepdims=True)
    return rows


class Tally:
    """The confusion matrix, and the mistakes that the net was surest of."""

    def __init__(self, classes: int) -> None:
        self.matrix = np.zeros((classes, classes), np.int64)
        self._top = np.zeros(classes, np.int64)
        self._hardest: list[tuple[float, int, int, int, str]] = []

    def add(self, scores: Floats, labels: Floats, images: Any, first: int) -> None:
        """Scores and labels of samples, or of their pixels; the first sample has number `first`."""
        classes = len(self.matrix)
        known = (labels >= 0) & (labels < classes)
        truth, scores = labels[known].astype(np.int64), scores[known]
        guesses = scores.argmax(1)
        np.add.at(self.matrix, (truth, guesses), 1)
        own = scores[np.arange(len(truth)), truth]
        among = (scores > own[:, None]).sum(1) < TOP
        self._top += np.bincount(truth[among], minlength=classes)
        if images.ndim == 4 and len(labels) == len(images):  # one label for each image
            numbers = first + np.flatnonzero(known)
            self._note_mistakes(scores, truth, guesses, images[known], numbers)

    def _note_mistakes(
        self, scores: Floats, truth: Any, guesses: Any, images: Any, numbers: Any
    ) -> None:
        for i in np.flatnonzero(truth != guesses):
            sure = float(scores[i, guesses[i]])
            if len(self._hardest) < HARDEST or sure > self._hardest[0][0]:
                shown = base64.b64encode(image_png(images[i])).decode()
                row = (sure, int(numbers[i]), int(truth[i]), int(guesses[i]), shown)
                push = heapq.heappush if len(self._hardest) < HARDEST else heapq.heappushpop
                push(self._hardest, row)

    def tables(self) -> dict[str, Any]:
        counts = self.matrix.sum(1)
        right = self.matrix.diagonal()
        total = max(1, int(counts.sum()))
        return {
            "matrix": self.matrix.tolist(),
            "accuracy": float(right.sum()) / total,
            "top5": float(self._top.sum()) / total,
            "samples": int(counts.sum()),
            "classes": [
                {
                    "count": int(n), "right": int(r), "top5": int(t),
                    "predicted": int(p),
                }
                for n, r, t, p in zip(counts, right, self._top, self.matrix.sum(0), strict=True)
            ],
            "hardest": [
                {"confidence": c, "sample": s, "label": label, "guess": g, "image": image}
                for c, s, label, g, image in sorted(self._hardest, reverse=True)
            ],
        }  # fmt: skip
