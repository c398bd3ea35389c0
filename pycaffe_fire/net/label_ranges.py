"""Data layers learn from the layers above which labels there are, so that a record with a wrong one
is named by its key, or skipped, instead of failing in a loss that knows nothing of records."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from ..layers import Layer
from ..layers.feed import Feed
from ..layers.labels import Labels
from ..layers.split import Split

Blobs = Sequence[Sequence[Blob]]


def tell_label_ranges(layers: Sequence[Layer], bottoms: Blobs, tops: Blobs) -> None:
    """The fewest classes that any reader of a data layer's labels knows count."""
    for feed, made in zip(layers, tops, strict=True):
        if not isinstance(feed, Feed) or len(made) < 2:
            continue
        same = {id(made[1])}
        readers: list[Labels] = []
        for layer, bottom, top in zip(layers, bottoms, tops, strict=True):
            labels = getattr(layer, "labels", None)
            if isinstance(labels, Labels) and id(labels.blob) in same:
                readers.append(labels)
            elif isinstance(layer, Split) and id(bottom[0]) in same:
                same.update(id(blob) for blob in top)
        if readers:
            ignored = {labels.ignore for labels in readers if labels.ignore is not None}
            feed.expect_labels(min(labels.classes for labels in readers), ignored)
