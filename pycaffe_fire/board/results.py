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
from ..backend.tensor import on_host
from ..data.bad_records import SKIP
from ..layers import Context
from ..layers.feed import Feed
from ..net import Net
from ..solver.confusion import comparing_layer, labels_of, predictions
from .deploy import harmless
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
        self._index = comparing_layer(self._net)

    def do_run(self) -> Iterator[dict[str, Any]]:
        """Every test record once; progress, then the tables."""
        net = self._net
        feed = next((layer for layer in net.layers if isinstance(layer, Feed)), None)
        index = net.layers.index(feed) if feed is not None else 0
        batch = net.tops[index][0].shape[0]
        total = feed.records if feed is not None else BLUNT
        about = labels_of(net.layers[self._index])
        assert about is not None
        tally = Tally(about.classes)
        for done in range(0, total, batch):
            net.run_forward()
            net.context.step += 1
            count = min(batch, total - done)
            labels, valid = (on_host(array)[:count] for array in about.read())
            given = on_host(net.bottoms[self._index][0].data)
            scores = given.reshape(about.outer, about.classes, about.inner).transpose(0, 2, 1)
            images = np.asarray(net.tops[index][0].data)[:count]
            tally.add(scores[:count], labels, valid, images, done)
            yield {"progress": [done + count, total]}
        net.close()
        yield {"result": tally.tables()}


def probabilities(scores: Floats) -> Floats:
    """Scores as parts of one over the last axis; what has been through a softmax stays."""
    if scores.size and scores.min() >= 0 and np.allclose(scores.sum(-1), 1, atol=1e-3):
        return scores
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    rows: Floats = powers / powers.sum(-1, keepdims=True)
    return rows


class Tally:
    """The confusion matrix, and the mistakes that the net was surest of."""

    def __init__(self, classes: int) -> None:
        self.matrix = np.zeros((classes, classes), np.int64)
        self._top = np.zeros(classes, np.int64)
        self._hardest: list[tuple[float, int, int, int, str]] = []

    def add(self, scores: Floats, labels: Any, valid: Any, images: Any, first: int) -> None:
        """(samples, pixels, classes) scores and (samples, pixels) labels; the first sample has
        number `first`."""
        guesses = predictions(scores.copy(), labels)
        np.add.at(self.matrix, (labels[valid], guesses[valid]), 1)
        own = np.take_along_axis(scores, labels[..., None], -1)
        among = valid & ((scores > own).sum(-1) < TOP)
        self._top += np.bincount(labels[among], minlength=len(self.matrix))
        if images.ndim == 4 and labels.shape[1] == 1:  # one label for each image
            sure = probabilities(scores)
            self._note_mistakes(sure[:, 0], labels[:, 0], guesses[:, 0], valid[:, 0], images, first)

    def _note_mistakes(
        self, scores: Floats, truth: Any, guesses: Any, valid: Any, images: Any, first: int
    ) -> None:
        for i in np.flatnonzero(valid & (truth != guesses)):
            sure = float(scores[i, guesses[i]])
            if len(self._hardest) < HARDEST or sure > self._hardest[0][0]:
                shown = base64.b64encode(image_png(images[i])).decode()
                row = (sure, first + int(i), int(truth[i]), int(guesses[i]), shown)
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
