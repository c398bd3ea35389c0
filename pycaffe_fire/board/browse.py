"""Browsing a data layer's records: as they are stored, and as the net sees them.

Runs in a worker process.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import schema
from ..backend import cpu_backend
from ..data.bad_records import SKIP
from ..data.objects import BOX, LABEL
from ..data.source import ImageSource
from ..errors import DataError, NetError
from ..layers import Context
from ..layers.feed import Feed
from ..net import Net
from .deploy import harmless
from .images import image_png

MOST_PROBLEMS = 200
MOST_SCANNED = 5_000_000
STEP = 256  # records between words about progress


class Browser:
    """One data layer of a net."""

    def __init__(self, prototxt: str, layer: str) -> None:
        param = schema.parse_text(prototxt, schema.NetParameter())
        found = next((n for n in param.layer if n.name == layer and not n.bottom), None)
        if found is None:
            raise NetError(f'the net has no data layer "{layer}"')
        alone = schema.NetParameter(name=param.name)
        alone.state.CopyFrom(param.state)
        alone.layer.add().CopyFrom(found)
        net = Net(harmless(alone), cpu_backend(1), Context(seed=1, bad_records=SKIP))
        feed = net.layers[0]
        if not isinstance(feed, Feed):
            raise NetError(f'layer "{layer}" ({feed.type}) reads no records')
        self._net = net
        self._source: Any = feed.source
        self._count = feed.records
        self._labels: Any = None

    @property
    def _has_records(self) -> bool:
        return isinstance(self._source, ImageSource)

    def do_facts(self) -> dict[str, Any]:
        return {"records": self._count, "shape": list(self._source.shapes[0]),
                "stored": self._stored()}  # fmt: skip

    def _stored(self) -> list[int] | None:
        """The shape of the first record that is good, before any transform."""
        if not self._has_records:
            return None
        for record in range(min(self._count, 10)):
            try:
                return list(self._source.read(record)[0].shape)
            except DataError:
                continue
        return None

    def do_survey(self) -> Iterator[dict[str, Any]]:
        """Read all records once: how many each class has, and which cannot be used."""
        count = min(self._count, MOST_SCANNED)
        labels = np.full(count, -1, np.int64)
        good = np.ones(count, bool)
        problems: list[list[Any]] = []
        for record in range(count):
            try:
                labels[record] = self._label(record)
            except DataError as error:
                good[record] = False
                if len(problems) < MOST_PROBLEMS:
                    problems.append([record, str(error)])
            if record % STEP == 0:
                yield {"progress": [record, count]}
        self._labels = labels, good
        counts = Counter(labels[good].tolist())
        yield {"result": {"counts": sorted(counts.items()), "problems": problems,
                          "bad": int((~good).sum()), "records": count}}  # fmt: skip

    def _label(self, record: int) -> int:
        if self._has_records:
            return int(self._source.read(record)[1])
        return self._filled(record)[1]

    def _filled(self, sample: int) -> tuple[Any, int]:
        arrays = [np.zeros((1, *shape), np.float32) for shape in self._source.shapes]
        self._source.fill(range(sample, sample + 1), *arrays)
        label = arrays[1].reshape(-1) if len(arrays) > 1 else np.zeros(0)
        return arrays[0][0], int(label[0]) if len(label) == 1 else -1

    def do_page(
        self, label: int | None, first: int, count: int, seen: bool = False, draw: int = 0
    ) -> dict[str, Any]:
        """The records from number `first` on of those with a label (None: of all); their boxes are
        as stored, or as in `do_image`."""
        if label is None or self._labels is None:
            numbers = list(range(first, min(first + count, self._count)))
            total = self._count
        else:
            labels, good = self._labels
            chosen = np.flatnonzero(good & (labels == label))
            numbers, total = chosen[first : first + count].tolist(), len(chosen)
        samples = [self._sample(number, draw) if seen else None for number in numbers]
        entries = [self._entry(*pair) for pair in zip(numbers, samples, strict=True)]
        return {"total": total, "records": entries}

    def _sample(self, record: int, draw: int) -> int:
        return draw * self._count + record

    def _entry(self, record: int, sample: int | None) -> dict[str, Any]:
        name = self._source.where(record).rpartition(", ")[2] if self._has_records else f"#{record}"
        try:
            entry = {"record": record, "label": self._label(record), "name": name}
            objects = self._source.objects(record, sample) if self._has_records else None
        except DataError as error:
            return {"record": record, "label": None, "name": name, "error": str(error)}
        if objects is not None:
            entry["boxes"] = [[int(row[LABEL]), *row[BOX].tolist()] for row in objects]
        return entry

    def do_image(self, record: int, seen: bool, draw: int) -> str:
        """A record as a PNG file in base64: as stored, or as the net sees it in the epoch `draw`,
        which decides crop and mirror."""
        if not 0 <= record < self._count:
            raise DataError(f"there is no record {record}")
        if self._has_records:
            stored, _, transformed = self._source.look(record, self._sample(record, draw))
            image = transformed if seen else stored
        else:
            image = self._filled(record)[0]
        if image.ndim == 1:
            image = image.reshape(1, 1, -1)
        return base64.b64encode(image_png(image.reshape(-1, *image.shape[-2:]))).decode()
