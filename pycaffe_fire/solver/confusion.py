"""Which classes a net takes for which: counted batch by batch, as its Accuracy layers do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.tensor import on_host
from ..errors import NetError
from ..layers import Layer
from ..layers.labels import Labels
from ..layers.split import Split
from ..net import Net


@dataclass
class Confusion:
    """`counts[label, prediction]` of the scores that one layer compares with labels."""

    layer: str
    counts: NDArray[np.int64]

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    @property
    def accuracy(self) -> float:
        return float(np.trace(self.counts) / max(1, self.samples))

    def class_accuracies(self) -> list[float | None]:
        """The share of each class that was recognized; None for a class without samples."""
        return [
            float(row[label] / row.sum()) if row.sum() else None
            for label, row in enumerate(self.counts)
        ]

    def class_ious(self) -> list[float | None]:
        """Of each class what was recognized, as a share of all that has its label or was taken
        for it (intersection over union); None for a class that neither occurred nor was seen."""
        right = np.diag(self.counts)
        union = self.counts.sum(axis=0) + self.counts.sum(axis=1) - right
        return [float(r / u) if u else None for r, u in zip(right, union, strict=True)]

    @property
    def mean_iou(self) -> float:
        """The mean over the classes that have one."""
        known = [iou for iou in self.class_ious() if iou is not None]
        return float(np.mean(known)) if known else 0.0

    def worst(self, most: int) -> list[tuple[int, int, int]]:
        """The most frequent mistakes as (count, label, prediction)."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = (divmod(int(i), len(wrong)) for i in order)
        return [(int(wrong[a, b]), a, b) for a, b in pairs if wrong[a, b]]

    def record(self) -> dict[str, Any]:
        """What JSON holds of it."""
        return {
            "layer": self.layer,
            "samples": self.samples,
            "accuracy": self.accuracy,
            "class_accuracy": self.class_accuracies(),
            "mean_iou": self.mean_iou,
            "class_iou": self.class_ious(),
            "confusion": self.counts.tolist(),
        }


class ConfusionCounter:
    """Counts after every forward pass. A net's Accuracy layers say what to compare; where it has
    none, its losses with labels. Layers that compare the same blobs count once."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._found: dict[int, Confusion] = {}
        seen: set[tuple[int, ...]] = set()
        for index in comparing_layers(net):
            source = tuple(self._origin(index, bottom) for bottom in (0, 1))
            about = labels_of(net.layers[index])
            if about is not None and source not in seen:
                seen.add(source)
                counts = np.zeros((about.classes, about.classes), np.int64)
                self._found[index] = Confusion(net.layers[index].name, counts)

    def _origin(self, index: int, bottom: int) -> int:
        """The number of the blob before it was split for several readers."""
        name = self._net.bottoms[index][bottom].name
        for number, layer in enumerate(self._net.layers):
            if isinstance(layer, Split) and name in layer.param.top:
                return self._origin(number, 0)
        return list(self._net.blobs).index(name)

    def count(self) -> None:
        """Add the batch that the net has just run."""
        for index, found in self._found.items():
            about = labels_of(self._net.layers[index])
            assert about is not None
            labels, valid = (on_host(array) for array in about.read())
            given = on_host(self._net.bottoms[index][0].data)
            scores = given.reshape(about.outer, about.classes, about.inner).transpose(0, 2, 1)
            guesses = predictions(scores.copy(), labels)
            pairs = labels[valid] * about.classes + guesses[valid]
            counted = np.bincount(pairs, minlength=found.counts.size)
            found.counts += counted.reshape(found.counts.shape)

    def results(self) -> list[Confusion]:
        return list(self._found.values())


def comparing_layers(net: Net) -> list[int]:
    """The numbers of the layers to judge a net by; raises if it has none."""
    comparing = [i for i, layer in enumerate(net.layers) if labels_of(layer) is not None]
    scoring = [i for i in comparing if net.layers[i].family == "score"]
    if not comparing:
        raise NetError(
            f"{net.source or 'the net'}: no layer of phase TEST compares scores with labels; "
            "add an Accuracy layer"
        )
    return scoring or comparing


def comparing_layer(net: Net) -> int:
    """The last of them: heads before it, as GoogLeNet's, only help to train."""
    return comparing_layers(net)[-1]


def labels_of(layer: Layer) -> Labels | None:
    """What a layer compares scores with, if it does."""
    found = getattr(layer, "labels", None)
    return found if layer.compares_labels and isinstance(found, Labels) else None


def predictions(scores: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The best class on the last axis; a tie with the label counts against it, as in Accuracy."""
    at = labels[..., None]
    own = np.take_along_axis(scores, at, axis=-1)[..., 0]
    np.put_along_axis(scores, at, -np.inf, axis=-1)
    best: NDArray[np.int64] = np.where(scores.max(axis=-1) >= own, scores.argmax(axis=-1), labels)
    return best
